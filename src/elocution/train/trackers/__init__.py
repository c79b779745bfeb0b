"""What a run records, passed on to experiment trackers: numbers by step, and clips with what was heard in them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from elocution.config.tree import LogConfig
from elocution.registry import import_part
from elocution.train.run_directory import RunDirectory
from elocution.train.trackers.base import Clip, Start, Tracker

__all__ = ["TRACKERS", "check_trackers", "tracking"]

TRACKERS: Mapping[str, str] = {
    "tensorboard": "elocution.train.trackers.tensorboard:TensorBoardTracker",
    "wandb": "elocution.train.trackers.weights_and_biases:WandbTracker",
    "trackio": "elocution.train.trackers.trackio:TrackioTracker",
}


def check_trackers(config: LogConfig) -> None:
    """Raises: MissingDependency if the package of a tracker in `log.to` is not installed."""
    for name in config.to:
        import_part("tracker", name, TRACKERS).check()


@contextmanager
def tracking(run: RunDirectory, config: LogConfig, *, described: Mapping[str, Any], step: int) -> Iterator[None]:
    """Passes on what is recorded in `run`, whose config is `described` and which goes on after `step`; closes in the end.

    Raises: MissingDependency as `check_trackers`.
    """
    with ExitStack() as stack:
        start = Start(run.path, config.project, config.offline, described, step)
        trackers: list[Tracker] = []
        for name in config.to if run.is_writer else ():
            trackers.append(import_part("tracker", name, TRACKERS)(start))
            stack.callback(trackers[-1].close)

        def pass_on(name: str, row: Mapping[str, Any]) -> None:
            numbers = _numbers(name, row)
            for tracker in trackers:
                if numbers:
                    tracker.numbers(row["step"], numbers)
                for clip in _clips(run, name, row) if config.audio else ():
                    tracker.clip(row["step"], clip)

        if trackers:
            run.follow(pass_on)
        yield


def _numbers(file: str, row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row under the names that a tracker shows; those of evaluations are `held_out/…` and `guards/…`."""
    if file == "metrics.jsonl":
        return _only_numbers(row, "")
    if file == "evaluations.jsonl":
        return _only_numbers(row, "held_out/") | _only_numbers(row.get("monitors", {}), "guards/")
    return {}


def _only_numbers(row: Mapping[str, Any], prefix: str) -> dict[str, float]:
    keys = (key for key in row if key not in ("step", "policy_version"))
    return {prefix + key: float(row[key]) for key in keys if isinstance(row[key], int | float)}


def _clips(run: RunDirectory, file: str, row: Mapping[str, Any]) -> Iterator[Clip]:
    """The clips of a row, with what was wanted and what was heard; the same name in each step that has it."""
    if file == "rollouts.jsonl":
        rows = [(f"rollouts/{row['kind']}", row)]
    elif file == "evaluations.jsonl":
        rows = [(f"held_out/{probe['utterance_id']}", probe) for probe in row["probes"]]
    else:
        rows = []
    for name, one in rows:
        if one["audio"] is not None:
            yield Clip(name, run.path / one["audio"], f"{one['text']} → {one['transcript']}")
