"""The composite reward: utilities by hand, missing parts, and the default reward rebuilt from its parts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from elocution.audio import write_wav
from elocution.config.load import load_config
from elocution.config.tree import ComponentConfig, RewardConfig
from elocution.errors import ConfigError
from elocution.measures import Likelihood
from elocution.measures.facts import FACTS, Findings, SpokenText
from elocution.measures.listener import build_listener
from elocution.rewards import load_reward
from elocution.rewards.base import FLOOR
from elocution.rewards.composite import CompositeReward, utility
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Score, Utterance, Voice

WORDS = {"fact": "wer", "weight": 0.6, "utility": "tanh", "scale": 3.0}
SOUND = {"fact": "nll", "weight": 0.4, "utility": "exp", "scale": 3.0}


def component(**settings: object) -> ComponentConfig:
    return ComponentConfig.model_validate(settings)


def rollout(audio: Audio | None, text: str = "the green house") -> Rollout:
    completion = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    outcome = Outcome.EMPTY if audio is None else Outcome.SPEECH
    return Rollout(Utterance("u", text), completion, np.arange(20)[:, None], audio, outcome)


class Broken:
    """A recogniser that fails on everything."""

    def transcribe(self, audio: Audio) -> str:
        raise RuntimeError("the recogniser is broken")


class LongText:
    """A reward of a user's own: letters of the text, and no number for a text with a zebra."""

    def __init__(self, config: RewardConfig) -> None:
        self.is_open = False

    def __enter__(self) -> "LongText":
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, rollouts: list[Rollout]) -> list[Score]:
        assert self.is_open
        texts = [rollout.utterance.text for rollout in rollouts]
        if texts == ["a horse"]:
            raise RuntimeError("horses are too much")
        return [Score(None, error="a zebra") if "zebra" in text else Score(float(len(text))) for text in texts]


class Scripted:
    """Answers with given findings instead of listening."""

    def __init__(self, *found: Findings | Exception) -> None:
        self.found, self.tasks = list(found), list[SpokenText]()

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, tasks: list[SpokenText]) -> list[Findings | Exception]:
        self.tasks += tasks
        return self.found[: len(tasks)]


def scores(found: Findings | Exception, **settings: object) -> Score:
    config = RewardConfig.model_validate({"type": "composite", **settings})
    clip = Audio(np.ones(100, dtype=np.float32), 16_000)
    with CompositeReward(config, pool=Scripted(found)) as reward:  # type: ignore[arg-type]
        return reward([rollout(clip)])[0]


@pytest.mark.parametrize(
    ("settings", "value", "expected"),
    [
        ({"utility": "tanh", "scale": 3.0}, 0.1, 1 - math.tanh(0.3)),
        ({"utility": "power", "scale": 12.0, "power": 1.5}, 0.25, math.exp(-1.5)),
        ({"utility": "exp", "scale": 3.0}, 1.5, math.exp(-0.5)),
        ({"utility": "linear", "low": 1.0, "high": 5.0}, 4.0, 0.75),
        ({"utility": "linear", "low": 1.0, "high": 5.0}, 9.0, 1.0),
        ({"utility": "linear", "low": 0.5, "high": 0.0}, 0.1, 0.8),
        ({"utility": "band", "low": 10.0, "high": 16.0, "scale": 4.0}, 12.0, 1.0),
        ({"utility": "band", "low": 10.0, "high": 16.0, "scale": 4.0}, 17.0, 0.75),
        ({"utility": "band", "low": 10.0, "high": 16.0, "scale": 4.0}, 5.0, 0.0),
    ],
)
def test_utilities_by_hand(settings: dict[str, object], value: float, expected: float) -> None:
    assert utility(component(fact="wer", **settings), value) == pytest.approx(expected)


def test_combinations_by_hand() -> None:
    found = Findings({"wer": 0.1, "nll": 1.0}, transcript="the green horse")
    parts = {"words": WORDS, "sound": SOUND}
    words, sound = 1 - math.tanh(0.3), math.exp(-1 / 3)
    harmonic = scores(found, components=parts)
    assert harmonic.value == pytest.approx(1 / (0.6 / words + 0.4 / sound))
    assert harmonic.parts == pytest.approx({"words": words, "sound": sound})
    assert scores(found, components=parts, combine="sum").value == pytest.approx(0.6 * words + 0.4 * sound)
    gated = scores(found, components={"sound": SOUND}, combine="sum", gate_beta=10.0)
    assert gated.value == pytest.approx(sound * math.exp(-1))


