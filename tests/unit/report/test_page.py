import json
from pathlib import Path

import pytest

from elocution.errors import RunDirectoryError
from elocution.report.page import write_report
from elocution.testing.run_directory import write_sample_run


def change(path: Path, row: int, **values: object) -> None:
    lines = path.read_text().splitlines()
    lines[row] = json.dumps(json.loads(lines[row]) | values)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_sample_run(tmp_path / "run")
    return tmp_path / "run"


def test_the_page_tells_the_result_and_needs_nothing_else(run: Path) -> None:
    page = write_report(run).read_text()
    assert "Better: fewer words are wrong." in page
    # 256 pairs of sentences with ten words each: 768 wrong before, 256 after, and 2 or 3 less in every one.
    assert "30.0 % before, 10.0 % after: −20.0 points, 95 % interval −20.0 points to −20.0 points." in page
    assert page.count('class="play"') == 3 * 8 + 12 + 1
    assert page.count('id="sound-') == page.count('id="picture-') == 3 * 8 + 12 + 1
    assert 'src="http' not in page
    assert '<link rel="stylesheet"' not in page


def test_a_text_with_markup_stays_a_text(run: Path) -> None:
    change(run / "rollouts.jsonl", 0, text="<script>alert(1)</script>")
    page = write_report(run).read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_run_in_progress_and_one_that_was_killed_still_give_a_page(run: Path) -> None:
    evaluations = run / "evaluations.jsonl"
    evaluations.write_text(evaluations.read_text().splitlines()[0] + "\n")
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 7, "rew')
    page = write_report(run).read_text()
    assert "There is no evaluation after training yet." in page
    assert "1 line in the records were cut short" in page


def test_a_run_without_steps_gives_a_page(run: Path) -> None:
    for name in ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "environment.json"):
        (run / name).unlink()
    page = write_report(run).read_text()
    assert "No step has been recorded yet." in page
    assert "No held-out evaluation yet." in page


def test_missing_and_unmeasured_things_are_said(run: Path) -> None:
    (run / "audio" / "rollouts" / "step_0001_best.wav").unlink()
    change(run / "rollouts.jsonl", 1, audio=None, transcript="", outcome="empty", nll=None)
    change(run / "metrics.jsonl", 0, **{"reward/mean": None})
    page = write_report(run).read_text()
    assert "no audio: the file is missing" in page
    assert "no audio: the completion held no codes" in page
    assert "nothing was heard" in page


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"has no config\.toml"):
        write_report(tmp_path)
    with pytest.raises(RunDirectoryError, match="no such folder"):
        write_report(tmp_path / "absent")


def test_damaged_files_cost_what_they_hold_and_not_the_page(run: Path) -> None:
    (run / "environment.json").write_text('{"started_')
    (run / "config.toml").write_bytes(b"# caf\xe9\n")
    (run / "audio" / "rollouts" / "step_0001_best.wav").write_bytes(b"RIFF")
    with (run / "metrics.jsonl").open("ab") as stream:
        stream.write(b"\xff\n5\n")
    page = write_report(run).read_text()
    assert "no audio: the file is missing" in page
    assert "2 lines in the records were cut short" in page


def test_the_best_checkpoint_has_a_column_where_it_is_not_the_last(run: Path) -> None:
    assert "The same sentences before, best, last" in write_report(run).read_text()
    (run / "best").unlink()
    (run / "best").symlink_to("checkpoints/step_6")
    assert "The same sentences before, last" in write_report(run).read_text()


def test_alarms_are_told_with_their_clips(run: Path) -> None:
    page = write_report(run).read_text()
    assert "rate is 20, above the base&#39;s 16." in page
    assert 'data-label="example of rate: audio/alarms/step_0003_rate_1.wav"' in page
    assert "went back" not in page


def test_a_run_that_went_back_to_its_best_weights_says_so(run: Path) -> None:
    back = {"step": 4, "to_step": 3, "monitors": ["rate", "kl"], "lr_factor": 0.5}
    (run / "rollbacks.jsonl").write_text(json.dumps(back) + "\n")
    told = "step 4, <strong>went back</strong>: the weights became those of step 3 (rate, kl), and the learning rates 0.5 times"
    assert told in write_report(run).read_text()


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl"])
def test_records_of_another_program_are_refused(run: Path, name: str) -> None:
    (run / name).write_text('{"name": "before", "epoch": 1, "reward/mean": 0.5}\n')
    with pytest.raises(RunDirectoryError, match="not those of an elocution run: KeyError"):
        write_report(run)
    assert not (run / "report.html").exists()
