"""Which weights draw the completions of a step: functions of the step alone, so that a run does not depend on timing."""

__all__ = ["sampled_after", "weights_needed"]


def sampled_after(step: int, *, max_lag: int, sync_every: int) -> int:
    """The step after whose updates the weights stand that draw the completions of `step`; 0 before any. Steps from 1.

    The weights are synced after every `sync_every` steps, and a batch is begun `max_lag - (sync_every - 1)` steps before
    its turn, so that when it is trained on, its weights are at most `max_lag` steps old.
    """
    overlap = max_lag - (sync_every - 1)
    return max(0, (step - 1 - overlap) // sync_every * sync_every)


def weights_needed(step: int, *, max_lag: int, sync_every: int, total: int) -> set[int]:
    """The steps up to `step` whose weights draw completions of the steps after it, `total` being the last."""
    later = range(step + 1, min(step + 1 + max_lag, total) + 1)
    return {after for each in later if (after := sampled_after(each, max_lag=max_lag, sync_every=sync_every)) <= step}
