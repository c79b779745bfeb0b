"""The public protocol on transcripts that the public scorer scored, and what stands beside its mean."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elocution.errors import DataError
from elocution.eval.bootstrap import bootstrap_difference, bootstrap_ratio
from elocution.eval.clips import ClipResult, judge_transcript
from elocution.eval.metrics import METRICS, Table, tabulate
from elocution.eval.summary import published_percent, summarize
from elocution.measures.error_rates import EditCounts

ORACLE = Path(__file__).parents[2] / "data" / "oracles" / "seed_tts_scores.json"


def clip(
    name: str, text: str, transcript: str | None, *, seed: int = 0, language: str = "en", **more: Any
) -> ClipResult:
    strict, spoken = (None, None) if transcript is None else judge_transcript(text, transcript, language)
    return ClipResult(name, seed, text, language, transcript, seed_tts=strict, spoken=spoken, **more)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_public_scorers_numbers_come_out_to_the_digit_on_its_transcripts(language: str) -> None:
    oracle = json.loads(ORACLE.read_text(encoding="utf-8"))[language]
    rates = []
    for row in oracle["clips"]:
        # The scorer's own converter has been over these transcripts.
        strict, _ = judge_transcript(row["text"], row["simplified"], language, to_simplified=str)
        assert strict is not None
        assert strict.rate == row["wer"], row
        assert [strict.substitutions, strict.deletions, strict.insertions] == row["edits"]
        rates.append(strict.rate)
    assert published_percent(rates) == oracle["wer_percent"]
    assert published_percent([rate for rate in rates if rate <= 0.5]) == oracle["wer_below_half_percent"]
    assert sum(rate > 0.5 for rate in rates) == oracle["above_half"]


def test_opencc_differs_from_the_scorers_converter_in_regional_words_alone() -> None:
    rows = json.loads(ORACLE.read_text(encoding="utf-8"))["zh"]["clips"]
    different = [
        row["text"]
        for row in rows
        if judge_transcript(row["text"], row["transcript"], "zh")[0].rate != row["wer"]  # type: ignore[union-attr]
    ]
    assert different == ["網路上的軟體很多"]


def test_s18_s88_numbers_count_in_the_strict_protocol_and_not_beside_it() -> None:
    strict, spoken = judge_transcript("fifty turns", "50 turns", "en")
    assert (strict and strict.rate, spoken and spoken.rate) == (0.5, 0.0)


def test_languages_that_the_strict_protocol_does_not_know_have_the_spoken_one() -> None:
    strict, spoken = judge_transcript("zwei Häuser", "2 Häuser", "de")
    assert strict is None
    assert spoken == EditCounts(0, 0, 0, 2)
    assert judge_transcript("…", "a", "en") == (None, None)


def test_s39_two_runaways_move_the_mean_and_not_the_median() -> None:
    # 98 clips of ten words with one wrong in all, two that run on for 100 words: mean (0.1 + 2 * 10) / 100 = 20.1 %.
    ten = "a b c d e f g h i j"
    clips = [clip(f"{n}", ten, ten, hit_limit=False) for n in range(97)]
    clips.append(clip("97", ten, "x b c d e f g h i j", hit_limit=False))
    clips += [clip(f"{n}", ten, f"{ten} " + "x " * 100, hit_limit=True) for n in (98, 99)]
    found = summarize(clips, bootstrap_samples=200, seed=0)
    assert found["seed_tts"]["wer_percent"] == 20.1
    assert found["seed_tts"]["wer_below_half_percent"] == published_percent([0.0] * 97 + [0.1])
    assert found["seed_tts"]["median"] == 0
    assert found["seed_tts"]["above_half_share"] == 0.02
    assert found["metrics"]["hit_limit_share"]["value"] == 0.02
    assert found["metrics"]["wer"]["value"] == pytest.approx(201 / 1000)
    assert (found["spoken"]["substitutions"], found["spoken"]["insertions"]) == (1, 200)


def test_what_was_not_measured_is_left_out_and_counted() -> None:
    clips = [
        clip("a", "one", "one", facts={"rate": 10.0}),
        clip("a", "one", "two", seed=1, facts={"rate": 14.0}),
        clip("b", "three", None, error="the recogniser died"),
        clip("b", "three", "three", seed=1),
    ]
    found = summarize(clips, bootstrap_samples=200, seed=0)
    assert (found["clips"], found["scored"], found["seeds"]) == (4, 3, [0, 1])
    assert found["metrics"]["rate"]["value"] == 12
    assert found["metrics"]["rate"]["clips"] == 2
    assert found["metrics"]["wer"]["value"] == pytest.approx(1 / 3)
    assert "hit_limit_share" not in found["metrics"]
    assert found["seed_tts"]["wer_percent_by_seed"] == {"0": 0.0, "1": 50.0}
    nothing = summarize([clip("a", "one", None, error="down")], bootstrap_samples=200, seed=0)
    assert (nothing["scored"], nothing["metrics"], nothing["seed_tts"]["wer_percent"]) == (0, {}, None)


def test_rows_come_back_as_clips() -> None:
    one = clip("a", "one", "two", facts={"rate": 1.5}, outcome="speech", hit_limit=False)
    assert ClipResult.from_row(json.loads(json.dumps(one.row()))) == one
    with pytest.raises(DataError, match="of another kind"):
        ClipResult.from_row({"id": "a"})


def test_with_one_seed_the_interval_is_the_binomials_where_that_is_known() -> None:
    # 200 clips of one word, 60 wrong: normal approximation 0.3 -/+ 1.96 sqrt(0.3 * 0.7 / 200) = 0.236 … 0.364.
    table = Table(np.repeat([1.0, 0.0], [60, 140])[:, None], np.ones((200, 1)))
    low, high = bootstrap_ratio(table, samples=4000, seed=0)
    assert (low, high) == (pytest.approx(0.236, abs=0.01), pytest.approx(0.364, abs=0.01))


def test_the_noise_of_seeds_is_in_the_interval() -> None:
    # One utterance that comes out right or wrong by the toss of a coin: its utterances do not vary, its seeds do.
    table = Table(np.array([[0.0, 1.0, 0.0, 1.0]]), np.ones((1, 4)))
    low, high = bootstrap_ratio(table, samples=2000, seed=0)
    assert low == 0
    assert high == 1


def test_pairs_take_the_difficulty_of_utterances_out_of_a_difference() -> None:
    # Rates differ much between utterances, and by exactly 0.1 between the two sides.
    rates = np.linspace(0.1, 0.8, 40)[:, None] * np.ones((1, 3))
    one, other = Table(rates, np.ones((40, 3))), Table(rates - 0.1, np.ones((40, 3)))
    low, high = bootstrap_difference(one, other, samples=500, seed=1)
    assert (low, high) == (pytest.approx(-0.1), pytest.approx(-0.1))
    assert bootstrap_ratio(one, samples=500, seed=1)[1] - bootstrap_ratio(one, samples=500, seed=1)[0] > 0.1
    with pytest.raises(ValueError, match="40 utterances cannot be paired with 3"):
        bootstrap_difference(one, Table(rates[:3], np.ones((3, 3))), samples=10, seed=0)


def test_clips_without_the_metric_weigh_nothing() -> None:
    clips = [clip("a", "one", "one", facts={"rate": 10.0}), clip("b", "one", "one")]
    table = tabulate(clips, METRICS["rate"], ["a", "b"], [0])
    assert table.value == 10
    assert bootstrap_ratio(table, samples=200, seed=0) == (10, 10)
    with pytest.raises(ValueError, match="at least one clip"):
        bootstrap_ratio(tabulate(clips, METRICS["nll"], ["a", "b"], [0]), samples=10, seed=0)
