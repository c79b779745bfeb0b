import pytest

from elocution.data.sampler import PromptSampler


def test_a_pass_has_every_prompt_at_most_once_and_passes_differ() -> None:
    sampler = PromptSampler(10, 3, seed=0)
    passes = [[index for step in range(first, first + 3) for index in sampler.batch(step)] for first in (0, 3)]
    assert all(len(set(dealt)) == 9 for dealt in passes)
    assert passes[0] != passes[1]


def test_s77_the_order_depends_on_seed_and_step_alone() -> None:
    assert PromptSampler(50, 8, seed=1).batch(17) == PromptSampler(50, 8, seed=1).batch(17)
    assert PromptSampler(50, 8, seed=1).batch(17) != PromptSampler(50, 8, seed=2).batch(17)


def test_more_prompts_a_step_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot take 5"):
        PromptSampler(4, 5, seed=0)


def test_extra_prompts_of_a_step_are_others_and_attempts_share_none() -> None:
    sampler = PromptSampler(20, 4, seed=3)
    own, first, second = sampler.batch(2), sampler.extra(2, 0, 4), sampler.extra(2, 1, 4)
    assert len({*own, *first, *second}) == 12
    assert first == PromptSampler(20, 4, seed=3).extra(2, 0, 4)
    assert sampler.extra(2, 0, 2) == first[:2]
    assert sampler.extra(2, 4, 4) == []
