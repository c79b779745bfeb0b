import numpy as np
import pytest

from elocution.errors import EngineError
from elocution.rollout.base import RolloutRequest
from elocution.rollout.completions_api import (
    IncompleteAnswer,
    Sampling,
    plan_draws,
    sampling_seed,
    score_body,
    scores_of,
)

PROMPT = np.array([5, 6, 7])
SAMPLING = Sampling(0.7, (10, 11, 12, 13), (13,))


def test_siblings_have_seeds_that_follow_each_other() -> None:
    first = sampling_seed((0, 4, 17, 0))
    assert [sampling_seed((0, 4, 17, sibling)) for sibling in range(3)] == [first, first + 1, first + 2]


def test_seeds_differ_in_every_number_and_fit_the_server() -> None:
    tuples = [(a, b, c) for a in range(5) for b in range(5) for c in (0, 2**31, 2**62)]
    seeds = [sampling_seed(each) for each in tuples]
    assert len(set(seeds)) == len(tuples)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sampling_seed((1, 23, 0)) != sampling_seed((12, 3, 0))


def test_a_seed_that_would_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="got -1"):
        sampling_seed((0, -1))


def test_each_completion_is_a_call_of_its_own_and_the_largest_budget_comes_first() -> None:
    short = RolloutRequest(PROMPT, tuple((0, 1, sibling) for sibling in range(2)), 30)
    long = RolloutRequest(PROMPT, ((0, 2, 0), (0, 3, 4)), 50)
    draws = plan_draws([short, long])
    assert [(draw.request, draw.sibling, draw.max_new) for draw in draws] == [
        (1, 0, 50),
        (1, 1, 50),
        (0, 0, 30),
        (0, 1, 30),
    ]
    for draw in draws:
        assert draw.seed == sampling_seed([short, long][draw.request].seeds[draw.sibling])


def test_each_scored_position_is_a_prompt_that_ends_before_it() -> None:
    body = score_body([5, 6], [10, 11, 10, 13], range(1, 4), SAMPLING, model="m", cache_salt="w")
    assert body["prompt"] == [[5, 6, 10], [5, 6, 10, 11], [5, 6, 10, 11, 10]]
    assert body["logprob_token_ids"] == [10, 11, 13]
    assert body["allowed_token_ids"] == (10, 11, 12, 13)
    assert body["max_tokens"] == 1


def test_scores_are_picked_by_id_and_position() -> None:
    def choice(index: int, **values: float) -> dict[str, object]:
        names = {f"token_id:{key[1:]}": value for key, value in values.items()}
        return {"index": index, "logprobs": {"top_logprobs": [names]}}

    answer = {"choices": [choice(1, t11=-2.0, t12=-0.5), choice(0, t12=-3.0, t10=-0.25)]}
    assert scores_of(answer, [9, 10, 11], range(1, 3)).tolist() == [-0.25, -2.0]
    with pytest.raises(EngineError, match="no log-prob of id 13"):
        scores_of(answer, [9, 13, 11], range(1, 3))
    with pytest.raises(IncompleteAnswer, match="gave 2 samples, 3 were asked for"):
        scores_of(answer, [9, 10, 11], range(3))
