"""Confidence intervals by resampling utterances."""

from collections.abc import Sequence

import numpy as np

from elocution.measures.error_rates import EditCounts

__all__ = ["bootstrap_word_error_rate"]


def bootstrap_word_error_rate(
    errors: Sequence[EditCounts], *, samples: int, seed: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the corpus WER when whole utterances are drawn with replacement.

    Raises: ValueError if there is no utterance.
    Source: Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", 2004.
    """
    if not errors:
        raise ValueError("a confidence interval needs at least one scored utterance")
    counts = np.array([[e.substitutions + e.deletions + e.insertions, e.reference_units] for e in errors])
    generator = np.random.default_rng(seed)
    draws = generator.integers(len(counts), size=(samples, len(counts)))
    totals = counts[draws].sum(axis=1)
    low, high = np.quantile(totals[:, 0] / totals[:, 1], [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
