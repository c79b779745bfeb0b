"""`elocution serve tts` as processes of their own, and runs whose rollouts they draw."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.errors import EngineError, SyncError
from elocution.policies import load_policy
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.agreement import logprob_gap, score_completions
from elocution.rollout.base import RolloutRequest, in_order
from elocution.serve.tts_app import build_app
from elocution.serve.tts_server import TtsSettings, tts_service
from elocution.testing.run_directory import read_rows
from elocution.testing.running_app import running
from elocution.train.engines import Engines, build_engines
from elocution.train.loop import train
from elocution.types import Completion, Utterance

TEXTS = ("the green house", "mary painted the house", "three birds are here", "the winter visited the lady")
PROBES = ["rollout.sync.probes=2", "rollout.sync.probe_codes=6", "rollout.sync.max_retries=0"]


class Server:
    """A server process that has said where it listens."""

    def __init__(self, port: str = "0") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "elocution", "serve", "tts", "--port", port],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        found = None
        for line in self.process.stdout:
            if found := re.search(r"at (http://\S+)", line):
                break
        assert found, self.process.wait()
        self.url = found[1]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def generate_requests(self) -> int:
        text = httpx2.get(f"{self.url}/metrics").text
        found = re.search(r'elocution_tts_requests_total\{code="200",route="/generate"\} (\d+)', text)
        return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    pair = Server(), Server()
    yield pair
    assert [server.end() for server in pair] == [0, 0]


def settings(*urls: str) -> list[str]:
    named = ", ".join(f'"{url}"' for url in urls)
    return ["rollout.engine=sglang", f"rollout.server.urls=[{named}]", "rollout.server.retries=1", *PROBES]


def tiny() -> LlasaPolicy:
    return LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))


def requests(policy: LlasaPolicy, siblings: int = 2) -> list[RolloutRequest]:
    return [
        RolloutRequest(policy.prompt_ids(Utterance(text, text)), tuple((index, s) for s in range(siblings)), 20)
        for index, text in enumerate(TEXTS)
    ]


def engines_of(config: RunConfig, policy: LlasaPolicy, path: Path) -> Engines:
    return build_engines(config, policy, policy, dict(policy.model.named_parameters()), path)


def draw(engines: Engines, asked: list[RolloutRequest]) -> list[list[Completion]]:
    return in_order(asked, engines.rollout.stream(asked))


def change(policy: LlasaPolicy) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.02)


def test_s44_s47_s62_a_run_draws_from_a_server_that_has_each_steps_weights(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    small = [
        *("train.prompts_per_step=2", "rollout.group_size=3", "eval.sentences=2", "eval.probe_sentences=0"),
        *("reward.workers=1", "train.steps=3", "algorithm.correction=token_truncate"),
    ]
    train(load_config(None, [*small, *settings(servers[0].url)]), tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["sync/policy_version"] for row in rows] == [0, 1, 2]
    assert all(row["sync/probe_difference_max_nats"] < 1e-4 for row in rows)
    assert all(row["engine/mismatch_max_nats"] < 1e-4 for row in rows)
    assert all(row["engine/illegal_ids"] == 0 for row in rows)
    # What evaluation was drawn with after the last step: the server names the folder of just that version.
    info = httpx2.get(f"{servers[0].url}/model_info").json()
    assert info["weight_version"] == "3"
    assert Path(info["model_path"]).name.startswith("v000003")


def test_two_servers_share_the_work_and_both_have_the_new_weights(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    policy = tiny()
    config = load_config(None, settings(*(server.url for server in servers)))
    engines = engines_of(config, policy, tmp_path)
    engines.start([Utterance(text, text) for text in TEXTS])
    engines.rollout.publish(0)
    change(policy)
    engines.rollout.publish(1)
    before = [server.generate_requests() for server in servers]
    asked = requests(policy)
    groups = draw(engines, asked)
    assert [server.generate_requests() - count for server, count in zip(servers, before, strict=True)] == [4, 4]
    rows = [(request.prompt_ids, each) for request, group in zip(asked, groups, strict=True) for each in group]
    own = score_completions(policy, [p for p, _ in rows], [c.ids for _, c in rows], temperature=1.0)
    assert logprob_gap([c.rollout_logprobs for _, c in rows], own).max < 1e-4
    assert {c.policy_version for _, c in rows} == {1}
    assert all(np.isin(c.ids, policy.legal_ids.numpy()).all() for _, c in rows)
    engines.stop()


def test_s64_a_server_that_says_it_has_the_weights_but_serves_others_is_refused(tmp_path: Path) -> None:
    policy = tiny()
    with tts_service(TtsSettings()) as service:
        take = service.engine.load_weights

        def keep_the_old(path: Path, version: str | None) -> None:
            kept = service.engine.policy, service.engine._engines
            take(path, version)
            service.engine.policy, service.engine._engines = kept

        service.engine.load_weights = keep_the_old  # type: ignore[method-assign]  # the fault
        with running(build_app(service), drain_s=10) as url:
            engines = engines_of(load_config(None, settings(url)), policy, tmp_path)
            engines.start([Utterance(text, text) for text in TEXTS])
            with pytest.raises(SyncError, match="is not proven to have"):
                engines.rollout.publish(0)
            with pytest.raises(SyncError, match="quarantine"):
                draw(engines, requests(policy))
            engines.stop()


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_s47_an_id_outside_the_legal_set_is_never_a_completion(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny()
    with tts_service(TtsSettings()) as service, running(build_app(service), drain_s=10) as url:
        engines = engines_of(load_config(None, settings(url)), policy, tmp_path)
        engines.start([Utterance(text, text) for text in TEXTS])
        engines.rollout.publish(0)
        run = service.batcher._run

        def run_with_a_text_id(jobs: Any) -> Any:
            results = run(jobs)
            for result in results:
                for completion in result.completions:
                    completion.ids[min(place, len(completion.ids) - 1)] = 7  # a letter
            return results

        monkeypatch.setattr(service.batcher, "_run", run_with_a_text_id)
        with pytest.raises(EngineError, match="not legal"):
            draw(engines, requests(policy, siblings=1))
        assert engines.metrics()["engine/illegal_ids"] > 0
        engines.stop()


def test_a_checkpoint_that_is_not_whole_leaves_the_weights_as_they_were(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    url = servers[1].url
    before = httpx2.get(f"{url}/get_model_info").json()
    policy = load_policy("llasa", resolve_path("builtin:tiny-llasa"))
    policy.save_pretrained(str(tmp_path))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    body = {"model_path": str(tmp_path), "weight_version": "broken"}
    answer = httpx2.post(f"{url}/update_weights_from_disk", json=body, timeout=60)
    assert (answer.status_code, answer.json()["success"]) == (400, False)
    assert httpx2.get(f"{url}/model_info").json() == before
    assert httpx2.get(f"{url}/health_generate", timeout=60).status_code == 200