def test_s16_a_part_that_was_not_measured_leaves_the_completion_out_or_is_left_out_itself() -> None:
    found = Findings({"wer": 0.0}, {"nll": "RuntimeError: broken"}, "the green house")
    parts = {"words": WORDS, "sound": SOUND}
    dropped = scores(found, components=parts)
    assert dropped.value is None
    assert dropped.error == "not measured: nll: RuntimeError: broken"
    assert scores(found, components=parts, on_missing="renormalize").value == 1.0
    nothing = Findings({}, {"wer": "down", "nll": "down"})
    assert scores(nothing, components=parts, on_missing="renormalize").value is None
    constraints = {"pitch": {"fact": "f0_spread"}}
    assert scores(Findings({"wer": 0.0}), components={"words": WORDS}, constraints=constraints).value is None
    lenient = {"components": {"words": WORDS}, "constraints": constraints, "on_missing": "renormalize"}
    assert scores(Findings({"wer": 0.0}), **lenient).value == 1.0
    ungated = scores(Findings({"nll": 1.0}, {"wer": "down"}), components={"sound": SOUND}, gate_beta=10.0)
    assert ungated.value is None


def test_s02_a_scorer_that_failed_is_no_number_and_s01_silence_is_the_floor() -> None:
    parts = {"words": WORDS}
    assert scores(RuntimeError("down"), components=parts).error == "RuntimeError: down"
    heard_nothing = scores(Findings({"wer": 1.0}, transcript=""), components=parts)
    assert heard_nothing.value == FLOOR
    assert heard_nothing.parts == {"words": FLOOR}


def test_s14_clips_that_are_the_same_object_are_listened_to_once() -> None:
    clip = Audio(np.ones(100, dtype=np.float32), 16_000)
    pool = Scripted(Findings({"wer": 0.0}, transcript="a"))
    config = RewardConfig.model_validate({"type": "composite", "components": {"words": WORDS}})
    with CompositeReward(config, pool=pool) as reward:  # type: ignore[arg-type]
        assert [score.value for score in reward([rollout(clip), rollout(None), rollout(clip)])] == [1.0, FLOOR, 1.0]
    assert len(pool.tasks) == 1


def test_a_reward_of_ones_own_is_a_part_beside_the_measures_in_the_scoring_processes(spoken: dict[str, Audio]) -> None:
    own = {"fact": f"{__name__}:LongText", "weight": 1.0, "utility": "linear", "high": 20.0}
    words = {"fact": "wer", "weight": 3.0, "utility": "tanh"}
    config = RewardConfig.model_validate(
        {"type": "composite", "combine": "sum", "workers": 1, "components": {"words": words, "long": own}}
    )
    clip = spoken["nine nine seven one"]
    with load_reward(config) as reward:
        right, zebra, horse = reward([rollout(clip, text) for text in ("nine nine seven one", "a zebra", "a horse")])
    assert right.parts == {"words": 1.0, "long": 0.95}  # 19 letters of 20
    assert right.value == pytest.approx(0.75 + 0.25 * 0.95)
    assert right.raw[f"{__name__}:LongText"] == 19.0
    assert zebra.error == f"not measured: {__name__}:LongText: a zebra"
    assert "LongText failed: RuntimeError: horses are too much" in str(horse.error)


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("no_such_module:Reward", "cannot import the reward 'no_such_module:Reward'"),
        ("builtins:dict", "'builtins:dict' cannot be a reward: it has no __enter__, __exit__"),
    ],
)
def test_a_part_that_is_no_reward_is_found_before_any_work(fact: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scores(Findings({}), components={"mine": {"fact": fact, "utility": "linear"}})


def test_a_measure_that_does_not_exist_no_component_and_an_empty_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="no measure wre; known are wer"):
        scores(Findings({}), components={"words": WORDS | {"fact": "wre"}})
    with pytest.raises(ConfigError, match="at least one"):
        CompositeReward(RewardConfig(type="composite"))
    for settings in ({"utility": "band", "low": 2.0}, {"utility": "linear", "low": 1.0}):
        with pytest.raises(ValidationError, match="leave nothing between them"):
            component(fact="wer", **settings)


