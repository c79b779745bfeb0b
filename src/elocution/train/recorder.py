"""What a step leaves in the run directory: one line of metrics, and its best and worst completion with audio."""

import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from elocution.audio import write_wav
from elocution.train.learner import UpdateStats
from elocution.train.run_directory import RunDirectory
from elocution.types import Outcome, RolloutGroup

__all__ = [
    "lag_metrics",
    "only_extremes_audible",
    "peak_memory_mib",
    "record_extremes",
    "reward_metrics",
    "update_metrics",
]


def peak_memory_mib() -> float:
    """Largest resident size of this process so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def reward_metrics(groups: Sequence[RolloutGroup], has_signal: Sequence[bool]) -> dict[str, float | None]:
    """Means over what was measured; None where nothing was."""
    rewards = [[s.value for s in group.scores if s.value is not None] for group in groups]
    scored = [value for group in rewards for value in group]
    spreads = [float(np.std(group, ddof=1)) for group in rewards if len(group) > 1]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    scores = [score for group in groups for score in group.scores]
    count = len(rollouts)
    metrics: dict[str, float | None] = {
        "reward/mean": fmean(scored) if scored else None,
        "reward/std": float(np.std(scored)) if scored else None,
        "reward/group_std": fmean(spreads) if spreads else None,
        "length/mean_codes": fmean([len(rollout.codes) for rollout in rollouts]),
        "scores/unscored_share": (count - len(scored)) / count,
        "scores/gated_share": sum(bool(score.raw.get("gated")) for score in scores) / count,
        "groups/no_spread_share": 1 - sum(has_signal) / len(has_signal),
    }
    for measure in ("wer", "nll"):
        values = [score.raw[measure] for score in scores if measure in score.raw]
        metrics[f"{measure}/mean"] = fmean(values) if values else None
    for part in sorted({name for score in scores for name in score.parts}):
        metrics[f"parts/{part}"] = fmean([score.parts[part] for score in scores if part in score.parts])
    for outcome in (Outcome.EMPTY, Outcome.SILENT, Outcome.RUNAWAY):
        metrics[f"outcome/{outcome}_share"] = sum(rollout.outcome is outcome for rollout in rollouts) / count
    return metrics


def lag_metrics(groups: Sequence[RolloutGroup], version: int) -> dict[str, float]:
    """How many optimiser steps older than `version` the weights were that drew the completions."""
    lags = [version - rollout.completion.policy_version for group in groups for rollout in group.rollouts]
    return {"lag/mean_versions": fmean(lags), "lag/max_versions": max(lags)}


def update_metrics(updates: Sequence[UpdateStats]) -> dict[str, float | None]:
    """Means over the optimiser steps of one training step; None where no group had signal.

    `engine/...` says how the engine's log-probs differ from the learner's, and is None without importance weights.
    """
    keys = {
        "loss/policy": "policy_loss",
        "kl/k3": "kl",
        "entropy/nats": "entropy",
        "ratio/clipped_share": "clipped_share",
        "grad/norm": "grad_norm",
    }
    metrics: dict[str, float | None] = {
        key: fmean([getattr(update, name) for update in updates]) if updates else None for key, name in keys.items()
    }
    exact = [update.exact_kl for update in updates if update.exact_kl is not None]
    metrics["kl/exact"] = fmean(exact) if exact else None
    # The first update sees the weights that sampled: its ratios are the check that engine and learner agree.
    metrics["ratio/max_deviation"] = updates[0].max_ratio_deviation if updates else None
    mismatches = [update.mismatch for update in updates if update.mismatch is not None]
    metrics["engine/mismatch_mean_nats"] = fmean([each.mean for each in mismatches]) if mismatches else None
    metrics["engine/mismatch_max_nats"] = max([each.max for each in mismatches]) if mismatches else None
    metrics["engine/bounded_weights_share"] = fmean([each.bounded_share for each in mismatches]) if mismatches else None
    return metrics


def only_extremes_audible(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
    """The groups without audio but that which `record_extremes` would write, for other processes to have."""
    found = _extremes(groups)
    kept = {id(found[0].rollouts[index]) for index in found[1:]} if found else set()
    return [
        replace(
            group,
            rollouts=tuple(
                rollout if id(rollout) in kept else replace(rollout, audio=None) for rollout in group.rollouts
            ),
        )
        for group in groups
    ]


def _extremes(groups: Sequence[RolloutGroup]) -> tuple[RolloutGroup, int, int] | None:
    """The group whose rewards differ most, and the places of its best and its worst completion."""
    candidates = []
    for group in groups:
        order = sorted((score.value, index) for index, score in enumerate(group.scores) if score.value is not None)
        if order:
            candidates.append((order[-1][0] - order[0][0], group, order[-1][1], order[0][1]))
    return max(candidates, key=lambda candidate: candidate[0])[1:] if candidates else None


def record_extremes(run: RunDirectory, step: int, groups: Sequence[RolloutGroup]) -> None:
    """Appends the best and the worst completion of the group whose rewards differ most."""
    found = _extremes(groups)
    if found is None or not run.is_writer:
        return
    group, best, worst = found
    for kind, index in (("best", best), ("worst", worst)):
        rollout, score = group.rollouts[index], group.scores[index]
        audio = None
        if rollout.audio is not None:
            audio = f"audio/rollouts/step_{step:04d}_{kind}.wav"
            write_wav(run.path / audio, rollout.audio)
        row: dict[str, Any] = {
            "step": step,
            "utterance_id": group.utterance.id,
            "text": group.utterance.text,
            "language": group.utterance.language,
            "kind": kind,
            "reward": score.value,
            "wer": score.raw.get("wer"),
            "nll": score.raw.get("nll"),
            "transcript": score.transcript,
            "outcome": str(rollout.outcome),
            "audio": audio,
        }
        run.append_json("rollouts.jsonl", row)
