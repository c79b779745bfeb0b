"""Which weights of a run are the best so far, by what was held out, and how a run goes back to them."""

from collections.abc import Iterable, Mapping
from typing import Any

from elocution.eval.composite import composite
from elocution.eval.guards import AlarmLevel
from elocution.train.checkpoint import Checkpoint, load_optimizer, verify_checkpoint
from elocution.train.mirror import capture, load_snapshot
from elocution.train.run_directory import RunDirectory
from elocution.train.setup import Parts

__all__ = ["best_so_far", "held_out_composite", "restore_best"]


def held_out_composite(row: Mapping[str, Any]) -> float:
    """`composite` of an evaluation within a run, in [0, 1]; higher is better."""
    metrics = {"wer": row["wer"], "hit_limit_share": row["runaway_share"]}
    metrics |= {name: value for name, value in row.get("monitors", {}).items() if name == "speaker_similarity"}
    return composite({name: {"value": value} for name, value in metrics.items()})


def best_so_far(evaluations: Iterable[Mapping[str, Any]], alarms: Iterable[Mapping[str, Any]]) -> float:
    """The highest composite of the rows of trained weights for which no alarm asked to stop; -1 if there are none."""
    given_up = {row["step"] for row in alarms if row["level"] == AlarmLevel.STOP}
    trained = [row for row in evaluations if row["name"] != "before" and row["step"] not in given_up]
    return max(map(held_out_composite, trained), default=-1.0)


def restore_best(run: RunDirectory, parts: Parts) -> Checkpoint:
    """Gives the policy and the optimiser what the run's `best` holds, in place; returns that checkpoint.

    Raises: CheckpointError if it is damaged.
    """
    checkpoint = verify_checkpoint((run.path / "best").resolve())
    stored = parts.load_policy(checkpoint.model_path)
    load_snapshot(parts.policy.model, capture(stored.model, checkpoint.policy_version))
    load_optimizer(checkpoint, parts.optimizer)
    return checkpoint
