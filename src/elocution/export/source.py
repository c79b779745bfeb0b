"""What to export: a run's best checkpoint, one of its checkpoints, or a model folder."""

from dataclasses import dataclass
from pathlib import Path

from elocution.config.load import load_config
from elocution.errors import ExportError
from elocution.train.checkpoint import verify_checkpoint

__all__ = ["ExportSource", "find_source"]

_DEFAULT_FAMILY = "llasa"


@dataclass(frozen=True)
class ExportSource:
    """A folder that holds a model or an adapter, and its family."""

    path: Path
    family: str


def find_source(path: Path, family: str | None = None) -> ExportSource:
    """The model behind `path`; a run directory means its `best`, and checkpoints are compared with their digests.

    `family` defaults to that of the run that the model is part of.

    Raises: ExportError if there is no model; CheckpointError if a checkpoint is damaged.
    """
    model = path
    if (path / "config.toml").is_file():
        model = path / "best"
        if not model.exists():
            raise ExportError(
                f"the run {path} has no best checkpoint yet; wait for its end, or name one of {path / 'checkpoints'}"
            )
    if (model / "state.json").is_file():
        model = verify_checkpoint(model).model_path
    if not any((model / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ExportError(f"{path} is no run, checkpoint or model folder")
    return ExportSource(model, family or _family_of(model))


def _family_of(model: Path) -> str:
    for folder in model.resolve().parents[:3]:  # RUN/checkpoints/step_N/model
        if (folder / "config.toml").is_file():
            return load_config(folder / "config.toml").model.family
    return _DEFAULT_FAMILY
