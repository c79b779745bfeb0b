import json
from pathlib import Path

import pytest

from elocution.report.run_reader import read_run
from elocution.report.summary import Summary, summarise_run
from elocution.testing.run_directory import read_rows, write_sample_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_sample_run(tmp_path / "run")
    return tmp_path / "run"


def summary_with(run: Path, **values: object) -> Summary:
    """The summary where the last evaluation has other `values`."""
    path = run / "evaluations.jsonl"
    rows = read_rows(path)
    rows[-1] |= values
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return summarise_run(read_run(run))


def test_the_interval_is_that_of_pairs(run: Path) -> None:
    # Half of the sentences lose three of their ten words' errors, the others keep them: 15 points on average, and a
    # share of halves of 256 has a standard error of 1/32, so the interval is 15 ± 1.96 * 30 / 32 points.
    rows = read_rows(run / "evaluations.jsonl")
    better = [[edits - 3 * (place % 2), units] for place, (edits, units) in enumerate(rows[0]["sentences"])]
    line = summary_with(run, sentences=better).lines[0]
    assert line.low == pytest.approx(-0.15 - 1.96 * 0.3 / 32, abs=0.003)
    assert line.high == pytest.approx(-0.15 + 1.96 * 0.3 / 32, abs=0.003)


def test_an_interval_that_holds_zero_shows_nothing(run: Path) -> None:
    mixed = [[edits + (-3 if place % 2 else 3), 10] for place, edits in enumerate([3] * 256)]
    found = summary_with(run, sentences=mixed)
    assert (found.verdict, found.tone) == ("No difference is shown.", "open")


def test_more_wrong_words_are_worse(run: Path) -> None:
    found = summary_with(run, sentences=[[5, 10]] * 256)
    assert (found.verdict, found.tone) == ("Worse: more words are wrong.", "bad")


def test_a_gain_with_a_fallen_guard_is_no_gain(run: Path) -> None:
    found = summary_with(run, monitors={"f0_spread": 1.0, "rate": 15.9, "no_speech_share": 0.0})
    assert found.verdict == "Not better: fewer words are wrong, but a guard fell (f0_spread)."


def test_a_clip_that_the_judge_failed_on_is_in_no_pair(run: Path) -> None:
    found = summary_with(run, sentences=[None, *[[0, 10]] * 255])
    assert found.tone == "good"


def test_records_without_the_edits_of_sentences_claim_nothing(run: Path) -> None:
    assert summary_with(run, sentences=[]).tone == "open"
