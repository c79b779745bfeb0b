from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.errors import ConfigError, EngineError, MissingDependency
from elocution.rollout.sync.shared import EngineUser
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa
from elocution.train.engines import build_engines


def test_engines_sample_at_the_temperatures_of_training_and_evaluation(tmp_path: Path) -> None:
    policy = small_llasa()
    config = load_config(None, ["rollout.temperature=0.9", "eval.temperature=0.4"])
    engines = build_engines(config, policy, policy, {}, tmp_path)
    assert isinstance(engines.rollout, TorchEngine)
    assert engines.metrics() == {}
    assert (engines.rollout.temperature, engines.evaluation.temperature) == (0.9, 0.4)


def test_engines_of_servers_by_url_touch_nothing_until_they_are_started(tmp_path: Path) -> None:
    policy = small_llasa()
    config = load_config(None, ["rollout.engine=vllm", "rollout.server.urls=['http://127.0.0.1:1']"])
    engines = build_engines(config, policy, policy, {}, tmp_path)
    assert isinstance(engines.rollout, EngineUser)
    with pytest.raises(EngineError, match="has not been started"):
        engines.rollout.publish(0)
    counted = ("retries", "late", "reloads", "stale", "illegal_ids")
    assert engines.metrics() == {f"engine/{name}": 0 for name in counted}
    engines.stop()
    assert list(tmp_path.iterdir()) == []


def test_s89_vllm_without_an_installation_says_how_to_get_it(tmp_path: Path) -> None:
    policy = small_llasa()
    config = load_config(None, ["rollout.engine=vllm"])
    with pytest.raises(MissingDependency, match=r"rollout\.server\.python"):
        build_engines(config, policy, policy, {}, tmp_path)


def test_servers_hold_one_set_of_weights_and_take_no_lag(tmp_path: Path) -> None:
    policy = small_llasa()
    lagging = ["rollout.engine=vllm", "train.max_lag=1", "algorithm.correction=token_truncate"]
    with pytest.raises(ConfigError, match=r"train\.max_lag = 1 needs rollout\.engine"):
        build_engines(load_config(None, lagging), policy, policy, {}, tmp_path)
