import json
from pathlib import Path

import pytest

from elocution.eval.clips import ClipResult
from elocution.eval.folder import EvaluationFolder
from elocution.measures.error_rates import EditCounts
from elocution.report.page import write_report
from elocution.report.run_reader import read_run
from elocution.report.summary import Summary, summarise_run, summarise_sweeps
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


def write_sweep(run: Path, *, best: int | None, **changed: float) -> None:
    """A sweep in which every item of ten words has 3 wrong by the base model and 1 by step 6, which has `changed` facts."""
    folder = run / "evaluations" / "held_out"
    plan = {
        "set": {"name": "held_out", "digest": "d"},
        "recogniser": {"name": "judge"},
        "normalizers": {},
        "measures": {},
        "sampler": {"temperature": 1.0},
        "seeds": [0, 1, 2],
    }
    for name, errors, facts in (("base", 3, {"rate": 12.0, "f0_spread": 3.0}), ("step_6", 1, changed)):
        clips = [
            ClipResult(f"i{item}", seed, "text", "en", "heard", spoken=EditCounts(errors, 0, 0, 10), facts=facts)
            for item in range(20)
            for seed in range(3)
        ]
        with EvaluationFolder(folder / name, plan) as evaluation:
            evaluation.finish(clips, {"plan": plan})
    (folder / "sweep.json").write_text(json.dumps({"best": best}))


def test_a_sweep_is_told_beneath_the_run_with_its_seeds_and_verdict(run: Path) -> None:
    write_sweep(run, best=6, rate=12.0, f0_spread=3.0)
    [found] = summarise_sweeps(read_run(run))
    assert (found.verdict, found.tone) == ("Better.", "good")
    assert found.basis.startswith("Step 6 against the base model on 20 items of held_out, 3 seeds;")
    wer = next(line for line in found.lines if line.name == "wer")
    assert (wer.before, wer.after, wer.low, wer.high) == pytest.approx((0.3, 0.1, -0.2, -0.2))
    page = write_report(run).read_text()
    assert page.index("Held-out sentences, within the run") < page.index("Evaluation on held_out")
    assert "30.0 % before, 10.0 % after: −20.0 points, 95 % interval −20.0 points to −20.0 points." in page


def test_a_sweep_whose_best_paid_with_its_pitch_is_no_gain(run: Path) -> None:
    write_sweep(run, best=6, rate=12.0, f0_spread=1.0)
    [found] = summarise_sweeps(read_run(run))
    assert (found.verdict, found.tone) == ("Not better: a guarded metric fell.", "bad")
    assert "fell: f0_spread" in found.basis


def test_a_sweep_without_a_best_or_with_a_part_missing_claims_nothing(run: Path) -> None:
    write_sweep(run, best=None, rate=12.0)
    [found] = summarise_sweeps(read_run(run))
    assert found.verdict == "No checkpoint was chosen: in each of them a guarded metric fell."
    assert found.lines == ()
    (run / "evaluations" / "held_out" / "sweep.json").write_text(json.dumps({"best": 4}))
    [found] = summarise_sweeps(read_run(run))
    assert (found.verdict, found.tone) == ("It cannot be compared.", "open")
    assert "step_4 holds no finished evaluation" in found.basis