def test_components_are_sections_of_the_config_and_can_be_set() -> None:
    config = load_config(
        None,
        [
            "reward.type=composite",
            'reward.components={words = {fact = "wer", utility = "tanh", scale = 3.0}}',
        ],
    )
    assert config.reward.components["words"].scale == 3.0


def test_one_listener_finds_every_fact_of_real_speech(spoken: dict[str, Audio]) -> None:
    sources = ("recogniser", "phonemes", "prosody", "codes", "clip")
    always = [name for name, fact in FACTS.items() if fact.by in sources and name != "no_speech_probability"]
    listen = build_listener(always, RewardConfig())
    for text, clip in list(spoken.items())[:3]:
        found = listen(SpokenText(clip, text, "en", np.arange(30)[:, None]))
        assert list(found.facts) == always
        assert found.transcript == text
        assert found.facts["wer"] == found.facts["cer"] == found.facts["pinyin_error_rate"] == 0
        assert not found.failures


def test_s09_a_measure_that_fails_leaves_the_others_standing(spoken: dict[str, Audio]) -> None:
    text, clip = next(iter(spoken.items()))
    listen = build_listener(["wer", "nll", "f0_hz"], RewardConfig(asr=f"{__name__}:Broken"))
    found = listen(SpokenText(clip, text, "en", np.zeros((1, 1), np.int64)))
    assert found.facts.keys() == {"nll", "f0_hz"}
    assert "broken" in found.failures["wer"]


def test_s21_a_text_that_cannot_be_compared_leaves_the_other_measures_standing(spoken: dict[str, Audio]) -> None:
    listen = build_listener(["wer", "cer", "f0_hz"], RewardConfig())
    found = listen(SpokenText(next(iter(spoken.values())), "∫ f", "en", np.zeros((0, 1), np.int64)))
    assert found.facts.keys() == {"f0_hz"}
    assert "no reading for '∫'" in found.failures["wer"] == found.failures["cer"]


def test_what_a_clip_has_nothing_of_is_absent_with_a_reason() -> None:
    listen = build_listener(["f0_hz", "rate"], RewardConfig())
    found = listen(SpokenText(Audio(np.zeros(16_000, np.float32), 16_000), "a", "en", np.zeros((1, 1), np.int64)))
    assert found.facts == {}
    assert set(found.failures) == {"f0_hz", "rate"}


class Level:
    """A speaker encoder that knows voices by their level; fails where a clip is louder than 0.9."""

    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        levels = np.array([float(clip.samples[0]) for clip in clips])
        if (levels > 0.9).any():
            raise ValueError("too loud")
        return np.stack([np.cos(levels), np.sin(levels)], axis=1).astype(np.float32)


def recorded(audio: Path | bytes | None) -> Voice:
    return Voice("v", "a", np.zeros((1, 1), np.int64), audio)


def test_s09_a_voice_is_compared_with_its_own_reference_and_one_that_fails_is_missing_alone(tmp_path: Path) -> None:
    level = {
        name: Audio(np.full(16_000, value, np.float32), 16_000) for name, value in (("a", 0.1), ("b", 0.6), ("c", 0.95))
    }
    for name in ("a", "b"):
        write_wav(tmp_path / f"{name}.wav", level[name])
    listen = build_listener(["speaker_similarity"], RewardConfig(speaker=f"{__name__}:Level"))
    found = listen.together(
        [
            SpokenText(level[name], "one", "en", np.zeros((0, 1), np.int64), voice)
            for name, voice in (
                ("a", recorded(tmp_path / "a.wav")),
                ("a", recorded((tmp_path / "b.wav").read_bytes())),
                ("c", recorded(tmp_path / "a.wav")),
                ("b", recorded(None)),
                ("b", None),
            )
        ]
    )
    assert [one.facts.get("speaker_similarity") for one in found] == [
        pytest.approx(1.0, abs=1e-4),
        pytest.approx(math.cos(0.5), abs=1e-4),
        None,
        None,
        None,
    ]
    assert "too loud" in found[2].failures["speaker_similarity"]
    assert all("no prompt_audio" in one.failures["speaker_similarity"] for one in found[3:])


