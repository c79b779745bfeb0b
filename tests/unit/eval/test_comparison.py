"""Verdicts on pairs of evaluations whose truth is known, and the choice among checkpoints."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elocution.errors import EvaluationError
from elocution.eval.clips import ClipResult
from elocution.eval.comparison import Verdict, compare_evaluations
from elocution.eval.composite import Candidate, choose_best, composite
from elocution.measures.error_rates import EditCounts

PLAN: dict[str, Any] = {
    "set": {"name": "set", "digest": "d"},
    "recogniser": {"name": "judge"},
    "normalizers": {},
    "measures": {},
    "sampler": {"temperature": 1.0},
}


def evaluation(
    errors: Callable[[np.random.Generator], int], *, seeds: int = 3, **facts: float
) -> tuple[dict[str, Any], list[ClipResult]]:
    """60 items of ten words; a little noise on each fact, so that its interval is one."""
    generator = np.random.default_rng(len(facts) + seeds)
    clips = []
    for item in range(60):
        for seed in range(seeds):
            counts = EditCounts(min(10, errors(generator)), 0, 0, 10)
            noisy = {name: value * generator.normal(1, 0.02) for name, value in facts.items()}
            clips.append(
                ClipResult(f"i{item}", seed, "text", "en", "heard", spoken=counts, hit_limit=False, facts=noisy)
            )
    return {"plan": PLAN}, clips


def many(generator: np.random.Generator) -> int:
    return int(generator.binomial(10, 0.3))


def few(generator: np.random.Generator) -> int:
    return int(generator.binomial(10, 0.1))


def test_s88_the_same_policy_twice_shows_no_difference() -> None:
    one, other = evaluation(many, rate=12.0), evaluation(many, f0_spread=3.0, rate=12.0)
    found = compare_evaluations(one, other)
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.differences["wer"].low < 0 < found.differences["wer"].high


def test_fewer_errors_are_better_and_more_are_worse() -> None:
    one, other = evaluation(many, rate=12.0), evaluation(few, rate=12.1)
    found = compare_evaluations(one, other)
    assert (found.verdict, found.fell) == (Verdict.BETTER, ())
    assert found.differences["wer"].value == pytest.approx(-0.2, abs=0.03)
    assert found.differences["wer"].high < -0.15
    assert compare_evaluations(other, one).verdict is Verdict.WORSE


@pytest.mark.parametrize(
    ("before", "after", "fell"),
    [
        ({"f0_spread": 3.0}, {"f0_spread": 1.5}, True),  # flat
        ({"f0_spread": 3.0}, {"f0_spread": 2.9}, False),  # within a tenth
        ({"f0_spread": 3.0}, {"f0_spread": 4.5}, False),
        ({"rate": 12.0}, {"rate": 15.0}, True),  # too fast
        ({"rate": 12.0}, {"rate": 9.0}, True),  # too slow
        ({"speaker_similarity": 0.7}, {"speaker_similarity": 0.66}, True),  # any fall of likeness counts
        ({"speaker_similarity": 0.7}, {"speaker_similarity": 0.75}, False),
        ({"quality": 3.5}, {"quality": 3.3}, True),
        ({"silence_share": 0.1}, {"silence_share": 0.3}, True),
        ({"repeated_share": 0.01}, {"repeated_share": 0.2}, True),
    ],
)
def test_s12_s13_fewer_errors_are_not_better_where_a_guarded_metric_fell(
    before: dict[str, float], after: dict[str, float], fell: bool
) -> None:
    found = compare_evaluations(evaluation(many, **before), evaluation(few, **after))
    assert found.verdict is (Verdict.GUARD_FELL if fell else Verdict.BETTER)
    assert found.fell == (tuple(after) if fell else ())


def test_runaways_are_guarded() -> None:
    one, other = evaluation(many), evaluation(few)
    for clip in other[1][::4]:
        object.__setattr__(clip, "hit_limit", True)
    assert compare_evaluations(one, other).fell == ("hit_limit_share",)


def test_two_seeds_do_not_make_a_claim() -> None:
    found = compare_evaluations(evaluation(many, seeds=3), evaluation(few, seeds=2))
    assert found.verdict is Verdict.FEW_SEEDS
    assert found.differences["wer"].high < 0  # the difference is shown all the same


def test_only_items_of_both_count_and_the_others_are_named() -> None:
    one, other = evaluation(many), evaluation(few)
    other[1][:] = [clip for clip in other[1] if clip.id not in ("i1", "i2")]
    found = compare_evaluations(one, other)
    assert (found.num_pairs, found.num_unpaired) == (58, 2)
    assert "2 items are scored in one of the two alone, and do not count" in found.notes
    assert "not measured, so not guarded: likeness, quality" in found.notes
    assert found.row()["differences"]["wer"]["difference"] == found.differences["wer"].value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recogniser": {"name": "another"}}, "differ in recogniser"),
        ({"normalizers": {"spoken": "2"}}, "differ in normalizers"),
        ({"set": {"name": "other", "digest": "d"}}, "different sets: set and other"),
    ],
)
def test_numbers_that_mean_different_things_are_not_compared(change: dict[str, Any], message: str) -> None:
    one, other = evaluation(many), evaluation(few)
    with pytest.raises(EvaluationError, match=message):
        compare_evaluations(one, ({"plan": PLAN | change}, other[1]))


def test_evaluations_without_a_common_item_are_not_compared() -> None:
    one, other = evaluation(many), evaluation(few)
    with pytest.raises(EvaluationError, match="share no scored item"):
        compare_evaluations((one[0], one[1][:3]), (other[0], other[1][-3:]))


def test_the_composite_is_a_geometric_mean_of_what_was_measured() -> None:
    wer = {"wer": {"value": 0.19}}
    assert composite(wer) == pytest.approx(0.81)
    assert composite({**wer, "hit_limit_share": {"value": 0.0}}) == pytest.approx(0.9)  # sqrt(0.81 * 1)
    whole = {**wer, "hit_limit_share": {"value": 0.0}, "speaker_similarity": {"value": 0.5}, "quality": {"value": 3.0}}
    assert composite(whole) == pytest.approx((0.81 * 1 * 0.5 * 0.5) ** 0.25)
    assert composite({"wer": {"value": 3.0}}) == 0


def test_the_best_has_the_highest_composite_among_those_that_kept_their_guards() -> None:
    candidates = [
        Candidate(1, 0.7, ()),
        Candidate(2, 0.9, ("f0_spread",)),
        Candidate(3, 0.8, ()),
        Candidate(4, 0.8, ()),
    ]
    assert choose_best(candidates) == candidates[2]
    assert choose_best([candidates[1]]) is None
