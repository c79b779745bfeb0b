"""The main job end to end: real checkpoint, codec and recognisers, through the command line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
from plotly.offline import get_plotlyjs
from safetensors.torch import load_file

from elocution.testing.run_directory import read_rows as rows

# Small enough for a test; everything else is the embedded recipe.
SMALL = [
    *("--set", "train.prompts_per_step=2", "--set", "rollout.group_size=3", "--set", "train.save_every=3"),
    *("--set", "eval.sentences=4", "--set", "eval.probe_sentences=2", "--set", "reward.workers=2"),
    *("--set", "train.minibatches=2"),
]


def elocution(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "elocution", *arguments], capture_output=True, text=True, check=False)


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in row.items()
        if not key.startswith(("time/", "idle/", "memory/")) and key != "duration_s"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps in one go."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = elocution("train", "--output-dir", str(run), *SMALL, "--set", "train.steps=6")
    assert done.returncode == 0, done.stderr
    assert "held-out WER before" in done.stdout
    assert "held-out WER after" in done.stdout
    return run


def test_a_run_leaves_what_it_promises(whole: Path) -> None:
    assert [row["step"] for row in rows(whole / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    for row in rows(whole / "metrics.jsonl"):
        assert row["ratio/max_deviation"] is None or row["ratio/max_deviation"] < 1e-3
        assert 0 <= row["reward/mean"] <= 1
        assert row["scores/unscored_share"] == 0
    evaluations = rows(whole / "evaluations.jsonl")
    assert [row["name"] for row in evaluations] == ["before", "after"]
    for row in evaluations:
        assert row["num_scored"] == 4
        assert row["wer_low"] <= row["wer"] <= row["wer_high"]
        for probe in row["probes"]:
            samples, rate = soundfile.read(whole / probe["audio"])
            assert rate == 16_000
            assert abs(samples).max() > 0.01
    extremes = rows(whole / "rollouts.jsonl")
    assert {row["kind"] for row in extremes} == {"best", "worst"}
    assert all((whole / row["audio"]).is_file() for row in extremes if row["audio"])
    assert (whole / "best" / "model" / "model.safetensors").is_file()
    assert "train" in (whole / "config.toml").read_text()
    assert json.loads((whole / "environment.json").read_text())["packages"]["torch"]


def test_s76_six_steps_equal_three_and_three_resumed_to_the_bit(whole: Path, tmp_path: Path) -> None:
    """The run is ended after step 3 by a signal, with a torn last line as a crash leaves it, and resumed."""
    run = tmp_path / "halves"
    process = subprocess.Popen(
        [sys.executable, "-m", "elocution", "train", "--output-dir", str(run), *SMALL, "--set", "train.steps=6"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.is_file() and len(metrics.read_text().splitlines()) >= 3):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # To the whole group, as `timeout` and a terminal do it: the scoring processes must not die of it.
    os.killpg(process.pid, signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "stopped by SIGTERM after step" in stdout
    with metrics.open("a") as stream:
        stream.write('{"step": 99, "rew')
    resumed = elocution("train", "--output-dir", str(run), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert list(map(untimed, rows(metrics))) == list(map(untimed, rows(whole / "metrics.jsonl")))
    assert rows(run / "rollouts.jsonl") == rows(whole / "rollouts.jsonl")
    assert list(map(untimed, rows(run / "evaluations.jsonl"))) == list(map(untimed, rows(whole / "evaluations.jsonl")))
    one, other = (load_file(path / "best" / "model" / "model.safetensors") for path in (run, whole))
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)


# An adapter for the query and value matrices alone; the recipe's rules name weights that it leaves frozen.
LORA = [
    *SMALL[:8],  # the sizes of a step
    *("--set", "eval.sentences=2", "--set", "eval.probe_sentences=1", "--set", "train.save_every=1"),
    *("--set", "model.lora.rank=4", "--set", "model.lora.target_modules=['q_proj', 'v_proj']"),
    *("--set", "train.rules=[]", "--set", "train.learning_rate=0.01", "--set", "train.steps=2"),
]


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps that train an adapter."""
    run = tmp_path_factory.mktemp("runs") / "lora"
    done = elocution("train", "--output-dir", str(run), *LORA)
    assert done.returncode == 0, done.stderr
    return run


