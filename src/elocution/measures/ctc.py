"""Connectionist temporal classification: the likelihood of a label sequence, and the likeliest one. Knows no audio."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_labels", "ctc_nll"]


def ctc_nll(logprobs: NDArray[np.float64], targets: list[int], blank: int) -> float:
    """Negative log of the summed probability of all alignments of `targets`, nats; infinite if there is none.

    Shapes: `logprobs` [frames, vocabulary]. `targets` has at least one label and no blank.
    Source: Graves et al. 2006, "Connectionist Temporal Classification", section 4.1.
    """
    if len(logprobs) == 0:
        return float("inf")
    states = np.full(2 * len(targets) + 1, blank)
    states[1::2] = targets
    may_skip = np.zeros(len(states), dtype=bool)
    may_skip[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    skip_logprob = np.where(may_skip, 0.0, -np.inf)
    emitted = logprobs[:, states]
    # Two impossible states in front, so that "one back" and "two back" are views of the same array.
    forward = np.full(len(states) + 2, -np.inf)
    forward[2:4] = emitted[0, :2]
    for frame in emitted[1:]:
        arrived = np.logaddexp(forward[2:], forward[1:-1])
        forward[2:] = np.logaddexp(arrived, forward[:-2] + skip_logprob) + frame
    return float(-np.logaddexp(forward[-1], forward[-2]))


def best_labels(logprobs: NDArray[np.float64], blank: int) -> list[int]:
    """The labels that the likeliest path emits. Shapes: `logprobs` [frames, vocabulary]."""
    best = logprobs.argmax(axis=1)
    starts = np.ones(len(best), dtype=bool)
    starts[1:] = best[1:] != best[:-1]
    found: list[int] = best[starts & (best != blank)].tolist()
    return found
