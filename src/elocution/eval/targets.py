"""What `elocution eval` is pointed at -> sources of clips, with the config that they are evaluated by."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.errors import EvaluationError
from elocution.train.checkpoint import verify_checkpoint

__all__ = ["Target", "TargetKind", "digest_of_model", "find_target", "run_checkpoints"]

_SOUNDS = (".wav", ".flac")


class TargetKind(StrEnum):
    """What a target is."""

    MODEL = "model"
    RECORDINGS = "recordings"
    TRANSCRIPTS = "transcripts"


@dataclass(frozen=True)
class Target:
    """A model folder, a folder of recordings or a file of transcripts; `run` is the run that it belongs to, if any."""

    kind: TargetKind
    path: Path
    name: str
    config: RunConfig
    run: Path | None = None


def find_target(value: str, config: Path | None, overrides: Sequence[str]) -> Target:
    """What `value` names: a config file (its base model), a run (its best checkpoint), a checkpoint, a model folder,
    `builtin:NAME`, a folder of recordings, or a file of transcripts.

    The config is `config`, else that of the run, else the embedded one, with `overrides`.

    Raises: EvaluationError if it is none of these; ConfigError; CheckpointError if a checkpoint is damaged.
    """
    path = resolve_path(value)
    if path.suffix == ".toml" and path.is_file():
        loaded = load_config(path, overrides)
        return Target(TargetKind.MODEL, resolve_path(loaded.model.path), path.stem, loaded)
    if path.is_file():
        return Target(TargetKind.TRANSCRIPTS, path, path.stem, load_config(config, overrides))
    if not path.is_dir():
        raise EvaluationError(f"there is no {value} to evaluate")
    run = _run_of(path)
    loaded = load_config(config or (run / "config.toml" if run else None), overrides)
    if run is not None and path.resolve() == run.resolve():
        path = run / "best"
        if not path.exists():
            raise EvaluationError(
                f"the run {run} has no best checkpoint yet; name one of {run / 'checkpoints'}, or --sweep"
            )
    if (path / "state.json").is_file():
        checkpoint = verify_checkpoint(path.resolve())
        return Target(TargetKind.MODEL, checkpoint.model_path, checkpoint.path.name, loaded, run)
    if any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        return Target(TargetKind.MODEL, path, path.name, loaded, run)
    if any(file.suffix in _SOUNDS for pattern in ("*", "seed_*/*") for file in path.glob(pattern)):
        return Target(TargetKind.RECORDINGS, path, path.name, loaded)
    raise EvaluationError(f"{value} is no run, checkpoint, model, or folder of recordings (.wav or .flac)")


def _run_of(path: Path) -> Path | None:
    """The run that a checkpoint or model folder is part of: RUN/checkpoints/step_N/model."""
    places = (path, *path.resolve().parents[:3])
    return next((place for place in places if (place / "config.toml").is_file()), None)


def run_checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run by step.

    Raises: EvaluationError if it has none.
    """
    folders = [path for path in (run / "checkpoints").glob("step_*") if path.name.removeprefix("step_").isdecimal()]
    if not folders:
        raise EvaluationError(f"{run} is no run with checkpoints")
    return sorted(folders, key=lambda path: int(path.name.removeprefix("step_")))


def digest_of_model(path: Path) -> str:
    """Equal for folders with the same weights and configuration."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("*.safetensors")) + sorted(path.glob("*config.json")):
        with file.open("rb") as stream:
            digest.update(file.name.encode() + hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
