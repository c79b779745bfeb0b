"""Which weights draw which step, from scratch: the first steps by hand, then what must hold for any setting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elocution.train.lag import sampled_after, weights_needed


@pytest.mark.parametrize(
    ("max_lag", "sync_every", "expected"),
    [
        (0, 1, [0, 1, 2, 3, 4, 5, 6]),  # synchronous
        (1, 1, [0, 0, 1, 2, 3, 4, 5]),  # one batch of overlap
        (3, 1, [0, 0, 0, 0, 1, 2, 3]),
        (4, 5, [0, 0, 0, 0, 0, 5, 5]),  # synced every five steps, no overlap
        (5, 5, [0, 0, 0, 0, 0, 0, 5]),  # the published semi-on-policy recipe: every five, one batch of overlap
        (3, 2, [0, 0, 0, 0, 2, 2, 4]),
    ],
)
def test_the_weights_behind_the_first_steps(max_lag: int, sync_every: int, expected: list[int]) -> None:
    found = [sampled_after(step, max_lag=max_lag, sync_every=sync_every) for step in range(1, 8)]
    assert found == expected


settings = st.integers(0, 12).flatmap(lambda lag: st.tuples(st.just(lag), st.integers(1, lag + 1)))


@given(settings, st.integers(1, 200))
def test_no_step_is_trained_on_weights_older_than_max_lag(setting: tuple[int, int], step: int) -> None:
    max_lag, sync_every = setting
    after = sampled_after(step, max_lag=max_lag, sync_every=sync_every)
    assert 0 <= step - 1 - after <= max_lag
    assert after % sync_every == 0
    assert after <= sampled_after(step + 1, max_lag=max_lag, sync_every=sync_every)


@given(settings, st.integers(0, 60), st.integers(1, 60))
def test_a_run_that_goes_on_after_a_step_finds_all_the_weights_it_needs(
    setting: tuple[int, int], step: int, total: int
) -> None:
    max_lag, sync_every = setting
    ahead = [sampled_after(each, max_lag=max_lag, sync_every=sync_every) for each in range(step + 1, total + 1)]
    needed = weights_needed(step, max_lag=max_lag, sync_every=sync_every, total=total)
    assert needed == {after for after in ahead if after <= step}
    assert len(needed) <= max_lag + 1
