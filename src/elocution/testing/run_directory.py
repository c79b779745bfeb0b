"""A small finished run directory with tones for speech, to try what reads one."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from elocution.audio import write_wav
from elocution.config.load import dump_config
from elocution.config.tree import RunConfig
from elocution.types import Audio

__all__ = ["read_rows", "write_sample_run"]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file, every line of which must hold one."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_sample_run(path: Path, *, steps: int = 6, probes: int = 8) -> None:
    """Writes a run of `steps` steps into the new folder `path`.

    It is evaluated before, halfway, where its best checkpoint is, and after, each time with the audio of `probes` sentences; an
    alarm that warns was raised halfway.
    """
    path.mkdir(parents=True)
    (path / "config.toml").write_text(dump_config(RunConfig()), encoding="utf-8")
    (path / "environment.json").write_text(json.dumps({"started_at": "2026-01-01T00:00:00+00:00", "commit": "abc"}))
    _write_rows(path / "metrics.jsonl", [_metrics(step, steps) for step in range(1, steps + 1)])
    extremes = []
    for step in range(1, steps + 1):
        for kind, pitch_hz in (("best", 220.0), ("worst", 150.0)):
            name = f"audio/rollouts/step_{step:04d}_{kind}.wav"
            write_wav(path / name, _tone(pitch_hz))
            clip = {"reward": 0.9 if kind == "best" else 0.1, "wer": 0.0 if kind == "best" else 0.6, "nll": 0.5}
            heard = "the doctor visited the school" if kind == "best" else "a doctor the cool school"
            said = {"text": "the doctor visited the school", "language": "en", "transcript": heard}
            where = {"step": step, "utterance_id": "train-1", "kind": kind, "outcome": "speech", "audio": name}
            extremes.append(where | clip | said)
    _write_rows(path / "rollouts.jsonl", extremes)
    middle = steps // 2
    stages = (("before", 0, 0.3, 180.0), (f"step_{middle}", middle, 0.08, 210.0), ("after", steps, 0.1, 240.0))
    _write_rows(path / "evaluations.jsonl", [_evaluation(path, *stage, probes) for stage in stages])
    example = f"audio/alarms/step_{middle:04d}_rate_1.wav"
    write_wav(path / example, _tone(300.0))
    alarm = {"monitor": "rate", "level": "warn", "value": 20.0, "base": 16.0, "text": "rate is 20, above the base's 16"}
    _write_rows(path / "alarms.jsonl", [{"step": middle, **alarm, "audio": [example]}])
    (path / "best").symlink_to(f"checkpoints/step_{middle}")


def _metrics(step: int, steps: int) -> dict[str, Any]:
    progress = step / steps
    return {
        "step": step,
        "policy_version": step,
        "reward/mean": 0.5 + 0.3 * progress,
        "reward/std": 0.2,
        "reward/group_std": 0.15,
        "parts/wer": 0.7 + 0.2 * progress,
        "parts/nll": 0.4 + 0.3 * progress,
        "wer/mean": 0.3 - 0.2 * progress,
        "nll/mean": 1.0 - 0.5 * progress,
        "loss/policy": 0.0,
        "kl/k3": 0.05 * progress,
        "entropy/nats": 0.9 - 0.3 * progress,
        "length/mean_codes": 44.0,
        "outcome/empty_share": 0.0,
        "outcome/silent_share": 0.0,
        "outcome/runaway_share": 0.05 * (1 - progress),
        "scores/unscored_share": 0.0,
        "time/rollout_s": 0.9,
        "time/decode_s": 0.8,
        "time/score_s": 6.0,
        "time/update_s": 2.0,
        "time/step_s": 9.7,
    }


def _evaluation(path: Path, name: str, step: int, wer: float, pitch_hz: float, num_probes: int) -> dict[str, Any]:
    """Of 256 sentences of ten words each, `wer` are wrong: one word of the first ones is."""
    wrong = round(2560 * wer)
    edits = [wrong // 256 + (number < wrong % 256) for number in range(256)]
    probes = []
    for number in range(1, num_probes + 1):
        audio = f"audio/{name}/{number:04d}.wav"
        write_wav(path / audio, _tone(pitch_hz + 10 * (number % 20)))
        text = f"the doctor visited the school number {number}"
        is_wrong = number % 3 == 0 and name == "before"
        probes.append(
            {
                "utterance_id": f"h-{number}",
                "text": text,
                "language": "en",
                "transcript": text.replace("doctor", "daughter") if is_wrong else text,
                "wer": 1 / 7 if is_wrong else 0.0,
                "decisions": [],
                "audio": audio,
            }
        )
    return {
        "name": name,
        "step": step,
        "policy_version": step,
        "judge": "pocketsphinx-open",
        "temperature": 1.0,
        "num_sentences": 256,
        "num_scored": 256,
        "wer": wer,
        "wer_low": wer - 0.04,
        "wer_high": wer + 0.04,
        "substitutions": wrong - 12,
        "deletions": 5,
        "insertions": 7,
        "median_wer": 0.0,
        "share_above_half": wer / 3,
        "runaway_share": 0.0,
        "mean_duration_s": 1.75,
        "normalizer": "spoken-2",
        "duration_s": 20.0,
        "sentences": [[edit, 10] for edit in edits],
        "probes": probes,
        "monitors": {"f0_spread": 3.0 - wer, "rate": 16.0 - wer, "no_speech_share": 0.0},
    }


def _tone(pitch_hz: float) -> Audio:
    time = np.arange(8_000) / 16_000
    return Audio((0.2 * np.sin(2 * np.pi * pitch_hz * time)).astype(np.float32), 16_000)


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
