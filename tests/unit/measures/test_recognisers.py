"""Real recognisers on real clips: what they hear, what they reject, and that they remember nothing."""

import numpy as np
import pytest

from elocution.errors import ConfigError
from elocution.measures import TRANSCRIBERS, PhonemeScorer, Transcriber, load_phoneme_scorer, load_transcriber
from elocution.measures.error_rates import corpus_error_rate, word_error_rate
from elocution.measures.resample import samples_at
from elocution.types import Audio

RATE = 16_000
TIME = np.arange(round(1.5 * RATE)) / RATE


@pytest.fixture(scope="module", params=sorted(name for name in TRANSCRIBERS if name.startswith("pocketsphinx")))
def transcriber(request: pytest.FixtureRequest) -> Transcriber:
    return load_transcriber(request.param)


@pytest.fixture(scope="module")
def scorer() -> PhonemeScorer:
    return load_phoneme_scorer("hama")


def _audio(samples: np.ndarray) -> Audio:
    return Audio(samples.astype(np.float32), RATE)


def _noisy(audio: Audio, signal_to_noise_db: float) -> Audio:
    noise = np.random.default_rng(0).standard_normal(len(audio.samples))
    scale = np.sqrt((audio.samples**2).mean() / 10 ** (signal_to_noise_db / 10))
    return _audio(audio.samples + scale * noise)


def test_clear_speech_is_heard(transcriber: Transcriber, spoken: dict[str, Audio]) -> None:
    errors = [word_error_rate(text, transcriber.transcribe(clip)) for text, clip in spoken.items()]
    assert corpus_error_rate(errors) <= 0.05


def test_a_transcript_does_not_depend_on_the_clips_before_it(
    transcriber: Transcriber, spoken: dict[str, Audio]
) -> None:
    # Degraded clips lie near the decoder's decisions, where a trace of an earlier clip would show.
    clips = [_noisy(clip, 8) for clip in spoken.values()] + [_audio(clip.samples[::-1]) for clip in spoken.values()]
    first = [transcriber.transcribe(clip) for clip in clips]
    transcriber.transcribe(_audio(0.9 * np.random.default_rng(1).uniform(-1, 1, RATE)))
    shuffled = np.random.default_rng(2).permutation(len(clips))
    again = {int(index): transcriber.transcribe(clips[index]) for index in shuffled}
    assert [again[index] for index in range(len(clips))] == first


def test_reversed_speech_is_not_understood(transcriber: Transcriber, spoken: dict[str, Audio]) -> None:
    errors = [
        word_error_rate(text, transcriber.transcribe(_audio(clip.samples[::-1]))) for text, clip in spoken.items()
    ]
    assert corpus_error_rate(errors) >= 0.8


@pytest.mark.parametrize("duration_s", [0.0, 0.005, 0.03, 0.1])
def test_clips_shorter_than_a_word_are_survived(transcriber: Transcriber, duration_s: float) -> None:
    assert len(transcriber.transcribe(_audio(np.full(round(duration_s * RATE), 0.1))).split()) <= 1


def test_s80_other_sample_rates_are_heard_alike(transcriber: Transcriber, spoken: dict[str, Audio]) -> None:
    text, clip = next(iter(spoken.items()))
    assert transcriber.transcribe(Audio(samples_at(clip, 24_000), 24_000)) == text


def test_worse_speech_is_less_likely(scorer: PhonemeScorer, spoken: dict[str, Audio]) -> None:
    texts = list(spoken)
    means = [
        np.mean([scorer.score(clip, text).nll for text, clip in pairs])
        for pairs in (
            spoken.items(),
            [(text, _noisy(clip, 0)) for text, clip in spoken.items()],
            zip(texts[1:] + texts[:1], spoken.values(), strict=True),
        )
    ]
    original, noisy, wrong_text = means
    assert original < 0.5
    assert original < noisy < 3 < wrong_text


