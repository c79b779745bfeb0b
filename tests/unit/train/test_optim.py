import pytest
import torch

from elocution.config.tree import ParameterRule, TrainConfig
from elocution.errors import ConfigError
from elocution.testing.policies import small_llasa
from elocution.train.optim import parameter_groups, set_learning_rates, warmup_factor

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
    assert [warmup_factor(step, 4) for step in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]
    assert warmup_factor(1, 0) == 1.0
    for factor in (0.25, 1.0):
        set_learning_rates(optimizer, factor)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [0.1 * factor, 0.01 * factor, 1e-4 * factor]
        )
