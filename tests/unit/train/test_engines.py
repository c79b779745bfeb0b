from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.errors import ConfigError, EngineError, MissingDependency
from elocution.rollout.sync.shared import EngineUser
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa, small_moss
from elocution.train.engines import build_engines
from elocution.train.mirror import mirror_of


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


def test_a_policy_of_several_channels_is_refused_for_vllm_before_it_is_looked_for(tmp_path: Path) -> None:
    policy = small_moss()
    with pytest.raises(ConfigError, match=r'draws 5 ids at a position, a vLLM server draws one; .*"torch" or "sglang"'):
        build_engines(load_config(None, ["rollout.engine=vllm"]), policy, policy, {}, tmp_path)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_servers_of_older_weights_are_not_asked_by_evaluations(tmp_path: Path, engine: str) -> None:
    policy = small_llasa()
    settings = [f"rollout.engine={engine}", "rollout.server.urls=['http://127.0.0.1:1']", "eval.temperature=0.4"]
    lagging = ["train.max_lag=1", "algorithm.correction=token_truncate"]
    engines = build_engines(load_config(None, [*settings, *lagging]), policy, mirror_of(policy), {}, tmp_path)
    assert isinstance(engines.rollout, EngineUser)
    assert isinstance(engines.evaluation, TorchEngine)
    assert engines.evaluation.temperature == 0.4
    same = build_engines(load_config(None, settings), policy, policy, {}, tmp_path)
    assert isinstance(same.evaluation, EngineUser)