def test_what_the_prompt_wants_reaches_the_listener() -> None:
    pool = Scripted(Findings({"speaker_similarity": 0.5}))
    config = RewardConfig.model_validate(
        {"type": "composite", "components": {"voice": {"fact": "speaker_similarity", "utility": "linear"}}}
    )
    wanted = rollout(Audio(np.ones(100, np.float32), 16_000))
    voice = recorded(Path("a.wav"))
    wanted = replace(wanted, utterance=replace(wanted.utterance, voice=voice, description="calm"))
    with CompositeReward(config, pool=pool) as reward:  # type: ignore[arg-type]
        (score,) = reward([wanted])
    assert score.value == 0.5
    assert (pool.tasks[0].voice, pool.tasks[0].description) == (voice, "calm")


def test_phonemes_and_length_are_rewards_over_real_processes_and_keep_their_edits(spoken: dict[str, Audio]) -> None:
    config = RewardConfig.model_validate(
        {
            "type": "composite",
            "combine": "sum",
            "workers": 1,
            "expected_rate": {"en": 14.0},
            "components": {
                "sounds": {"fact": "phoneme_error_rate", "weight": 3.0, "utility": "tanh", "scale": 3.0},
                "length": {"fact": "duration_ratio", "utility": "band", "low": 0.6, "high": 1.5, "scale": 0.5},
            },
            "constraints": {"pace": {"fact": "duration_ratio", "keep": "at_most", "share": 1.2}},
        }
    )
    texts, clips = list(spoken), list(spoken.values())
    with load_reward(config) as reward:
        right, wrong, long = reward(
            [
                rollout(clips[0], texts[0]),
                rollout(clips[0], texts[1]),
                rollout(Audio(np.concatenate([clips[0].samples] * 3), clips[0].sample_rate), texts[0]),
            ]
        )
        metrics = reward.state.advance([right])
    assert right.value == pytest.approx(1.0)
    assert right.raw["phoneme_error_rate/reference_units"] == 14
    assert wrong.parts["sounds"] < 0.05
    assert long.raw["phoneme_error_rate/insertions"] == pytest.approx(28, abs=3)
    assert long.parts["length"] == 0
    assert long.raw["duration_ratio"] > 2.5 * right.raw["duration_ratio"]
    assert metrics["constraint/pace_mean"] == right.raw["duration_ratio"]


def test_a_likelihood_that_counts_no_phonemes_gives_no_phoneme_error_rate(spoken: dict[str, Audio]) -> None:
    text, clip = next(iter(spoken.items()))
    listen = build_listener(["phoneme_error_rate"], RewardConfig(nll=f"{__name__}:Sure"))
    found = listen(SpokenText(clip, text, "en", np.zeros((0, 1), np.int64)))
    assert found.facts == {}
    assert "hama counts phonemes" in found.failures["phoneme_error_rate"]


@pytest.mark.parametrize(("accepts", "rate"), [(False, 0.5), (True, 0.0)])
def test_s19_another_reading_of_a_character_is_right_where_the_config_accepts_it(
    accepts: bool, rate: float, spoken: dict[str, Audio]
) -> None:
    config = RewardConfig(asr=f"{__name__}:HearsHang", polyphones=accepts)
    listen = build_listener(["pinyin_error_rate", "wer"], config)
    found = listen(SpokenText(next(iter(spoken.values())), "行走", "zh", np.zeros((0, 1), np.int64)))
    assert found.facts == {"pinyin_error_rate": rate, "wer": 0.5}


class HearsHang:
    """A recogniser that takes a character for another that sounds like a further reading of it."""

    def transcribe(self, audio: Audio) -> str:
        return "航走"


class Sure:
    """A likelihood in tokens."""

    def score(self, audio: Audio, text: str) -> Likelihood:
        return Likelihood(0.1, num_wanted=9, num_heard=9)
