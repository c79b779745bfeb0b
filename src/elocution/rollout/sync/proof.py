"""Proofs that an engine has the trainer's weights: by log-probs of fixed probes, or by greedy ids where it cannot score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elocution.errors import SyncError
from elocution.policies.base import Policy
from elocution.rollout.sync.agreement import (
    Following,
    Movement,
    classify_movement,
    flatten,
    prefix_share,
    response_share,
)
from elocution.rollout.sync.base import GreedyDecoder, Probe, ProbeScorer
from elocution.rollout.sync.probes import greedy_gaps, greedy_ids, probe_logprobs

__all__ = ["Evidence", "GreedyProof", "LogprobProof", "Proof", "Values", "default_bound"]

Values = tuple[NDArray[Any], ...]
# The mean over cells stays this far below the largest difference, in fp32 and in bf16; it shows what is wrong in many cells.
_MEAN_SHARE = 0.1
_BOUNDS = {"fp32": 1e-3, "bf16": 0.5}


@dataclass(frozen=True)
class Evidence:
    """What a proof saw: the trainer's values, the engine's, whether these moved with the trainer's, and figures."""

    expected: Values
    measured: Values
    following: Following | None
    figures: Mapping[str, float]


class Proof(Protocol):
    """Compares an engine with the trainer."""

    def expected(self) -> Values:
        """The trainer's values for the probes, with the weights that it has now."""

    def distinguishes(self, one: Values, other: Values) -> bool:
        """Whether two sets of the trainer's values differ by so much that an engine cannot pass for both."""

    def check(self, expected: Values, previous: Evidence | None) -> Evidence:
        """Asks the engine. `previous` is what the last proof saw that told, if what the engine is given has changed since.

        Raises: SyncError if the engine's values are not the trainer's, or are still the old ones.
        """


def default_bound(*precisions: str) -> float:
    """The largest difference of log-probs that rounding explains, nats, for the least precise of `precisions`.

    The same sum in another order differs by 2e-5 at most in fp32 and by 0.15 in bf16, weights rounded to bf16 included,
    on the tiny checkpoint; an adapter of wrong scale, or a layer left out, by far more than 1e-3.
    """
    return max(_BOUNDS[precision] for precision in precisions)


class LogprobProof:
    """No log-prob of the probes may differ from the trainer's by more than `max_difference` nats, the mean by a tenth."""

    def __init__(self, policy: Policy, scorer: ProbeScorer, probes: Sequence[Probe], *, max_difference: float) -> None:
        self._policy, self._scorer, self._probes = policy, scorer, probes
        self._max = max_difference

    def expected(self) -> Values:
        return tuple(probe_logprobs(self._policy, self._probes))

    def distinguishes(self, one: Values, other: Values) -> bool:
        """The mean difference is ten times what the mean may be."""
        return bool(np.abs(flatten(one) - flatten(other)).mean() >= self._max)

    def check(self, expected: Values, previous: Evidence | None) -> Evidence:
        measured = tuple(self._scorer.score(self._probes))
        if [value.size for value in measured] != [value.size for value in expected]:
            raise SyncError(
                f"the engine scored probes of shapes {[v.shape for v in measured]}, not {[v.shape for v in expected]}"
            )
        new, found = flatten(expected), flatten(measured)
        if not np.isfinite(found).all():
            raise SyncError("the engine's log-probs of the probes are not finite")
        difference = np.abs(found - new)
        figures = {
            "sync/probe_difference_max_nats": float(difference.max()),
            "sync/probe_difference_mean_nats": float(difference.mean()),
        }
        if difference.max() > self._max or difference.mean() > _MEAN_SHARE * self._max:
            raise SyncError(
                f"the engine's log-probs of {len(found)} probe ids differ from the trainer's by {difference.max():.2e} "
                f"nats at most and {difference.mean():.2e} on average (bounds: {self._max:g} and "
                f"{_MEAN_SHARE * self._max:g})"
            )
        movement = None
        if previous is not None:
            movement = response_share(flatten(previous.expected), new, flatten(previous.measured), found)
        following = None if movement is None else classify_movement(movement)
        if movement is not None:
            figures |= {"sync/followed_share": movement.share, "sync/followed_error": movement.error}
            _check_following(following, movement)
        return Evidence(expected, measured, following, figures)


class GreedyProof:
    """Every id that the engine draws greedily must be, to the trainer, as probable as the best but for rounding.

    If no log-prob of the engine is off by more than `max_difference`, an id that it takes for the most probable is less
    probable to the trainer than the best by twice that at most. The reverse does not hold: wrong weights show only where
    they change a choice.
    """

    def __init__(
        self, policy: Policy, decoder: GreedyDecoder, probes: Sequence[Probe], *, max_difference: float
    ) -> None:
        self._policy, self._decoder, self._probes = policy, decoder, probes
        self._max = max_difference

    def expected(self) -> Values:
        return tuple(greedy_ids(self._policy, self._probes))

    def distinguishes(self, one: Values, other: Values) -> bool:
        """Most of the sequences part before their middle."""
        return prefix_share(one, other) < 0.5

    def check(self, expected: Values, previous: Evidence | None) -> Evidence:
        measured = tuple(self._decoder.greedy(self._probes))
        share = self._check_ids(expected, measured)
        following = None
        if previous is not None and not _equal(previous.expected, expected):
            # Where the trainer's choice has changed, an engine with new weights makes the new one.
            is_stale = _equal(previous.measured, measured)
            following = Following.NOT_FOLLOWED if is_stale else Following.FOLLOWED
        if following is Following.NOT_FOLLOWED:
            raise SyncError("the engine draws greedily what it drew before the sync, the trainer does not")
        return Evidence(expected, measured, following, share)

    def _check_ids(self, expected: Values, measured: Values) -> dict[str, float]:
        sizes = self._policy.channel_sizes
        if len(measured) != len(expected) or any(
            ids.ndim != 2
            or ids.shape[1] != len(sizes)
            or not len(ids)
            or ((ids < 0) | (ids >= np.array(sizes))).any()
            or self._policy.illegal_cells(ids).any()
            for ids in measured
        ):
            raise SyncError("the engine's greedy ids are not one sequence of legal ids for each probe")
        drawn = [Probe(probe.prompt_ids, ids) for probe, ids in zip(self._probes, measured, strict=True)]
        gap = float(flatten(greedy_gaps(self._policy, drawn)).max())
        share = prefix_share(measured, expected)
        if gap > 2 * self._max:
            raise SyncError(
                f"an id that the engine takes for the most probable is less probable to the trainer than the best by "
                f"{gap:.2e} nats (bound: {2 * self._max:g}); {100 * share:.0f} % of the trainer's own greedy ids agree"
            )
        return {"sync/greedy_gap_max_nats": gap, "sync/greedy_prefix_share": share}


def _check_following(following: Following | None, movement: Movement) -> None:
    if following is Following.NOT_FOLLOWED:
        raise SyncError(
            f"the engine's log-probs show {movement.share:.2f} ± {movement.error:.2f} of the trainer's change since the "
            "last sync, not 1: it has other weights than the new ones, though they are nearly the same"
        )


def _equal(one: Values, other: Values) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
