import sys
from pathlib import Path

import numpy as np
import pytest

from elocution.config.tree import LogConfig
from elocution.errors import MissingDependency
from elocution.testing.run_directory import read_rows, write_sample_run
from elocution.train.run_directory import RunDirectory
from elocution.train.trackers import TRACKERS, check_trackers, tracking


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run with clips, whose records are in `all-….jsonl`, so that they can be recorded again."""
    write_sample_run(tmp_path / "run", steps=2, probes=2)
    for name in ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl"):
        (tmp_path / "run" / name).rename(tmp_path / "run" / f"all-{name}")
    return tmp_path / "run"


def record(path: Path, config: LogConfig) -> None:
    """Records the run anew, in the order in which a run does."""
    evaluations = read_rows(path / "all-evaluations.jsonl")
    with (
        RunDirectory(path, resume=True) as run,
        tracking(run, config, described={"seed": 7, "train": {"steps": 2}}, step=0),
    ):
        run.append_json("evaluations.jsonl", evaluations[0])
        for step, metrics in enumerate(read_rows(path / "all-metrics.jsonl"), start=1):
            for row in read_rows(path / "all-rollouts.jsonl")[2 * step - 2 : 2 * step]:
                run.append_json("rollouts.jsonl", row)
            run.append_json("metrics.jsonl", metrics)
            run.append_json("evaluations.jsonl", evaluations[step])


def test_tensorboard_holds_numbers_and_sound(recorded: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'elocution[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record(recorded, LogConfig(to=("tensorboard",)))
    events = EventAccumulator(str(recorded / "tensorboard")).Reload()
    rewards = [(event.step, event.value) for event in events.Scalars("reward/mean")]
    assert rewards == [(1, pytest.approx(0.65)), (2, pytest.approx(0.8))]
    assert [(event.step, event.value) for event in events.Scalars("held_out/wer")] == [
        *((0, pytest.approx(0.3)), (1, pytest.approx(0.08)), (2, pytest.approx(0.1))),
    ]
    assert [event.value for event in events.Scalars("guards/f0_spread")] == pytest.approx([2.7, 2.92, 2.9])
    assert {"rollouts/best", "rollouts/worst", "held_out/h-1", "held_out/h-2"} == set(events.Tags()["audio"])
    clip = events.Audio("held_out/h-1")[0]
    assert (clip.step, clip.sample_rate) == (0, 16_000)
    sound = np.frombuffer(clip.encoded_audio_string[44:], dtype=np.int16) / 32768
    # The tone of 190 Hz that was recorded: half a second, 8000 samples, so 2 Hz apart.
    assert np.abs(np.fft.rfft(sound)).argmax() * 2 == 190


def test_without_audio_no_clip_is_passed_on(recorded: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'elocution[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record(recorded, LogConfig(to=("tensorboard",), audio=False))
    assert EventAccumulator(str(recorded / "tensorboard")).Reload().Tags()["audio"] == []


def test_trackio_holds_numbers_and_sound(recorded: Path) -> None:
    storage = pytest.importorskip("trackio.sqlite_storage", reason="needs trackio: pip install 'elocution[trackio]'")
    project = f"test-{recorded.parent.name}"  # its folder is fixed once it is imported
    record(recorded, LogConfig(to=("trackio",), project=project))
    rows = storage.SQLiteStorage.get_logs(project, "run")
    assert [row["reward/mean"] for row in rows if "reward/mean" in row] == pytest.approx([0.65, 0.8])
    captions = [row["rollouts/best"]["caption"] for row in rows if "rollouts/best" in row]
    assert captions == ["the doctor visited the school → the doctor visited the school"] * 2
    assert sum("held_out/h-2" in row for row in rows) == 3


def test_wandb_offline_holds_numbers_and_sound(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs wandb: pip install 'elocution[wandb]'")
    monkeypatch.setenv("WANDB_SILENT", "true")
    record(recorded, LogConfig(to=("wandb",)))
    wandb.teardown()  # waits for its own process to write
    [folder] = recorded.glob("wandb/offline-run-*")
    assert len(list(folder.rglob("media/audio/**/*.wav"))) == 3 * 2 + 2 * 2
    content = next(folder.glob("run-*.wandb")).read_bytes()
    assert b"reward/mean" in content
    assert b"held_out/wer" in content


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # what a failed import leaves
    with pytest.raises(MissingDependency, match=rf"pip install 'elocution\[{name}\]'"):
        check_trackers(LogConfig(to=(name,)))


def test_without_trackers_nothing_follows_a_run(recorded: Path) -> None:
    record(recorded, LogConfig())
    assert not (recorded / "tensorboard").exists()
