"""Combiners: published values by hand, directions, and what each refuses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elocution.rewards.combine import (
    Constraint,
    RunningBaseline,
    constraint_penalty,
    error_power,
    error_tanh,
    gate,
    present_weights,
    update_prices,
    weighted_harmonic_mean,
    weighted_sum,
    z_score_gate,
)

units = st.floats(0, 1)
errors = st.floats(0, 5)


@pytest.mark.parametrize(
    ("error", "utility"), [(0, 1), (0.05, 0.851), (0.1, 0.709), (0.2, 0.463), (0.5, 0.095), (1, 0.005)]
)
def test_the_tanh_utility_has_its_published_values(error: float, utility: float) -> None:
    assert error_tanh(error, alpha=3) == pytest.approx(utility, abs=5e-4)


def test_the_power_utility_by_hand() -> None:
    assert error_power(0) == 1
    assert error_power(0.25) == pytest.approx(math.exp(-1.5))
    assert error_power(1) == pytest.approx(math.exp(-12))


@pytest.mark.parametrize(("wer", "nll", "reward"), [(0, 0.5, 0.932), (0, 1, 0.863), (0.1, 1, 0.712), (0.5, 1, 0.145)])
def test_the_harmonic_mean_has_its_published_values(wer: float, nll: float, reward: float) -> None:
    values = {"wer": error_tanh(wer, alpha=3), "nll": math.exp(-nll / 3)}
    assert weighted_harmonic_mean(values, {"wer": 0.6, "nll": 0.4}) == pytest.approx(reward, abs=5e-4)


@given(errors, errors)
def test_more_errors_never_mean_more_reward(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert error_tanh(low, alpha=3) >= error_tanh(high, alpha=3)
    assert error_power(low) >= error_power(high)
    assert gate(0.7, low, beta=10) >= gate(0.7, high, beta=10)


@given(units, units, units)
def test_a_better_component_never_means_less(a: float, b: float, other: float) -> None:
    low, high = sorted((a, b))
    weights = {"x": 0.3, "y": 0.7}
    for combine in (weighted_sum, weighted_harmonic_mean):
        assert combine({"x": low, "y": other}, weights) <= combine({"x": high, "y": other}, weights) + 1e-12
        assert 0 <= combine({"x": low, "y": other}, weights) <= 1 + 1e-12


def test_the_gate_refuses_a_negative_score() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        gate(-0.1, 0.0, beta=10)
    assert gate(0.0, 0.3, beta=10) == 0


def test_the_published_gate_rewards_garbling_below_the_mean_and_ours_does_not() -> None:
    baselines = {"speaker": RunningBaseline(mean=0.4, variance=0.01, count=10)}
    weights = {"speaker": 1.0}
    clear, garbled = (z_score_gate({"speaker": 0.3}, weights, baselines, wer, beta=10) for wer in (0.0, 0.3))
    assert clear == pytest.approx(-1.0, rel=1e-5)
    assert garbled == pytest.approx(-math.exp(-3), rel=1e-5)
    assert garbled > clear
    assert gate(0.65, 0.3, beta=10) < gate(0.65, 0.0, beta=10)


def test_s77_a_running_baseline_follows_its_batches_and_starts_with_the_first() -> None:
    start = RunningBaseline()
    assert start.z_score(5.0) == 0.0
    first = start.after([1.0, 3.0], momentum=0.9)
    assert (first.mean, first.variance, first.count) == (2.0, 1.0, 2)
    assert first.z_score(3.0) == pytest.approx(1.0)
    second = first.after([4.0, 4.0], momentum=0.9)
    assert second.mean == pytest.approx(2.2)
    assert second.variance == pytest.approx(0.9)
    assert second.after([], momentum=0.9) == second


def test_s16_a_component_that_was_not_measured_is_renormalised_or_drops_the_completion() -> None:
    weights = {"wer": 0.6, "speaker": 0.3, "quality": 0.1}
    values = {"wer": 0.5, "quality": 1.0}
    assert present_weights(values, weights, on_missing="renormalize") == pytest.approx({"wer": 6 / 7, "quality": 1 / 7})
    assert present_weights(values, weights, on_missing="drop") is None
    assert present_weights({}, weights, on_missing="renormalize") is None
    assert present_weights(weights, weights, on_missing="drop") == pytest.approx(weights)


def test_weights_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="no weight for emotion"):
        present_weights({"emotion": 1.0}, {"wer": 1.0}, on_missing="renormalize")
    for combine in (weighted_sum, weighted_harmonic_mean):
        with pytest.raises(ValueError, match="values of a, but weights of b"):
            combine({"a": 1.0}, {"b": 1.0})


@pytest.mark.parametrize("error", [-0.1, float("nan")])
def test_an_error_rate_that_is_none_is_refused(error: float) -> None:
    for function in (error_power, lambda value: error_tanh(value, alpha=3), lambda value: gate(1.0, value, beta=1)):
        with pytest.raises(ValueError, match="at least 0"):
            function(error)


def test_a_constraints_price_rises_while_it_is_violated_and_falls_when_it_holds() -> None:
    constraints = {"similarity": Constraint(at_least=0.8), "rate": Constraint(at_most=16.0, scale=4.0)}
    prices: dict[str, float] = {}
    seen = []
    for similarity in (0.7, 0.7, 0.7, 0.9, 0.9, 0.9, 0.9):
        prices = update_prices(prices, constraints, {"similarity": similarity, "rate": 15}, rate=1.0, largest=10)
        seen.append(round(prices["similarity"], 6))
    assert seen == [0.1, 0.2, 0.3, 0.2, 0.1, 0.0, 0.0]
    assert prices["rate"] == 0
    # 2 above the limit is half a scale; a measure that nothing is known of leaves its price.
    assert update_prices(prices, constraints, {"rate": 18}, rate=1.0, largest=10) == {"similarity": 0.0, "rate": 0.5}


def test_a_penalty_is_price_times_violation_and_negative_on_the_right_side() -> None:
    constraints = {"similarity": Constraint(at_least=0.8), "rate": Constraint(at_most=16.0, scale=4.0)}
    prices = {"similarity": 2.0, "rate": 0.5}
    assert constraint_penalty(prices, constraints, {"similarity": 0.7, "rate": 18.0}) == pytest.approx(0.2 + 0.25)
    assert constraint_penalty(prices, constraints, {"similarity": 0.9, "rate": 10.0}) == pytest.approx(-0.2 - 0.75)
    assert constraint_penalty({}, constraints, {"similarity": 0.0, "rate": 99.0}) == 0
    with pytest.raises(ValueError, match="either at_least or at_most"):
        Constraint()


def test_a_price_is_bounded() -> None:
    constraints = {"x": Constraint(at_least=1.0)}
    assert update_prices({"x": 4.0}, constraints, {"x": -100.0}, rate=1.0, largest=5.0) == {"x": 5.0}
