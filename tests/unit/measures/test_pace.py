"""Seconds spoken against seconds expected, and where the expectation comes from."""

from pathlib import Path

import numpy as np
import pytest

from elocution.audio import write_wav
from elocution.config.rewards import RewardConfig
from elocution.measures.facts import Findings, SpokenText
from elocution.measures.listener import build_listener
from elocution.types import Audio, Voice

RATE = 16_000


def clip(seconds: float) -> Audio:
    """So much sound between half a second of silence and a second of it."""
    sound = 0.3 * np.sin(2 * np.pi * 200 * np.arange(round(seconds * RATE)) / RATE)
    return Audio(np.concatenate([np.zeros(RATE // 2), sound, np.zeros(RATE)]).astype(np.float32), RATE)


def found(config: RewardConfig, audio: Audio, text: str, voice: Voice | None = None) -> Findings:
    listen = build_listener(["duration_ratio", "expected_duration_s"], config)
    return listen(SpokenText(audio, text, "en", np.zeros((0, 1), np.int64), voice))


def test_s17_the_declared_rate_of_the_language_says_what_is_expected() -> None:
    config = RewardConfig(expected_rate={"en": 10.0, "zh": 4.0})
    one = found(config, clip(2.0), "it is ten words")  # 12 letters: 1.2 s
    assert one.facts == {
        "duration_ratio": pytest.approx(2.0 / 1.2, rel=0.02),
        "expected_duration_s": pytest.approx(1.2),
    }


def test_s17_a_longer_clip_of_the_same_text_has_a_higher_ratio() -> None:
    config = RewardConfig(expected_rate={"en": 10.0})
    ratios = [found(config, clip(seconds), "ten").facts["duration_ratio"] for seconds in (0.3, 0.6, 1.2)]
    assert ratios == sorted(ratios)
    assert ratios[2] == pytest.approx(4 * ratios[0], rel=0.1)


def test_without_a_declared_rate_the_voice_sets_the_pace(tmp_path: Path) -> None:
    write_wav(tmp_path / "voice.wav", clip(2.0))
    voice = Voice("v", "twenty letters in 2 s", np.zeros((0, 1), np.int64), tmp_path / "voice.wav")
    one = found(RewardConfig(), clip(1.0), "ten letters", voice)
    # Numbers count as they are read: "twenty letters in two s" has 19 letters in 2 s, and the text 10.
    assert one.facts["expected_duration_s"] == pytest.approx(2 * 10 / 19, rel=0.02)
    assert one.facts["duration_ratio"] == pytest.approx(1.0 / (2 * 10 / 19), rel=0.02)


@pytest.mark.parametrize("text", ["", None])
def test_without_either_there_is_no_expectation_and_the_reason_says_so(text: str | None, tmp_path: Path) -> None:
    write_wav(tmp_path / "voice.wav", clip(2.0))
    voice = None if text is None else Voice("v", text, np.zeros((0, 1), np.int64), tmp_path / "voice.wav")
    one = found(RewardConfig(expected_rate={"zh": 4.0}), clip(1.0), "ten", voice)
    assert one.facts == {}
    assert "reward.expected_rate has no 'en'" in one.failures["duration_ratio"]
