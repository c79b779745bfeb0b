"""The SGLang engine with a policy of several channels, on our own server; answers are changed on their way as the fork would."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from elocution.codecs.tiny import MelSettings
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.errors import EngineError, RatioMismatch
from elocution.policies.moss import MossPolicy
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang import SglangEngine
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sglang_settings import SglangSettings
from elocution.rollout.sglang_sync import SglangSync
from elocution.rollout.sync.base import Probe
from elocution.rollout.sync.probes import draw_probes, greedy_ids
from elocution.serve.tts_app import TtsService, build_app
from elocution.serve.tts_server import TtsSettings, tts_service
from elocution.testing.policies import small_moss
from elocution.testing.running_app import running
from elocution.types import Utterance

UTTERANCES = [Utterance(text, text) for text in ("mary painted the house", "one three", "the house")]


class Meddling(httpx2.AsyncBaseTransport):
    """Changes the answers of `/generate`."""

    def __init__(self) -> None:
        self.change: Callable[[Any], Any] = lambda answer: answer

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        async with httpx2.AsyncHTTPTransport() as transport:
            response = await transport.handle_async_request(request)
            content = await response.aread()
            if request.url.path == "/generate" and response.status_code == 200:
                content = json.dumps(self.change(json.loads(content))).encode()
            return httpx2.Response(response.status_code, content=content)


@pytest.fixture(scope="module")
def policy() -> MossPolicy:
    return small_moss()


@pytest.fixture(scope="module")
def folder(policy: MossPolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("moss")
    policy.save_pretrained(str(made / "moss"))
    books = 0.5 * torch.randn(4, 16, 640, generator=torch.Generator().manual_seed(0))
    TinyResidualCodec(books, MelSettings(frames_per_code=8)).save_pretrained(made / "codec")
    return made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[TtsService, str]]:
    settings = TtsSettings(
        model=str(folder / "moss"), family="moss", codec="tiny-residual", codec_path=str(folder / "codec")
    )
    with tts_service(settings) as service, running(build_app(service), drain_s=10) as url:
        yield service, url


@pytest.fixture
def meddling() -> Meddling:
    return Meddling()


@pytest.fixture
def engine(policy: MossPolicy, folder: Path, served: tuple[TtsService, str], meddling: Meddling) -> SglangEngine:
    servers = SglangServers(ServerSettings((served[1],), max_retries=0), transport=meddling)
    made = SglangEngine(policy, servers, SglangSync(servers), temperature=0.9, settings=SglangSettings(max_redraws=2))
    made.load_weights(folder / "moss", 3)
    return made


def requests(policy: MossPolicy) -> list[RolloutRequest]:
    return [RolloutRequest(policy.prompt_ids(u), ((0, i), (1, i)), 40) for i, u in enumerate(UTTERANCES)]


def without_logprobs(answer: Any) -> Any:
    return answer | {"meta_info": {k: v for k, v in answer["meta_info"].items() if k != "row_logprobs"}}


@pytest.mark.parametrize("gives_logprobs", [True, False])
def test_s44_rows_have_the_policys_logprobs_whoever_computes_them(
    engine: SglangEngine, policy: MossPolicy, meddling: Meddling, gives_logprobs: bool
) -> None:
    if not gives_logprobs:
        meddling.change = without_logprobs
    asked = requests(policy)
    groups = engine.generate(asked)
    for request, group in zip(asked, groups, strict=True):
        own = score_completions(policy, [request.prompt_ids] * 2, [c.ids for c in group], temperature=0.9)
        for completion, logprobs in zip(group, own, strict=True):
            np.testing.assert_allclose(completion.rollout_logprobs, logprobs, atol=1e-4)
            assert not policy.illegal_cells(completion.ids).any()
            assert completion.policy_version == 3
            assert len(completion.ids) <= request.max_new
    assert engine.metrics()["engine/scored_here"] == (0 if gives_logprobs else 6)


def test_s47_rows_that_the_pattern_forbids_are_drawn_again_as_often_as_allowed(
    engine: SglangEngine, policy: MossPolicy, meddling: Meddling
) -> None:
    def ends_at_once(answer: Any) -> Any:
        """A turn that ends in its first row, where the policy's may not."""
        if not len(spoilt) < most:
            return answer
        spoilt.append(1)
        rows = answer["output_ids"]
        rows[0][0] = policy.slots.im_end
        return answer

    spoilt: list[int] = []
    most = 1
    meddling.change = ends_at_once
    engine.generate(requests(policy))
    assert engine.metrics()["engine/redrawn"] == 1
    assert engine.metrics()["engine/illegal_ids"] >= 1
    most = 10**6
    with pytest.raises(EngineError, match="after 2 redraws; does the server keep to the rules of the delay pattern"):
        engine.generate(requests(policy))


def test_s62_greedy_rows_are_those_of_the_policy_and_prove_a_server_that_has_loaded_again(
    engine: SglangEngine, policy: MossPolicy, served: tuple[TtsService, str], folder: Path, tmp_path: Path
) -> None:
    probes = draw_probes(policy, UTTERANCES, count=3, length=24, seed=0)
    own = greedy_ids(policy, probes)
    assert [ids.tolist() for ids in engine.greedy(probes)] == [ids.tolist() for ids in own]
    service = served[0]
    service.engine.weight_version = "default"  # as after a restart
    engine.generate(requests(policy))
    assert engine.metrics()["engine/reloads"] == 1
    other = small_moss(seed=1)
    load, service.engine._load = service.engine._load, lambda path: other
    try:
        service.engine.weight_version = "default"
        with pytest.raises(
            RatioMismatch, match=r"loaded its weights again, and now gives greedy ids of which \d+ % agree"
        ):
            engine.generate(requests(policy))
    finally:
        service.engine._load = load


def test_servers_that_draw_greedily_otherwise_are_found(
    engine: SglangEngine, policy: MossPolicy, folder: Path, served: tuple[TtsService, str]
) -> None:
    probes: tuple[Probe, ...] = draw_probes(policy, UTTERANCES, count=2, length=24, seed=0)
    settings = TtsSettings(
        model=str(folder / "moss"), family="moss", codec="tiny-residual", codec_path=str(folder / "codec")
    )
    with tts_service(settings) as second, running(build_app(second), drain_s=10) as url:
        servers = SglangServers(ServerSettings((served[1], url)))
        pair = SglangEngine(policy, servers, SglangSync(servers), temperature=1.0, settings=SglangSettings())
        pair.load_weights(folder / "moss", 4)
        assert len(pair.greedy(probes)) == 2
        second.engine.policy = small_moss(seed=1)
        second.engine._engines = {None: second.engine._engine_of(second.engine.policy)}
        with pytest.raises(RatioMismatch, match="two SGLang servers give greedy ids"):
            pair.greedy(probes)