def test_a_run_with_an_adapter_saves_only_that_and_measures_kl_against_its_base(lora: Path) -> None:
    metrics = rows(lora / "metrics.jsonl")
    assert all(row["ratio/max_deviation"] < 1e-3 for row in metrics)
    # Before its first update the policy is its base; after it, no more, and the engine has drawn from the new one.
    assert metrics[0]["kl/k3"] == pytest.approx(0, abs=1e-9)
    assert metrics[1]["kl/k3"] > 1e-6
    model = lora / "best" / "model"
    assert {path.name for path in model.iterdir()} == {"adapter_config.json", "adapter_model.safetensors", "base.json"}
    assert json.loads((model / "base.json").read_text())["path"] == "builtin:tiny-llasa"
    # 6 layers; A and B of rank 4 for 192 -> 192 and 192 -> 64.
    tensors = load_file(model / "adapter_model.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == 6 * 4 * (192 + 192 + 192 + 64)
    assert all(tensor.abs().max() > 0 for tensor in tensors.values())
    assert (lora / "best" / "optimizer.pt").stat().st_size < 300_000  # two moments of the adapter, none of the base


@pytest.mark.slow
def test_s76_with_an_adapter_too_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(
    lora: Path, tmp_path: Path
) -> None:
    """What a crash in step 2 leaves: the checkpoint of step 1, and rows of what was recorded since.

    Skipped updates were not always counted, and a crash of the machine may leave anything in a line.
    """
    run = tmp_path / "halves"
    shutil.copytree(lora, run, symlinks=True)
    shutil.rmtree(run / "checkpoints" / "step_2")
    metrics = run / "metrics.jsonl"
    first = rows(metrics)[0]
    assert first.pop("updates/skipped") == 0
    metrics.write_text(json.dumps(first) + '\n{}\n{"step": "two"}\n5\n' + metrics.read_text().splitlines()[1] + "\n")
    (run / "evaluations.jsonl").write_text((run / "evaluations.jsonl").read_text() + '{"step": 0}\n{"name": 5}\n')
    resumed = elocution("train", "--output-dir", str(run), "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "updates/skipped" not in rows(metrics)[0]
    metrics.write_text(metrics.read_text().replace('"step": 1,', '"updates/skipped": 0, "step": 1,', 1))
    for name in ("metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl"):
        assert list(map(untimed, rows(run / name))) == list(map(untimed, rows(lora / name)))
    one, other = (load_file(path / "checkpoints/step_2/model/adapter_model.safetensors") for path in (run, lora))
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.slow
def test_generate_speaks_with_a_trained_adapter(lora: Path, tmp_path: Path) -> None:
    output = tmp_path / "said.wav"
    text = "The doctor visited the school."
    done = elocution("generate", "--model", str(lora / "best"), "--text", text, "--output", str(output))
    assert done.returncode == 0, done.stderr
    samples, _ = soundfile.read(output)
    assert abs(samples).max() > 0.01
    moved = tmp_path / "moved"
    shutil.copytree(lora / "best" / "model", moved)
    (moved / "base.json").write_text(json.dumps({"path": str(tmp_path / "absent"), "sha256": "0"}))
    failed = elocution("generate", "--model", str(moved), "--text", text, "--output", str(output))
    assert failed.returncode == 1
    assert f"belongs to the checkpoint {tmp_path / 'absent'}, which is not there" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_s79_a_used_directory_is_refused_and_untouched(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    refused = elocution("train", "--output-dir", str(whole), *SMALL)
    assert refused.returncode == 1
    assert "already holds a run" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()} == before


def test_resuming_a_finished_run_says_so_and_changes_nothing(whole: Path) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*.jsonl")}
    done = elocution("train", "--output-dir", str(whole), "--resume")
    assert done.returncode == 0, done.stderr
    assert "is finished: 6 steps; nothing is left to do" in done.stderr
    wer = 100 * rows(whole / "evaluations.jsonl")[-1]["wer"]
    assert f"held-out WER after: {wer:5.1f} %" in done.stdout
    assert {path: path.read_bytes() for path in whole.rglob("*.jsonl")} == before


def test_a_damaged_checkpoint_stops_the_resume_with_its_name(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "damaged"
    shutil.copytree(whole, run, symlinks=True)
    weights = run / "checkpoints" / "step_6" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    failed = elocution("train", "--output-dir", str(run), "--resume")
    assert failed.returncode == 1
    assert "step_6 is damaged: model/model.safetensors" in failed.stderr
    assert "Traceback" not in failed.stderr
    # A flipped bit would still load and speak, so speaking verifies too.
    output = tmp_path / "said.wav"
    failed = elocution("generate", "--model", str(run / "best"), "--text", "nine", "--output", str(output))
    assert failed.returncode == 1
    assert "is damaged: model/model.safetensors" in failed.stderr
    assert not output.exists()


def test_resuming_with_another_config_or_without_checkpoints_is_refused_and_loses_nothing(
    whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "lost"
    shutil.copytree(whole, run, symlinks=True)
    failed = elocution("train", "--output-dir", str(run), "--resume", "--set", "train.steps=7", "--set", "seed=1")
    assert failed.returncode == 1
    assert f"the config differs from {run / 'config.toml'} in seed, train.steps; " in failed.stderr
    shutil.rmtree(run / "checkpoints")
    failed = elocution("train", "--output-dir", str(run), "--resume")
    assert failed.returncode == 1
    assert "has records of 6 steps, but no checkpoint" in failed.stderr
    assert rows(run / "metrics.jsonl") == rows(whole / "metrics.jsonl")


def test_a_read_only_place_is_one_message(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        place = Path("/proc/elocution-run")  # root may write anywhere else
    else:
        tmp_path.chmod(0o500)
        place = tmp_path / "run"
    failed = elocution("train", "--output-dir", str(place), *SMALL)
    assert failed.returncode == 1
    assert "error: " in failed.stderr
    assert str(place) in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB: enough for one checkpoint of the tiny model and its optimiser, not for two."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_one_message_and_the_last_checkpoint_stays_whole(small_disk: Path) -> None:
    run = small_disk / "run"
    failed = elocution("train", "--output-dir", str(run), *SMALL, "--set", "train.save_every=1")
    assert failed.returncode == 1
    assert f"no space left on the disk of {run}" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_0"]
    from elocution.train.checkpoint import verify_checkpoint

    assert verify_checkpoint(run / "checkpoints" / "step_0").step == 0


def test_bad_prompts_stop_before_anything_is_written(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"text": "the doctor visited the school"}\n{"text": "the zebra ran"}\n{"text": \n')
    run = tmp_path / "run"
    failed = elocution("train", "--output-dir", str(run), *SMALL, "--set", f"data.train={prompts}")
    assert failed.returncode == 1
    assert f"{prompts}:2: words outside the checkpoint's vocabulary: zebra, ran" in failed.stderr
    assert f"{prompts}:3: malformed JSON" in failed.stderr
    assert not run.exists()


def test_generate_speaks_with_base_and_trained_weights(whole: Path, tmp_path: Path) -> None:
    from elocution.measures import load_transcriber
    from elocution.types import Audio

    listener = load_transcriber("pocketsphinx-bigram")
    for name, model in (("base", "builtin:tiny-llasa"), ("trained", str(whole / "best"))):
        output = tmp_path / f"{name}.wav"
        text = "The doctor visited the school."
        done = elocution("generate", "--model", model, "--text", text, "--output", str(output))
        assert done.returncode == 0, done.stderr
        samples, rate = soundfile.read(output, dtype="float32")
        assert listener.transcribe(Audio(samples, rate)) == "the doctor visited the school"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "the zebra ran", "--output", "a.wav"], "vocabulary: zebra, ran"),
        (["--text", "…", "--output", "a.wav"], "nothing to speak"),
        (["--text", "the school", "--output", "absent/a.wav"], "does not exist"),
        (["--text", "the school", "--output", "a.mp4"], ".mp4 is no kind of audio file; use .wav, .flac, .ogg or .mp3"),
        (["--text", "the school", "--output", "a"], "a name without a suffix is no kind of audio file"),
        (["--text", "the school", "--output", "a.wav", "--model", "absent"], "absent is no checkpoint folder"),
    ],
)
def test_generate_names_what_is_wrong(arguments: list[str], message: str) -> None:
    failed = elocution("generate", *arguments)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_report_of_a_real_run(whole: Path) -> None:
    done = elocution("report", str(whole))
    assert done.returncode == 0, done.stderr
    page = (whole / "report.html").read_text()
    assert page.count('class="play"') >= 4
    own = page.replace(get_plotlyjs(), "")
    assert len(own) < len(page)
    assert "http://" not in own
    assert "https://" not in own
