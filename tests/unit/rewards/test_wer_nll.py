"""The harmonic reward with scripted recognisers: the formula, and what stands where a number must not."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from elocution.config.tree import RewardConfig
from elocution.measures import Likelihood
from elocution.measures.compare import compare_by
from elocution.measures.error_rates import EditCounts
from elocution.rewards.base import FLOOR, Known, StreamingReward
from elocution.rewards.wer_nll import Heard, SaidText, WerNllReward, WordListener, harmonic_reward, judge
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Score, Utterance

reward = partial(harmonic_reward, alpha_wer=3.0, alpha_nll=3.0, lambda_wer=0.6, lambda_nll=0.4)


class InlinePool:
    """Stands in for the worker processes: calls `score` here, failures becoming values; counts the calls."""

    def __init__(self, score: Callable[[SaidText], Heard]) -> None:
        self.score, self.tasks = score, list[SaidText]()

    def __enter__(self) -> "InlinePool":
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, tasks: Sequence[SaidText]) -> list[Any]:
        self.tasks += tasks
        return [self._one(task) for task in tasks]

    def submit(self, task: SaidText) -> Known[Any]:
        return Known(self.map([task])[0])

    def _one(self, task: SaidText) -> Heard | Exception:
        try:
            return self.score(task)
        except RuntimeError as error:
            return error


def _clip(value: float, duration_s: float = 0.5) -> Audio:
    return Audio(np.full(round(16_000 * duration_s), value, np.float32), 16_000)


def _rollout(audio: Audio | None, outcome: Outcome = Outcome.SPEECH, text: str = "The green house.") -> Rollout:
    completion = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    return Rollout(Utterance("u", text), completion, np.zeros((1, 1), np.int64), audio, outcome)


def _scores(rollouts: Sequence[Rollout], pool: InlinePool) -> list[Score]:
    with WerNllReward(RewardConfig(), pool=pool) as scorer:  # type: ignore[arg-type]
        return scorer(rollouts)


@pytest.mark.parametrize(
    ("wer", "nll", "value"),
    [
        # Worked out by hand from 1 - tanh(3 WER) and exp(-NLL / 3), weights 0.6 and 0.4.
        (0.0, 0.0, 1.0),
        (0.0, 0.5, 0.932),
        (0.0, 1.0, 0.863),
        (0.0, 2.0, 0.725),
        (0.1, 1.0, 0.712),
        (0.5, 1.0, 0.145),
        (1.0, 3.0, 0.008),
    ],
)
def test_published_values(wer: float, nll: float, value: float) -> None:
    assert reward(wer, nll) == pytest.approx(value, abs=5e-4)


def test_the_weights_move_the_mean_towards_their_utility() -> None:
    # Utilities 1 and exp(-1): equal weights give 2 / (1 + e), WER alone would give 1.
    even = harmonic_reward(0.0, 3.0, alpha_wer=3, alpha_nll=3, lambda_wer=0.5, lambda_nll=0.5)
    assert even == pytest.approx(1 / (0.5 + 0.5 * math.e))
    assert harmonic_reward(0.0, 3.0, alpha_wer=3, alpha_nll=3, lambda_wer=0.9, lambda_nll=0.1) > even


def test_more_errors_and_less_likely_sound_never_pay() -> None:
    grid = np.array([[reward(wer, nll) for nll in (0, 0.1, 1, 3, 10, math.inf)] for wer in (0, 0.1, 0.3, 1, 2)])
    assert (np.diff(grid, axis=0) <= 0).all()
    assert (np.diff(grid, axis=1) <= 0).all()
    assert ((grid >= 0) & (grid <= 1)).all()


def test_scores_keep_the_order_of_the_rollouts_whatever_their_length() -> None:
    def hear(task: SaidText) -> Heard:
        return Heard("the green house", wer=float(task[0].samples[0]), nll=0.0)

    clips = [_clip(value, length) for value, length in ((0.1, 0.2), (0.3, 0.9), (0.2, 0.4), (0.0, 0.6))]
    pool = InlinePool(hear)
    scores = _scores([_rollout(clip) for clip in clips], pool)
    assert [score.raw["wer"] for score in scores] == pytest.approx([0.1, 0.3, 0.2, 0.0])
    assert [audio.duration_s for audio, _, _ in pool.tasks] == [0.9, 0.6, 0.4, 0.2]


def test_s10_clips_that_share_audio_and_text_are_listened_to_once() -> None:
    clip = _clip(0.1)
    pool = InlinePool(lambda task: Heard(task[1], wer=0.0, nll=float(len(task[1]))))
    scores = _scores([_rollout(clip), _rollout(clip), _rollout(clip, text="black house")], pool)
    assert len(pool.tasks) == 2
    assert scores[0] == scores[1]
    assert scores[2].transcript == "black house"


@pytest.mark.parametrize("outcome", [Outcome.EMPTY, Outcome.SILENT, Outcome.RUNAWAY])
def test_s01_s07_what_is_no_speech_takes_the_floor_unheard(outcome: Outcome) -> None:
    pool = InlinePool(lambda task: Heard("the green house", 0.0, 0.0))
    (score,) = _scores([_rollout(None if outcome is Outcome.EMPTY else _clip(0.1), outcome)], pool)
    assert score == Score(
        value=FLOOR, raw={"wer": 1.0, "empty_transcript": 1.0}, transcript="", parts={"wer": 0.0, "nll": 0.0}
    )
    assert pool.tasks == []


def test_s01_an_empty_transcript_takes_the_floor_and_is_flagged() -> None:
    (score,) = _scores([_rollout(_clip(0.1))], InlinePool(lambda task: Heard("", wer=1.0, nll=0.1)))
    assert score.value == FLOOR
    assert score.raw == {"wer": 1.0, "nll": 0.1, "empty_transcript": 1.0}
    assert reward(2.0, 20.0) > FLOOR


def test_s02_s16_a_failure_is_a_reason_and_leaves_the_others_alone() -> None:
    def hear(task: SaidText) -> Heard:
        if task[0].samples[0] > 0.15:
            raise RuntimeError("out of memory")
        return Heard("the green house", 0.0, 0.0)

    scores = _scores([_rollout(_clip(value)) for value in (0.1, 0.2, 0.1)], InlinePool(hear))
    assert [score.value for score in scores] == [1.0, None, 1.0]
    assert scores[1].error == "RuntimeError: out of memory"
    assert scores[1].raw == {}


@pytest.mark.parametrize(("wer", "nll"), [(math.nan, 0.1), (0.1, math.nan)])
def test_s02_nan_is_a_failure(wer: float, nll: float) -> None:
    (score,) = _scores([_rollout(_clip(0.1))], InlinePool(lambda task: Heard("the", wer, nll)))
    assert score.value is None
    assert "NaN" in str(score.error)


def test_an_infinite_likelihood_counts_but_is_no_measure() -> None:
    (score,) = _scores([_rollout(_clip(0.1))], InlinePool(lambda task: Heard("the", 0.5, math.inf)))
    assert score.value == pytest.approx(0.0, abs=1e-6)
    assert score.raw == {"wer": 0.5}


def test_speech_without_audio_is_not_the_policys_fault() -> None:
    (score,) = _scores([_rollout(None)], InlinePool(lambda task: Heard("the", 0.0, 0.0)))
    assert score.value is None


NINE_OF_TEN = Likelihood(0.5, num_wanted=10, num_heard=9)


def test_the_transcript_is_normalised_like_the_text() -> None:
    heard = judge("the green house", "en", "The [noise] green, HOUSE", NINE_OF_TEN)
    assert heard == Heard("the green house", 0.0, 0.5, EditCounts(0, 0, 0, reference_units=3))


def test_s06_words_found_where_no_phoneme_is_are_not_a_transcript() -> None:
    heard = judge("the green house", "en", "thank you for watching", Likelihood(0.5, num_wanted=10, num_heard=1))
    assert heard == Heard("", 1.0, 0.5, EditCounts(0, deletions=3, insertions=0, reference_units=3))


class Hallucinates:
    """Hears the same words in everything, as recognisers do in noise."""

    def transcribe(self, audio: Audio) -> str:
        return "the green house"

    def score(self, audio: Audio, text: str) -> Likelihood:
        return NINE_OF_TEN


def test_s06_what_has_no_voice_takes_the_floor_whatever_is_heard_in_it(spoken: dict[str, Audio]) -> None:
    noise = Audio(np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32), 16_000)
    hum = Audio((0.3 * np.sin(2 * np.pi * 100 * np.arange(32_000) / 16_000)).astype(np.float32), 16_000)
    name = f"{__name__}:Hallucinates"
    for required, values in ((False, [1, 1, 1]), (True, [0, 0, 1])):
        listen = WordListener(RewardConfig(asr=name, nll=name, require_speech=required))
        heard = listen.together([(clip, "the green house", "en") for clip in (noise, hum, next(iter(spoken.values())))])
        assert [int(one.transcript == "the green house") for one in heard] == values


def test_a_text_is_read_in_the_language_of_its_utterance() -> None:
    """ "21" is "einundzwanzig" in German; read as English, not a word of it was said."""
    assert judge("21", "de", "einundzwanzig", NINE_OF_TEN).wer == 0
    assert judge("21", "en", "einundzwanzig", NINE_OF_TEN).wer >= 1
    pool = InlinePool(lambda task: Heard("a", wer=0.0, nll=0.5))
    with WerNllReward(RewardConfig(), pool=pool) as scorer:  # type: ignore[arg-type]
        clip = _clip(0.1)
        scorer([replace(_rollout(clip), utterance=Utterance("u", "21", language)) for language in ("de", "en", "de")])
    assert [language for _, _, language in pool.tasks] == ["de", "en"]


def test_the_parts_of_a_score_are_its_two_utilities() -> None:
    (score,) = _scores([_rollout(_clip(0.1))], InlinePool(lambda task: Heard("a", wer=0.25, nll=1.5)))
    assert score.parts == pytest.approx({"wer": 1 - math.tanh(0.75), "nll": math.exp(-0.5)})
    assert score.value == pytest.approx(1 / (0.6 / score.parts["wer"] + 0.4 / score.parts["nll"]))


def test_a_rollout_scores_the_same_alone_and_in_a_batch() -> None:
    def hear(task: SaidText) -> Heard:
        if task[0].samples[0] > 0.15:
            raise RuntimeError("out of memory")
        return Heard("the green house", 0.25, 1.5)

    rollouts = [_rollout(_clip(0.1)), _rollout(_clip(0.2)), _rollout(None, Outcome.EMPTY), _rollout(None)]
    with WerNllReward(RewardConfig(), pool=InlinePool(hear)) as scorer:  # type: ignore[arg-type]
        assert isinstance(scorer, StreamingReward)
        pending = [scorer.start(rollout) for rollout in rollouts]
        assert all(one.wait(0) for one in pending)
        assert [one.result() for one in pending] == scorer(rollouts)


@pytest.mark.parametrize(
    ("metric", "normalizer", "rate"),
    [("wer", "spoken", 0.0), ("cer", "spoken", 0.0), ("wer", "seed_tts", 0.5)],
)
def test_s18_a_reward_counts_in_its_metric_by_its_normalizer(metric: str, normalizer: str, rate: float) -> None:
    compared = partial(compare_by, metric, normalizer)
    assert judge("50 turns", "en", "fifty turns", NINE_OF_TEN, compared=compared).wer == rate


def test_letters_are_fewer_wrong_than_words() -> None:
    assert compare_by("wer", "spoken", "the house", "the horse", "en").counts.rate == 0.5
    assert compare_by("cer", "spoken", "the house", "the horse", "en").counts.rate == 1 / 8


@pytest.mark.parametrize(("accepts", "rate"), [(False, 0.5), (True, 0.0)])
def test_s19_another_reading_of_a_character_is_right_where_it_is_accepted(accepts: bool, rate: float) -> None:
    compared = partial(compare_by, "pinyin", "spoken", polyphones=accepts)
    assert judge("行走", "zh", "航走", NINE_OF_TEN, compared=compared).wer == rate
