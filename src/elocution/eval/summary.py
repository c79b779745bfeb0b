"""Clips -> the numbers of an evaluation: the public protocol to its digit, and beside it what a single mean would hide."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from elocution.eval.bootstrap import bootstrap_ratio
from elocution.eval.clips import ClipResult
from elocution.eval.metrics import METRICS, tabulate
from elocution.measures.error_rates import EditCounts

__all__ = ["describe_edits", "published_percent", "summarize"]


def published_percent(rates: Sequence[float]) -> float | None:
    """The mean of the clips' rates as the public scorer prints it: percent, three decimals; None of no clip.

    Source: BytedanceSpeech/seed-tts-eval `average_wer.py`.
    """
    return float(np.round(np.mean(rates) * 100, 3)) if rates else None


def describe_edits(counts: Sequence[EditCounts]) -> dict[str, Any]:
    """Substitutions, deletions and insertions of all clips, and how their rates are spread."""
    rates = [count.rate for count in counts]
    return {
        "clips": len(counts),
        "reference_units": sum(count.reference_units for count in counts),
        "substitutions": sum(count.substitutions for count in counts),
        "deletions": sum(count.deletions for count in counts),
        "insertions": sum(count.insertions for count in counts),
        "median": median(rates) if rates else None,
        "above_half_share": sum(rate > 0.5 for rate in rates) / len(rates) if rates else None,
    }


def summarize(clips: Sequence[ClipResult], *, bootstrap_samples: int, seed: int) -> dict[str, Any]:
    """All that is said of `clips`. Intervals are of 95 %, over utterances and the seeds within each.

    A metric that no clip has is left out; one that some lack says how many have it.
    """
    scored = [clip for clip in clips if clip.is_scored]
    ids = list(dict.fromkeys(clip.id for clip in clips))
    seeds = sorted({clip.seed for clip in clips})
    metrics: dict[str, Any] = {}
    for name, metric in METRICS.items():
        table = tabulate(scored, metric, ids, seeds)
        if table.value is None:
            continue
        low, high = bootstrap_ratio(table, samples=bootstrap_samples, seed=seed)
        metrics[name] = {
            "value": table.value,
            "low": low,
            "high": high,
            "clips": int((table.denominators > 0).sum()),
            "unit": metric.unit,
            "higher_is_better": metric.higher_is_better,
        }
    return {
        "clips": len(clips),
        "scored": len(scored),
        "seeds": seeds,
        "metrics": metrics,
        "seed_tts": _seed_tts(scored, seeds),
        "spoken": describe_edits([clip.spoken for clip in scored if clip.spoken]),
    }


def _seed_tts(clips: Sequence[ClipResult], seeds: Sequence[int]) -> dict[str, Any]:
    """The published numbers, of all clips and of each seed, which is what one call of the public scorer sees."""
    strict = [(clip.seed, clip.seed_tts) for clip in clips if clip.seed_tts]
    rates = [counts.rate for _, counts in strict]
    return {
        "wer_percent": published_percent(rates),
        "wer_below_half_percent": published_percent([rate for rate in rates if rate <= 0.5]),
        "wer_percent_by_seed": {
            str(seed): published_percent([counts.rate for own, counts in strict if own == seed]) for seed in seeds
        },
        **describe_edits([counts for _, counts in strict]),
    }
