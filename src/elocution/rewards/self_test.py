"""Does a scorer hear? A clip that is known to be good must score high, noise low, silence nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.config.tree import SelfTestConfig
from elocution.errors import RewardError
from elocution.rewards.base import FLOOR
from elocution.text.normalize import normalize
from elocution.types import Audio, Score

__all__ = ["SelfTest", "check_scores", "load_self_test"]

_NOISE_LEVEL = 0.1
_OTHERS_S = 1.0


@dataclass(frozen=True)
class SelfTest:
    """Clips to be scored for `text`: `silence` always, `known` and `noise` where there is a test.

    The voice that they should have is that of `known`, or of nobody.
    """

    text: str
    language: str
    description: str
    min_reward: float
    silence: Audio
    known: Audio | None = None
    noise: Audio | None = None

    @property
    def clips(self) -> list[Audio]:
        """Silence, then the known clip and noise if there are any."""
        return [clip for clip in (self.silence, self.known, self.noise) if clip is not None]


def load_self_test(config: SelfTestConfig) -> SelfTest:
    """The test that `config` describes.

    Raises: DataError if the clip cannot be read.
    """
    known = read_audio(resolve_path(config.audio)) if config.audio else None
    sample_rate = known.sample_rate if known else 16_000
    num_samples = round(_OTHERS_S * sample_rate)
    noise = (_NOISE_LEVEL * np.random.default_rng(0).standard_normal(num_samples)).astype(np.float32)
    return SelfTest(
        text=config.text,
        language=config.language,
        description=config.description,
        min_reward=config.min_reward,
        silence=Audio(np.zeros(num_samples, np.float32), sample_rate),
        known=known,
        noise=Audio(noise, sample_rate) if known else None,
    )


def check_scores(test: SelfTest, scores: Sequence[Score], *, subject: str) -> Score:
    """Compares the scores of `test.clips` with what they must be; returns that of silence, which holds the floor.

    Raises: RewardError naming `subject`, the clip, what was expected and what came.
    """
    for name, score in zip(("silence", "the known clip", "noise"), scores, strict=False):
        if score.error is not None:
            raise RewardError(f"{subject} cannot score {name}: {score.error}")
    silence, *others = scores
    if silence.value != FLOOR:
        raise RewardError(f"{subject} gives silence the reward {silence.value}, expected {FLOOR}")
    if others:
        known, noise = others
        _check_known(test, known, subject)
        if noise.value is None or noise.value >= test.min_reward:
            raise RewardError(
                f"{subject} gives noise the reward {noise.value} and hears {noise.transcript!r}, "
                f"expected less than reward.self_test.min_reward = {test.min_reward}"
            )
    return silence


def _check_known(test: SelfTest, known: Score, subject: str) -> None:
    heard, wanted = (normalize(text, test.language) for text in (known.transcript or "", test.text))
    if heard != wanted:
        raise RewardError(
            f"{subject} hears {heard!r} in the known clip, expected {wanted!r}; "
            "the recogniser, the sample rate or reward.self_test is wrong"
        )
    if known.value is None or known.value < test.min_reward:
        raise RewardError(
            f"{subject} gives the known clip the reward {known.value}, "
            f"expected at least reward.self_test.min_reward = {test.min_reward}"
        )
