import numpy as np
import pytest
from numpy.typing import NDArray

from elocution.audio import encode_wav
from elocution.config.load import load_config
from elocution.errors import ConfigError
from elocution.eval.likeness import VoiceLikeness
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance, Voice

CODES = np.zeros((1, 1), np.int64)


class Loudness:
    """Embeds a clip as the direction (level, 1 - level) and refuses one without samples above 0.01."""

    def embed(self, clips: list[Audio]) -> NDArray[np.float32]:
        rows = []
        for clip in clips:
            level = float(np.abs(clip.samples).max())
            if level < 0.01:
                raise ValueError("too quiet")
            rows.append([level, 1 - level])
        found = np.array(rows, dtype=np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def clip(level: float) -> Audio:
    return Audio(np.full(1600, level, np.float32), 16_000)


def spoken(level: float, wanted: float | None, outcome: Outcome = Outcome.SPEECH) -> Rollout:
    voice = None if wanted is None else Voice(f"voice {wanted}", "text", CODES, encode_wav(clip(wanted), exact=True))
    completion = Completion(CODES, np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    return Rollout(Utterance("u", "the house", voice=voice), completion, CODES, clip(level), outcome)


def test_likeness_is_the_mean_cosine_with_the_wanted_voice() -> None:
    # The same level is the same direction; (1, 0) and (0.5, 0.5) are 45 degrees apart.
    likeness = VoiceLikeness(Loudness())
    assert likeness([spoken(0.5, 0.5)]) == pytest.approx(1)
    assert likeness([spoken(0.5, 0.5), spoken(1.0, 0.5)]) == pytest.approx((1 + 0.5**0.5) / 2)


def test_what_has_no_voice_to_compare_does_not_count() -> None:
    likeness = VoiceLikeness(Loudness())
    rest = [spoken(0.5, None), spoken(0.0, 0.5), spoken(1.0, 0.5, Outcome.RUNAWAY)]
    assert likeness([spoken(0.5, 0.5), *rest]) == pytest.approx(1)
    assert likeness(rest) is None


def test_a_guard_is_not_the_encoder_in_the_reward() -> None:
    settings = ["reward.type=composite", 'reward.components={v = {fact = "speaker_similarity", utility = "linear"}}']
    settings += ["eval.speaker=resemblyzer"]
    assert load_config(None, settings).eval.speaker == "resemblyzer"  # after training, it is said and may be wanted
    with pytest.raises(ConfigError, match=r"eval\.speaker and reward\.speaker are both 'resemblyzer'"):
        load_config(None, [*settings, "eval.every=5"])
