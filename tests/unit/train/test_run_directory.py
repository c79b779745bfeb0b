import json
from pathlib import Path

import numpy as np
import pytest

from elocution.errors import RunDirectoryError
from elocution.train.run_directory import RunDirectory


def test_s79_a_used_directory_is_refused_unless_resumed(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run:
        run.config_path.write_text("seed = 0\n")
    with (
        pytest.raises(RunDirectoryError, match=r"already holds a run.*--resume"),
        RunDirectory(tmp_path / "run", resume=False),
    ):
        pass
    with RunDirectory(tmp_path / "run", resume=True):
        pass


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunDirectoryError, match="already holds other files"), RunDirectory(tmp_path, resume=False):
        pass


def test_resuming_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="it holds no run"), RunDirectory(tmp_path / "absent", resume=True):
        pass
    assert not (tmp_path / "absent").exists()


def test_a_run_that_never_began_leaves_the_place_as_it_was(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), RunDirectory(tmp_path / "run", resume=False):
            raise KeyError("prompts are bad")
        assert not (tmp_path / "run").exists()


def test_s79_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run:
        run.config_path.write_text("seed = 0\n")
        with pytest.raises(RunDirectoryError, match="another process"), RunDirectory(tmp_path / "run", resume=True):
            pass


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RunDirectoryError, match="is a file"), RunDirectory(tmp_path / "run", resume=False):
        pass


def test_rows_past_a_step_and_lines_cut_short_are_dropped(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run:
        for step in (1, 2, 3):
            run.append_json("metrics.jsonl", {"step": step})
        with (run.path / "metrics.jsonl").open("a") as stream:
            stream.write('{"step": 4, "rew')
        run.keep_rows("metrics.jsonl", lambda row: row["step"] <= 2)
        lines = (run.path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2]
        run.keep_rows("absent.jsonl", lambda row: True)


def test_a_text_with_any_end_of_line_stays_one_row(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run:
        rows = [{"step": 1, "text": f"one{end}nine"} for end in "\u2028\u2029\x85\x0b\x0c\r\n"]
        for row in rows:
            run.append_json("rollouts.jsonl", row)
        assert run.read_rows("rollouts.jsonl") == rows
        run.keep_rows("rollouts.jsonl", lambda row: True)
        assert run.read_rows("rollouts.jsonl") == rows


def test_a_line_cut_within_a_letter_is_dropped_like_any_other(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run:
        run.append_json("rollouts.jsonl", {"step": 1, "text": "é"})
        path = run.path / "rollouts.jsonl"
        path.write_bytes(path.read_bytes() + '{"step": 2, "text": "é'.encode()[:-1] + b"\n5\n\0\0\n")
        assert run.read_rows("rollouts.jsonl") == [{"step": 1, "text": "é"}]
        run.keep_rows("rollouts.jsonl", lambda row: row["step"] <= 2)
        assert run.read_rows("rollouts.jsonl") == [{"step": 1, "text": "é"}]


def test_numbers_of_other_libraries_are_written_as_numbers(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run:
        run.append_json("metrics.jsonl", {"step": 1, "reward": np.float32(0.5)})
        assert run.read_rows("metrics.jsonl") == [{"step": 1, "reward": 0.5}]


def test_nan_is_not_written_as_a_measurement(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run, pytest.raises(ValueError, match="not JSON compliant"):
        run.append_json("metrics.jsonl", {"step": 1, "reward/mean": float("nan")})
