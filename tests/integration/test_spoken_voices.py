"""A whole run on prompts with voices, from parquet."""

import json
from pathlib import Path

import pytest
import soundfile

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.train.loop import train

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `data`")


def write(path: Path, texts: list[str], audio: dict[str, object]) -> None:
    rows = [{"text": text, "prompt_text": "the little ", "prompt_audio": audio} for text in texts]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def test_a_run_learns_from_prompts_that_share_a_voice(tmp_path: Path) -> None:
    clip = resolve_path("builtin:tiny-clip")
    samples, rate = soundfile.read(clip, dtype="float32")
    soundfile.write(tmp_path / "begun.wav", samples[: len(samples) * 4 // 10], rate)
    write(tmp_path / "train.parquet", ["brother was young", "brother was near"], {"bytes": None, "path": "begun.wav"})
    write(
        tmp_path / "held.parquet", ["sister was young"], {"bytes": (tmp_path / "begun.wav").read_bytes(), "path": None}
    )
    config = load_config(
        None,
        [
            f"data.train={json.dumps(str(tmp_path / 'train.parquet'))}",
            f"data.held_out={json.dumps(str(tmp_path / 'held.parquet'))}",
            *("train.steps=1", "train.prompts_per_step=2", "rollout.group_size=4", "reward.workers=1"),
            *("eval.sentences=1", "eval.probe_sentences=1"),
        ],
    )
    summary = train(config, tmp_path / "run")
    assert summary.step == 1
    (metrics,) = (json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert metrics["ratio/max_deviation"] is None or metrics["ratio/max_deviation"] < 1e-3
    kept = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    # The recording says "the little", and no reward heard it.
    heard = [row["transcript"] for row in kept if row.get("transcript")]
    assert heard
    assert not any(transcript.startswith("the little") for transcript in heard)
