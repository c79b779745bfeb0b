"""silero-vad and the quality models, with their own weights; skipped where a package is absent."""

import importlib.util

import numpy as np
import pytest
import torch

from elocution.config.tree import RewardConfig
from elocution.errors import MissingDependency
from elocution.measures.facts import FACTS, SpokenText
from elocution.measures.listener import build_listener
from elocution.measures.voice_activity import VoiceActivity, voice_shares
from elocution.types import Audio

RATE = 16_000
TIME = np.arange(2 * RATE) / RATE
NO_SPEECH = {
    "silence": np.zeros(2 * RATE),
    "noise": np.random.default_rng(0).normal(0, 0.1, 2 * RATE),
    "hum": 0.3 * np.sin(2 * np.pi * 50 * TIME),
    "tone": 0.3 * np.sin(2 * np.pi * 440 * TIME),
}
PACKAGES = {"voice": "silero_vad", "distillmos": "distillmos", "dnsmos": "speechmos", "speaker": "resemblyzer"}


def need(source: str) -> None:
    if importlib.util.find_spec(PACKAGES[source]) is None:
        pytest.skip(f"needs {PACKAGES[source]}; docs/rewards.md says how to install it")


def facts_of(audio: Audio, source: str, text: str = "one") -> dict[str, float]:
    listen = build_listener([name for name, fact in FACTS.items() if fact.by == source], RewardConfig())
    return dict(listen(SpokenText(audio, text, "en", np.zeros((0, 1), np.int64))).facts)


def test_shares_by_hand() -> None:
    assert voice_shares([], 100) == VoiceActivity(0.0, 0.0)
    assert voice_shares([(10, 30), (50, 60), (60, 80)], 100) == VoiceActivity(0.5, 0.2)


@pytest.mark.parametrize("name", NO_SPEECH)
def test_s06_silence_noise_hum_and_a_tone_are_no_speech(name: str) -> None:
    need("voice")
    found = facts_of(Audio(NO_SPEECH[name].astype(np.float32), RATE), "voice")
    assert found == {"speech_share": 0.0, "speech_pause_share": 0.0}


def test_speech_is_found_with_its_pause_and_threads_stay_as_they_were(spoken: dict[str, Audio]) -> None:
    need("voice")
    threads = torch.get_num_threads()
    one, other = list(spoken.values())[:2]
    gap = np.zeros(RATE, np.float32)
    found = facts_of(Audio(np.concatenate([one.samples, gap, other.samples]), RATE), "voice")
    length = one.duration_s + 1 + other.duration_s
    assert found["speech_pause_share"] * length == pytest.approx(1.0, abs=0.35)
    assert found["speech_share"] > 0.5
    assert torch.get_num_threads() == threads
    assert facts_of(Audio(one.samples[:100], RATE), "voice")["speech_share"] == 0


def test_s06_where_the_detector_hears_no_speech_nothing_was_said_whatever_the_recogniser_makes_of_it() -> None:
    need("voice")
    listen = build_listener(["f0_hz", "wer"], RewardConfig(require_speech=True, asr=f"{__name__}:Invents"))
    audio = Audio(NO_SPEECH["noise"].astype(np.float32), RATE)
    found = listen(SpokenText(audio, "the green house", "en", np.zeros((0, 1), np.int64)))
    assert found.transcript == ""
    assert found.facts["wer"] == 1.0


class Invents:
    """A recogniser that always hears the text."""

    def transcribe(self, audio: Audio) -> str:
        return "the green house"


@pytest.mark.parametrize(("source", "fact"), [("distillmos", "distillmos"), ("dnsmos", "dnsmos")])
def test_noise_lowers_the_predicted_quality_and_silence_has_none(
    source: str, fact: str, spoken: dict[str, Audio]
) -> None:
    need(source)
    clip = next(iter(spoken.values()))
    noise = np.random.default_rng(0).normal(0, float(np.std(clip.samples)) / 3, len(clip.samples))
    clean = facts_of(clip, source)[fact]
    assert 1 <= facts_of(Audio((clip.samples + noise).astype(np.float32), RATE), source)[fact] < clean - 0.2 <= 5
    assert facts_of(Audio(np.zeros(RATE, np.float32), RATE), source) == {}


@pytest.mark.parametrize("source", PACKAGES)
def test_a_missing_package_says_how_to_install_it(source: str) -> None:
    if importlib.util.find_spec(PACKAGES[source]) is not None:
        pytest.skip(f"{PACKAGES[source]} is installed")
    with pytest.raises(MissingDependency, match=r"pip install 'elocution\[measures\]'"):
        build_listener([next(name for name, fact in FACTS.items() if fact.by == source)], RewardConfig())
