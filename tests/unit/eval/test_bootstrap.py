import pytest

from elocution.eval.bootstrap import bootstrap_word_error_rate
from elocution.measures.error_rates import EditCounts


def test_equal_utterances_have_an_interval_of_one_point() -> None:
    low, high = bootstrap_word_error_rate([EditCounts(1, 0, 0, 4)] * 10, samples=500, seed=0)
    assert (low, high) == (0.25, 0.25)


def test_the_interval_is_the_binomials_where_the_binomial_is_known() -> None:
    # 200 one-word utterances, 60 wrong: normal approximation 0.3 -/+ 1.96 sqrt(0.3 * 0.7 / 200) = 0.236 … 0.364.
    errors = [EditCounts(1, 0, 0, 1)] * 60 + [EditCounts(0, 0, 0, 1)] * 140
    low, high = bootstrap_word_error_rate(errors, samples=4000, seed=0)
    assert low == pytest.approx(0.236, abs=0.01)
    assert high == pytest.approx(0.364, abs=0.01)


def test_whole_utterances_are_drawn() -> None:
    # All errors sit in one long utterance: a bootstrap over words would give a far narrower interval.
    errors = [EditCounts(50, 0, 0, 50), *[EditCounts(0, 0, 0, 5)] * 10]
    low, high = bootstrap_word_error_rate(errors, samples=2000, seed=0)
    assert low == 0
    assert high > 0.7


def test_it_depends_on_the_seed_alone_and_needs_an_utterance() -> None:
    errors = [EditCounts(i % 3, 0, 0, 5) for i in range(20)]
    draws = [bootstrap_word_error_rate(errors, samples=300, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_word_error_rate([], samples=300, seed=0)
