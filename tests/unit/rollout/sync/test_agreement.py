import numpy as np
import pytest

from elocution.rollout.sync.agreement import Following, Movement, classify_movement, prefix_share, response_share


def test_the_share_is_that_of_the_least_squares_line() -> None:
    old, engine_old = np.zeros(4), np.array([0.1, -0.1, 0.1, -0.1])
    new = np.array([1.0, 1.0, 2.0, 2.0])
    # Response [.5, .6, 1.0, 1.1]: product with the movement 5.3, squared movement 10, residue [-.03, .07, -.06, .04].
    movement = response_share(old, new, engine_old, engine_old + np.array([0.5, 0.6, 1.0, 1.1]))
    assert movement is not None
    assert movement.share == pytest.approx(0.53)
    assert movement.error == pytest.approx((0.011 / 3 / 10) ** 0.5)


def test_a_movement_far_below_the_rounding_is_told_by_many_cells() -> None:
    generator = np.random.default_rng(0)
    old = generator.normal(size=4000)
    new = old + 0.01 * generator.normal(size=4000)
    engine_old, followed, stale = (values + 0.05 * generator.normal(size=4000) for values in (old, new, old))
    for engine, expected in ((followed, Following.FOLLOWED), (stale, Following.NOT_FOLLOWED)):
        movement = response_share(old, new, engine_old, engine)
        assert movement is not None
        assert classify_movement(movement) is expected
    few = response_share(old[:100], new[:100], engine_old[:100], followed[:100])
    assert few is not None
    assert classify_movement(few) is Following.UNTOLD


def test_without_a_movement_there_is_nothing_to_follow() -> None:
    assert response_share(np.ones(3), np.ones(3), np.ones(3), np.zeros(3)) is None


@pytest.mark.parametrize(
    ("share", "error", "expected"),
    [
        (1.0, 0.1, Following.FOLLOWED),
        (1.0, 0.2, Following.UNTOLD),
        (0.0, 0.0, Following.NOT_FOLLOWED),
        (0.0, 0.2, Following.UNTOLD),
        (2.0, 0.1, Following.NOT_FOLLOWED),
        (-1.0, 0.1, Following.NOT_FOLLOWED),
    ],
)
def test_a_share_is_believed_at_three_standard_errors(share: float, error: float, expected: Following) -> None:
    assert classify_movement(Movement(share, error)) is expected


def test_the_prefix_share_counts_up_to_the_first_difference() -> None:
    one = np.array([[1], [2], [3], [4]])
    other = np.array([[1], [2], [9], [4]])
    assert prefix_share([one], [one]) == 1
    assert prefix_share([other], [one]) == 0.5
    assert prefix_share([one[:3]], [one]) == 0.75
    assert prefix_share([one, other], [one, one]) == 0.75
