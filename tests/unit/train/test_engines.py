from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.errors import ConfigError, MissingDependency
from elocution.rollout.torch_engine import TorchEngine
from elocution.rollout.vllm import VllmEngine
from elocution.testing.policies import small_llasa
from elocution.train.engines import build_engines


def test_engines_sample_at_the_temperatures_of_training_and_evaluation(tmp_path: Path) -> None:
    policy = small_llasa()
    config = load_config(None, ["rollout.temperature=0.9", "eval.temperature=0.4"])
    engines = build_engines(config, policy, policy, policy.save_pretrained, tmp_path)
    assert isinstance(engines.rollout, TorchEngine)
    assert engines.counts() == {}
    assert (engines.rollout.temperature, engines.evaluation.temperature) == (0.9, 0.4)


def test_engines_of_servers_by_url_touch_nothing_until_they_are_started(tmp_path: Path) -> None:
    policy = small_llasa()
    config = load_config(None, ["rollout.engine=vllm", "rollout.server.urls=['http://127.0.0.1:1']"])
    engines = build_engines(config, policy, policy, policy.save_pretrained, tmp_path)
    assert isinstance(engines.rollout, VllmEngine)
    assert engines.counts() == {"retries": 0, "late": 0, "reloads": 0, "stale": 0, "illegal_ids": 0}
    engines.stop()
    assert list(tmp_path.iterdir()) == []


def test_s89_vllm_without_an_installation_says_how_to_get_it(tmp_path: Path) -> None:
    policy = small_llasa()
    config = load_config(None, ["rollout.engine=vllm"])
    with pytest.raises(MissingDependency, match=r"rollout\.server\.python"):
        build_engines(config, policy, policy, policy.save_pretrained, tmp_path)


def test_servers_hold_one_set_of_weights_and_take_no_lag(tmp_path: Path) -> None:
    policy = small_llasa()
    lagging = ["rollout.engine=vllm", "train.max_lag=1", "algorithm.correction=token_truncate"]
    with pytest.raises(ConfigError, match=r"train\.max_lag = 1 needs rollout\.engine"):
        build_engines(load_config(None, lagging), policy, policy, policy.save_pretrained, tmp_path)
