"""Where an interrupted run goes on: its newest checkpoint, with the records brought to what they were then."""

from typing import Any

from elocution.config.load import different_keys, load_config
from elocution.config.tree import LogConfig, RunConfig
from elocution.errors import CheckpointError
from elocution.train.checkpoint import Checkpoint, latest_checkpoint
from elocution.train.run_directory import RunDirectory

__all__ = ["checkpoint_to_resume", "finished_evaluations"]

# Keys that say where a run computes and who is told, and not what.
_MAY_DIFFER = {"train.device", "train.parallel", "train.wait_s", *(f"log.{key}" for key in LogConfig.model_fields)}


def finished_evaluations(run: RunDirectory, config: RunConfig) -> list[dict[str, Any]] | None:
    """The evaluations of a run that has nothing left to do, from first to last; None if something is left.

    Raises: CheckpointError if the run was made with another config.
    """
    _check_config(run, config)
    rows = run.read_rows("evaluations.jsonl")
    is_done = bool(rows) and rows[-1].get("name") == "after" and rows[-1].get("step") == config.train.steps
    checkpoint = latest_checkpoint(run.checkpoints_path) if is_done and (run.path / "best").exists() else None
    return rows if checkpoint is not None and checkpoint.step == config.train.steps else None


def checkpoint_to_resume(run: RunDirectory, config: RunConfig) -> Checkpoint | None:
    """The newest checkpoint, after dropping what the run recorded past it.

    Raises: CheckpointError if the run was made with another config, or its checkpoints are gone.
    """
    _check_config(run, config)
    checkpoint = latest_checkpoint(run.checkpoints_path)
    if checkpoint is None and (steps := run.read_rows("metrics.jsonl")):
        raise CheckpointError(
            f"{run.path} has records of {len(steps)} steps, but no checkpoint in {run.checkpoints_path.name}; "
            "put that folder back, or start another run"
        )
    step = checkpoint.step if checkpoint else -1
    for name in ("metrics.jsonl", "rollouts.jsonl", "alarms.jsonl", "rollbacks.jsonl"):
        run.keep_rows(name, lambda row: _is_until(row, step))
    # The last evaluation is made again, because `best` may not have followed it; all others up to the checkpoint stand.
    run.keep_rows("evaluations.jsonl", lambda row: _is_until(row, step) and row.get("name") not in (None, "after"))
    return checkpoint


def _check_config(run: RunDirectory, config: RunConfig) -> None:
    different = [key for key in different_keys(load_config(run.config_path), config) if key not in _MAY_DIFFER]
    if different:
        raise CheckpointError(
            f"the config differs from {run.config_path} in {', '.join(different)}; "
            "resume without a config and without --set, or start another run"
        )


def _is_until(row: dict[str, Any], step: int) -> bool:
    """Whether the row was recorded by `step`; one that does not say when is not one of ours."""
    return type(row.get("step")) is int and row["step"] <= step
