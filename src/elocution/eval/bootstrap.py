"""Confidence intervals by resampling: whole utterances, and the sampling seeds within each."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from elocution.eval.metrics import Table
from elocution.measures.error_rates import EditCounts

__all__ = ["bootstrap_difference", "bootstrap_ratio", "bootstrap_word_error_rate"]

_CELLS_AT_ONCE = 2_000_000  # of all draws together; bounds memory


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


def bootstrap_ratio(table: Table, *, samples: int, seed: int, confidence: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the ratio of the table's sums.

    Utterances are drawn with replacement, and for each draw of one, as many of its seeds; with one seed, only utterances
    vary, and the interval is that of these completions and not of the model.

    Raises: ValueError if no clip has the metric.
    Source: the two-stage bootstrap of Davison and Hinkley, "Bootstrap methods and their application", 1997, section 3.8.
    """
    _check(table)
    generator = np.random.default_rng(seed)
    ratios = np.concatenate([_ratios(table, utterances, generator) for utterances in _draws(table, samples, generator)])
    return _interval(ratios, confidence)


def bootstrap_difference(
    one: Table, other: Table, *, samples: int, seed: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of `other`'s ratio less `one`'s, which hold the same utterances in the same order.

    The same utterances are drawn for both, so that what makes one hard for both does not count; seeds are drawn apart,
    since the two sides' draws have nothing to do with each other.

    Raises: ValueError if no clip has the metric, or the utterances differ in number.
    """
    for table in (one, other):
        _check(table)
    if len(one.numerators) != len(other.numerators):
        raise ValueError(f"{len(one.numerators)} utterances cannot be paired with {len(other.numerators)}")
    generator = np.random.default_rng(seed)
    differences = [
        _ratios(other, utterances, generator) - _ratios(one, utterances, generator)
        for utterances in _draws(max(one, other, key=lambda table: table.numerators.size), samples, generator)
    ]
    return _interval(np.concatenate(differences), confidence)


def _check(table: Table) -> None:
    if table.value is None:
        raise ValueError("a confidence interval needs at least one clip with the metric")


def _draws(table: Table, samples: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Indices of utterances, a block of samples at a time. Shapes: [n, U] each."""
    size = max(1, _CELLS_AT_ONCE // table.numerators.size)
    for start in range(0, samples, size):
        count = len(table.numerators)
        yield generator.integers(count, size=(min(size, samples - start), count))


def _ratios(table: Table, utterances: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.float64]:
    """The ratio in each sample, NaN where none of its clips has the metric. Shapes: [n, U] -> [n]."""
    num_seeds = table.numerators.shape[1]
    if num_seeds == 1:
        rows, columns = utterances[..., None], np.zeros((1, 1, 1), np.int64)
    else:
        rows, columns = utterances[..., None], generator.integers(num_seeds, size=(*utterances.shape, num_seeds))
    numerators = table.numerators[rows, columns].sum(axis=(1, 2))
    denominators = table.denominators[rows, columns].sum(axis=(1, 2))
    ratios = np.full(len(numerators), np.nan)
    np.divide(numerators, denominators, out=ratios, where=denominators > 0)
    return ratios


def _interval(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
