"""Weights that reach a TTS server in another process through a process group: proven, spoilt, refused, given up."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np
import pytest
import torch
from served_parts import FAULTS, LORA, Double, running_double

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.errors import ConfigError, EngineError, SyncError
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import add_adapter
from elocution.rollout.agreement import logprob_gap, score_completions
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.sglang_broadcast import send_tensors
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sync.payloads import SentPayload
from elocution.train.engines import Engines, build_engines
from elocution.types import Utterance

TEXTS = ("the green house", "mary painted the house", "three birds are here")
DOUBLE = Path(__file__).with_name("tts_double.py")


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with running_double(DOUBLE, str(resolve_path("builtin:tiny-llasa")), tmp_path_factory.mktemp("double")) as double:
        yield double


@pytest.fixture
def server(launched: Double) -> Double:
    launched.reset()
    return launched


def engines_of(server: Double, policy: LlasaPolicy, path: Path, *settings: str) -> Engines:
    small = ("rollout.sync.probes=2", "rollout.sync.probe_codes=8", "rollout.sync.max_retries=0")
    place = ("rollout.engine=sglang", f"rollout.server.urls=['{server.url}']", "rollout.sync.strategy=collective")
    config = load_config(None, [*place, *small, *settings])
    trained = {name: each for name, each in policy.model.named_parameters() if each.requires_grad}
    engines = build_engines(config, policy, policy, trained, path)
    engines.start([Utterance(text, text) for text in TEXTS])
    return engines


def tiny() -> LlasaPolicy:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    policy.model.eval()
    return policy


def change(policy: LlasaPolicy) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(1e-3 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.slow
@pytest.mark.parametrize("has_adapter", [pytest.param(False, marks=pytest.mark.slow), True])
def test_s62_s64_each_version_is_proven_and_drawn_from_and_no_tensor_touches_the_disk(
    server: Double, tmp_path: Path, has_adapter: bool
) -> None:
    policy, settings = tiny(), LORA if has_adapter else ()
    config = load_config(None, settings)
    if has_adapter:
        base = str(resolve_path("builtin:tiny-llasa"))
        add_adapter(policy.model, config.model.lora, targets=policy.lora_targets, seed=1, base_path=base)
    engines = engines_of(server, policy, tmp_path, *settings)
    asked = [RolloutRequest(policy.prompt_ids(Utterance(text, text)), ((0,), (1,)), 20) for text in TEXTS]
    for version in (0, 1):
        engines.rollout.publish(version)
        metrics = engines.metrics()
        assert (metrics["sync/policy_version"], metrics["sync/is_told"]) == (version, 1)
        assert metrics["sync/probe_difference_max_nats"] < 1e-4
        drawn = in_order(asked, engines.rollout.stream(asked))
        rows = [(request.prompt_ids, each) for request, group in zip(asked, drawn, strict=True) for each in group]
        own = score_completions(policy, [p for p, _ in rows], [c.ids for _, c in rows], temperature=1.0)
        assert logprob_gap([c.rollout_logprobs for _, c in rows], own).max < 1e-4
        assert {c.policy_version for _, c in rows} == {version}
        assert not list((tmp_path / "sync").rglob("*.safetensors"))
        change(policy)
    assert httpx2.get(f"{server.url}/model_info").json()["weight_version"] == "1"
    engines.stop()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_s62_s64_a_server_that_takes_tensors_wrongly_is_caught_at_the_first_sync(
    server: Double, tmp_path: Path, fault: str
) -> None:
    engines = engines_of(server, tiny(), tmp_path)
    server.reset(fault=fault, since=0)
    with pytest.raises(SyncError, match=r"not proven to have the rehearsal.*differ from the trainer's"):
        engines.rollout.publish(0)
    assert server.loads == 1
    engines.stop()


@pytest.mark.slow
def test_s64_a_server_that_lost_its_weights_is_sent_them_again(server: Double, tmp_path: Path) -> None:
    policy = tiny()
    engines = engines_of(server, policy, tmp_path)
    engines.rollout.publish(0)
    asked = [RolloutRequest(policy.prompt_ids(Utterance("u", TEXTS[0])), ((0,),), 20)]
    before = in_order(asked, engines.rollout.stream(asked))
    server.reset()  # as one that was started again: with the weights of its launch, and their name
    after = in_order(asked, engines.rollout.stream(asked))
    assert after[0][0].ids.tolist() == before[0][0].ids.tolist()
    assert engines.metrics()["engine/reloads"] == 1
    server.reset()
    change(policy)  # what the server lacks is nowhere any more
    with pytest.raises(EngineError, match="have changed since they were published"):
        in_order(asked, engines.rollout.stream(asked))
    engines.stop()


@pytest.mark.slow
def test_tensors_that_come_in_parts_are_drawn_with_when_all_have_come(server: Double) -> None:
    policy = tiny()
    change(policy)
    payload = SentPayload(policy.model, max_bucket_bytes=2_000_000)
    payload.write(Path(), 7)
    assert len(list(payload.buckets())) > 2
    servers = SglangServers(ServerSettings((server.url,), sync_timeout_s=60))
    servers.pause()
    send_tensors(servers, payload.buckets, 7)
    servers.resume()
    assert httpx2.get(f"{server.url}/model_info").json()["weight_version"] == "7"
    prompt = policy.prompt_ids(Utterance("u", TEXTS[0]))
    asked = {"input_ids": prompt.tolist(), "sampling_params": {"max_new_tokens": 20}, "return_logprob": True}
    answer = httpx2.post(f"{server.url}/generate", json=asked, timeout=60).json()
    (own,) = score_completions(policy, [prompt], [np.array(answer["output_ids"])[:, None]], temperature=1.0)
    found = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    assert found == pytest.approx(own[:, 0].tolist(), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [("model.nothing.weight", (2, 2), "has no tensor 'model.nothing.weight'"), ("lm_head.weight", (2, 2), "has shape")],
)
def test_tensors_of_another_model_are_refused_before_any_is_sent_and_the_weights_are_as_before(
    server: Double, name: str, shape: tuple[int, ...], message: str
) -> None:
    before = httpx2.get(f"{server.url}/model_info").json()
    servers = SglangServers(ServerSettings((server.url,), sync_timeout_s=60))
    servers.pause()
    with pytest.raises(EngineError, match=message):
        send_tensors(servers, lambda: iter([{name: torch.zeros(shape)}]), 5)
    servers.end_weight_update()  # nothing came to its end, so nothing is taken
    servers.resume()
    assert httpx2.get(f"{server.url}/model_info").json() == before
    assert server.loads == 0


def test_strategies_that_need_a_group_need_sglang(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"collective.*rollout\.engine = 'sglang'"):
        load_config(None, ["rollout.sync.strategy=collective", "rollout.engine=vllm"])