def test_words_that_the_pronouncer_spells_apart_are_not_punished(
    scorer: PhonemeScorer, spoken: dict[str, Audio]
) -> None:
    text = next(text for text in spoken if "natural" in text)
    assert scorer.score(spoken[text], text).nll < 1


def test_one_wrong_word_is_less_likely(scorer: PhonemeScorer, spoken: dict[str, Audio]) -> None:
    for text, clip in spoken.items():
        words = text.split()
        wrong = " ".join([*words[:-1], "government"])
        assert scorer.score(clip, wrong).nll > scorer.score(clip, text).nll + 0.5


def test_the_likelihood_does_not_depend_on_the_clips_before_it(scorer: PhonemeScorer, spoken: dict[str, Audio]) -> None:
    first = {text: scorer.score(clip, text) for text, clip in spoken.items()}
    again = {text: scorer.score(spoken[text], text) for text in reversed(spoken)}
    assert again == first


def test_a_clip_too_short_for_its_text_is_impossible(scorer: PhonemeScorer) -> None:
    likelihood = scorer.score(_audio(np.full(RATE // 20, 0.1)), "the beautiful mountain")
    assert likelihood.nll == np.inf
    assert not likelihood.is_speech


def test_a_text_without_phonemes_cannot_be_scored(scorer: PhonemeScorer) -> None:
    with pytest.raises(ValueError, match="no phoneme"):
        scorer.score(_audio(np.zeros(RATE)), " ")


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(2 * RATE),
        0.05 * np.random.default_rng(0).standard_normal(len(TIME)),
        0.2 * np.sin(2 * np.pi * 50 * TIME),
        0.3 * np.random.default_rng(1).standard_normal(len(TIME)) * np.sin(2 * np.pi * TIME / 1.5) ** 2,
        0.1 * sum(np.sin(2 * np.pi * pitch * TIME) for pitch in (262, 330, 392)),
        0.1 * np.random.default_rng(2).standard_normal(RATE // 10),
    ],
    ids=["silence", "white-noise", "hum", "breath", "chord", "tenth-of-a-second"],
)
def test_s06_what_is_not_speech_has_no_phonemes(scorer: PhonemeScorer, samples: np.ndarray) -> None:
    assert not scorer.score(_audio(samples), "the green house").is_speech


def test_speech_has_phonemes(scorer: PhonemeScorer, spoken: dict[str, Audio]) -> None:
    assert all(scorer.score(clip, text).is_speech for text, clip in spoken.items())


def test_an_unknown_recogniser_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'pocketsphinx-open'"):
        load_transcriber("pocketsphinx-opn")


def test_a_recogniser_of_ones_own_is_named_by_its_import_path() -> None:
    loaded = load_transcriber("elocution.measures.pocketsphinx:BigramTranscriber")
    assert type(loaded) is type(load_transcriber("pocketsphinx-bigram"))


def test_the_phonemes_of_clear_speech_are_all_heard_and_those_of_a_wrong_word_are_counted_by_kind(
    scorer: PhonemeScorer, spoken: dict[str, Audio]
) -> None:
    found = {text: scorer.score(clip, text).phonemes for text, clip in spoken.items()}
    assert corpus_error_rate([edits for edits in found.values() if edits]) <= 0.05
    likelihood = scorer.score(spoken["nine nine seven one"], "nine nine seven one one")
    # What the text has more than was said is deleted.
    assert likelihood.phonemes is not None
    one_more = likelihood.num_wanted - likelihood.num_heard
    assert one_more > 0
    assert (likelihood.phonemes.substitutions, likelihood.phonemes.deletions) == (0, one_more)


def test_s01_nothing_heard_deletes_every_phoneme(scorer: PhonemeScorer) -> None:
    edits = scorer.score(_audio(0.2 * np.sin(2 * np.pi * 50 * TIME)), "the green house").phonemes
    assert edits is not None
    assert edits.rate == 1
    assert edits.is_empty_hypothesis
