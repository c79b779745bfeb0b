"""What stands before the recognisers: silence, noise and hum cost none of them a clip, and speech passes."""

from collections.abc import Sequence

import numpy as np
import pytest

from elocution.config.rewards import RewardConfig
from elocution.measures.base import Likelihood
from elocution.measures.facts import SpokenText
from elocution.measures.hearing import HeardClip, build_hearing, hear_speech
from elocution.measures.listener import build_listener
from elocution.types import Audio

RATE = 16_000
TIME = np.arange(2 * RATE) / RATE
SILENCE = np.zeros(2 * RATE)
NO_SPEECH = [
    SILENCE,
    np.random.default_rng(0).normal(0, 0.1, 2 * RATE),
    0.3 * np.sin(2 * np.pi * 50 * TIME),
    0.3 * np.sin(2 * np.pi * 440 * TIME),
]


def asked(samples: np.ndarray, text: str = "the green house") -> SpokenText:
    return SpokenText(Audio(samples.astype(np.float32), RATE), text, "en", np.zeros((0, 1), np.int64))


class Counts:
    """A recogniser and likelihood that is sure of everything, and counts the clips that it was given."""

    clips = 0

    def transcribe(self, audio: Audio) -> str:
        Counts.clips += 1
        return "the green house"

    def score(self, audio: Audio, text: str) -> Likelihood:
        Counts.clips += 1
        return Likelihood(0.1, num_wanted=9, num_heard=9)


class Deaf:
    """A likelihood that hears no phoneme in anything."""

    def score(self, audio: Audio, text: str) -> Likelihood:
        return Likelihood(9.0, num_wanted=9, num_heard=0)


@pytest.fixture
def counted() -> type[Counts]:
    Counts.clips = 0
    return Counts


def test_s06_silence_noise_hum_and_a_tone_cost_no_recognition_and_speech_passes(
    counted: type[Counts], spoken: dict[str, Audio]
) -> None:
    speech = [SpokenText(audio, text, "en", np.zeros((0, 1), np.int64)) for text, audio in spoken.items()]
    name = f"{__name__}:Counts"
    listen = build_listener(["wer", "nll"], RewardConfig(asr=name, nll=name, require_speech=True))
    found = listen.together([*map(asked, NO_SPEECH), *speech])
    assert counted.clips == 2 * len(speech)
    assert [one.is_gated for one in found] == [True] * len(NO_SPEECH) + [False] * len(speech)
    for one in found[: len(NO_SPEECH)]:
        assert (one.transcript, one.facts) == ("", {"wer": 1.0})
        assert one.raw() == {
            "wer": 1.0,
            "gated": 1.0,
            "wer/substitutions": 0,
            "wer/deletions": 3,
            "wer/insertions": 0,
            "wer/reference_units": 3,
        }
        assert "no speech in the clip" in one.failures["nll"]


def test_s01_silence_costs_nothing_without_a_detector_either(counted: type[Counts]) -> None:
    name = f"{__name__}:Counts"
    found = build_listener(["wer", "nll"], RewardConfig(asr=name, nll=name)).together([asked(SILENCE)])
    assert (counted.clips, found[0].is_gated) == (0, True)


def test_s06_words_are_not_looked_for_where_no_phoneme_was_heard(counted: type[Counts]) -> None:
    hear = build_hearing(RewardConfig(asr=f"{__name__}:Counts", nll=f"{__name__}:Deaf"), words=True, likelihood=True)
    (heard,) = hear([asked(NO_SPEECH[1])])
    assert (counted.clips, heard.transcript, heard.is_gated) == (0, "", False)


def test_a_gate_leaves_the_others_in_their_places() -> None:
    def hear(clips: Sequence[SpokenText]) -> list[HeardClip]:
        return [HeardClip(clip.text, None) for clip in clips]

    clips = [asked(NO_SPEECH[1], text) for text in ("a", "b", "c", "d")]
    heard = hear_speech(hear, clips, [None, 0.0, 0.3, 0.0])
    assert [one.transcript for one in heard] == ["a", "", "c", ""]


def test_samples_that_are_no_numbers_are_a_failure_of_their_clip_and_no_silence() -> None:
    config = RewardConfig(asr=f"{__name__}:Counts", nll=f"{__name__}:Counts")
    broken, fine = build_listener(["wer", "nll"], config).together([asked(np.full(RATE, np.nan)), asked(NO_SPEECH[1])])
    assert broken.transcript is None
    assert broken.facts == {}
    assert all("not finite" in reason for reason in broken.failures.values())
    assert fine.facts == {"wer": 0.0, "nll": 0.1}
