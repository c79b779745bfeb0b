import json
from pathlib import Path

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


def test_nan_is_not_written_as_a_measurement(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", resume=False) as run, pytest.raises(ValueError, match="not JSON compliant"):
        run.append_json("metrics.jsonl", {"step": 1, "reward/mean": float("nan")})
