import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from elocution.config.tree import ParameterRule, RunConfig, TrainConfig
from elocution.errors import ConfigError
from elocution.testing.policies import small_llasa
from elocution.train.optim import parameter_groups, rate_factor, set_learning_rates

RULES = (
    ParameterRule(pattern="*embed*", learning_rate=0.0),
    ParameterRule(pattern="model.norm.weight", learning_rate=0.1),
    ParameterRule(pattern="*norm*", learning_rate=0.01),
)


def test_the_first_rule_that_fits_decides_and_rate_zero_freezes() -> None:
    parameters = dict(small_llasa().model.named_parameters())
    groups = parameter_groups(parameters, TrainConfig(learning_rate=1e-4, rules=RULES))
    assert [group["lr"] for group in groups] == [0.1, 0.01, 1e-4]
    assert groups[0]["params"] == [parameters["model.norm.weight"]]
    assert len(groups[1]["params"]) == 2 * 6
    frozen = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    assert frozen == ["model.embed_tokens.weight"]
    assert 1 + sum(len(group["params"]) for group in groups) == len(parameters)


def test_a_frozen_parameter_stays_to_the_bit_and_the_others_move() -> None:
    policy = small_llasa()
    before = {name: parameter.detach().clone() for name, parameter in policy.model.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(dict(policy.model.named_parameters()), TrainConfig(rules=RULES)))
    policy.llama(input_ids=torch.tensor([[1, 2, 3]])).logits.square().sum().backward()
    optimizer.step()
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, before[name]) == ("embed" in name), name


def test_a_rule_for_nothing_and_nothing_to_train_are_refused() -> None:
    parameters = dict(small_llasa().model.named_parameters())
    with pytest.raises(ConfigError, match=r"'\*lora\*' decides for no parameter"):
        parameter_groups(parameters, TrainConfig(rules=(ParameterRule(pattern="*lora*", learning_rate=1e-3),)))
    with pytest.raises(ConfigError, match=r"names like 'model\.embed_tokens\.weight'"):
        parameter_groups(parameters, TrainConfig(rules=(ParameterRule(pattern="*lora*", learning_rate=1e-3),)))
    with pytest.raises(ConfigError, match="nothing to train"):
        parameter_groups(parameters, TrainConfig(rules=(ParameterRule(pattern="*", learning_rate=0.0),)))


def test_warm_up_scales_every_group_from_its_own_rate() -> None:
    groups = parameter_groups(
        dict(small_llasa().model.named_parameters()), TrainConfig(learning_rate=1e-4, rules=RULES)
    )
    optimizer = torch.optim.AdamW(groups)
    assert [rate_factor(step, TrainConfig(warmup_steps=4)) for step in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert rate_factor(1, TrainConfig()) == 1.0
    for factor in (0.25, 1.0):
        set_learning_rates(optimizer, factor)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [0.1 * factor, 0.01 * factor, 1e-4 * factor]
        )


def test_a_schedule_without_warm_up_is_that_of_transformers() -> None:
    for name, build in (("linear", get_linear_schedule_with_warmup), ("cosine", get_cosine_schedule_with_warmup)):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        theirs = build(optimizer, num_warmup_steps=0, num_training_steps=10)
        config = TrainConfig(steps=10, lr_schedule=name)
        for step in range(1, 11):
            assert rate_factor(step, config) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
            optimizer.step()
            theirs.step()


def test_a_schedule_begins_where_the_warm_up_ends_and_would_reach_its_floor_after_the_last_step() -> None:
    config = TrainConfig(steps=8, warmup_steps=4, learning_rate=1e-4, lr_min=2e-5, lr_schedule="linear")
    factors = [rate_factor(step, config) for step in range(1, 9)]
    assert factors == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 0.8, 0.6, 0.4])  # next would be 0.2
    assert [rate_factor(step, TrainConfig(steps=3, warmup_steps=5, lr_schedule="cosine")) for step in (1, 3)] == [
        0.2,
        0.6,
    ]


def test_a_floor_above_the_rate_or_without_a_schedule_is_refused() -> None:
    for wrong in (TrainConfig(lr_min=1e-5), TrainConfig(lr_min=1e-3, lr_schedule="linear")):
        with pytest.raises(ValueError, match=r"train\.lr_min = .* must not exceed"):
            RunConfig(train=wrong)
