"""What the engine does with servers that lie, die, or answer late. Samples of a real server: tests/real_vllm."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_vllm import FakeVllm, serving
from safetensors.torch import save_file

from elocution.errors import EngineError, EngineUnavailable, RatioMismatch
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.completions_api import IllegalIds
from elocution.rollout.launch import RemoteServer, find_free_port
from elocution.rollout.vllm import VllmEngine
from elocution.rollout.vllm_servers import VllmServers
from elocution.testing.policies import small_llasa
from elocution.types import FinishReason, Utterance

Tamper = Callable[[dict[str, Any], dict[str, Any]], tuple[int, Any]]


@pytest.fixture(scope="module")
def policy() -> LlasaPolicy:
    return small_llasa()


@pytest.fixture(scope="module")
def checkpoint(policy: LlasaPolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights")
    policy.save_pretrained(str(path))
    save_file({"lm_head.weight": policy.llama.get_output_embeddings().weight}, path / "head.safetensors")
    return path


@pytest.fixture
def fake(policy: LlasaPolicy) -> Iterator[FakeVllm]:
    with serving(FakeVllm(policy.llama.config.vocab_size)) as server:
        yield server


def servers_of(policy: LlasaPolicy, *urls: str, timeout_s: float = 5.0, retries: int = 2) -> VllmServers:
    return VllmServers(
        [RemoteServer(url, patience_s=0.2) for url in urls],
        vocab_size=policy.llama.config.vocab_size,
        timeout_s=timeout_s,
        retries=retries,
        backoff_s=0.01,
    )


def engine_of(policy: LlasaPolicy, checkpoint: Path, *urls: str, version: int = 3, **settings: Any) -> VllmEngine:
    """An engine whose servers hold `checkpoint`; nothing is proven, since a fake has no model."""
    servers = servers_of(policy, *urls, **settings)
    servers.start()
    engine = VllmEngine(policy, servers, temperature=0.7)
    engine.load_weights(checkpoint, version)
    return engine


def requests(policy: LlasaPolicy, siblings: int = 4, prompts: int = 3) -> list[RolloutRequest]:
    return [
        RolloutRequest(
            policy.prompt_ids(Utterance(str(index), "mary painted the house")),
            tuple((0, index, sibling) for sibling in range(siblings)),
            20,
        )
        for index in range(prompts)
    ]


def first_times(tamper: Tamper, times: int) -> Tamper:
    """`tamper` for the first calls, the good answer afterwards."""
    lock, left = threading.Lock(), [times]

    def chosen(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
        with lock:
            left[0] -= 1
            is_over = left[0] < 0
        return (200, answer) if is_over else tamper(body, answer)

    return chosen


def test_a_good_answer_becomes_completions_in_the_order_of_the_seeds(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    groups = engine.generate(requests(policy))
    assert [len(group) for group in groups] == [4, 4, 4]
    completion = groups[0][0]
    assert completion.ids.shape == (3, 1)
    assert completion.ids[-1, 0] == policy.stop_id
    assert completion.rollout_logprobs.dtype == np.float32
    assert completion.rollout_logprobs[:, 0].tolist() == [-1.0, -1.0, -1.0]
    assert (completion.finish_reason, completion.policy_version) == (FinishReason.STOP, 3)
    assert dict(engine.counts - engine.counts.__class__()) == {}


def test_s30_every_sampling_parameter_is_explicit(policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    engine.generate(requests(policy, siblings=1, prompts=1))
    (body,) = fake.bodies
    assert body["allowed_token_ids"] == policy.legal_ids.tolist()
    assert body["stop_token_ids"] == [policy.stop_id]
    assert (body["max_tokens"], body["n"], body["temperature"]) == (20, 1, 0.7)
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)
    assert (body["presence_penalty"], body["frequency_penalty"], body["ignore_eos"]) == (0.0, 0.0, True)
    assert body["cache_salt"] == fake.weights


def test_nothing_is_generated_before_weights_are_loaded(policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm) -> None:
    servers = servers_of(policy, fake.url)
    servers.start()
    engine = VllmEngine(policy, servers, temperature=1.0)
    with pytest.raises(EngineError, match="no weights have been loaded"):
        engine.generate(requests(policy))


def test_an_unreachable_server_is_named(policy: LlasaPolicy) -> None:
    url = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    with pytest.raises(EngineUnavailable, match=f"nothing healthy answers at {url}"):
        servers_of(policy, url).start()


def test_another_kind_of_server_behind_the_url_is_named(policy: LlasaPolicy, fake: FakeVllm) -> None:
    fake.reply = lambda path, body: (200, b"<html>it works</html>")  # type: ignore[method-assign]
    with pytest.raises(
        EngineError, match=r"does not answer as a vLLM server in development mode.*VLLM_SERVER_DEV_MODE"
    ):
        servers_of(policy, fake.url).start()


def test_log_probs_of_another_distribution_are_refused(policy: LlasaPolicy, fake: FakeVllm) -> None:
    fake.logprobs_mode = "raw_logprobs"
    with pytest.raises(EngineError, match=r"'raw_logprobs': not those .*--logprobs-mode processed_logprobs"):
        servers_of(policy, fake.url).start()


@pytest.mark.parametrize("other", [-1, 1])
def test_a_model_of_another_vocabulary_is_refused(policy: LlasaPolicy, fake: FakeVllm, other: int) -> None:
    fake.vocab_size += other
    with pytest.raises(EngineError, match="another vocabulary than the policy, whose ids are 0 to"):
        servers_of(policy, fake.url).start()


def test_a_server_that_a_killed_run_left_paused_or_asleep_is_woken(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    fake.is_paused = fake.is_sleeping = True
    servers = servers_of(policy, fake.url)
    servers.start()
    assert not fake.is_paused
    assert not fake.is_sleeping


def test_sleep_is_between_batches_only(policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm) -> None:
    servers = servers_of(policy, fake.url)
    servers.start()
    engine = VllmEngine(policy, servers, temperature=1.0, sleeps=True)
    fake.tamper = lambda body, answer: (503, None) if fake.is_sleeping else (200, answer)
    for version in (1, 2):
        engine.load_weights(checkpoint, version)
        assert not fake.is_sleeping
        engine.generate(requests(policy))
        assert fake.is_sleeping
        engine.generate(requests(policy))


def test_a_proxy_of_the_environment_is_not_used(
    policy: LlasaPolicy, fake: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{find_free_port('127.0.0.1')}")
    servers_of(policy, fake.url).start()


def change(**changes: Any) -> Tamper:
    """Puts `changes` into the first sample of an answer; a value may be a function of the old one."""

    def tamper(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
        choice = answer["choices"][0]
        for key, value in changes.items():
            place = choice["logprobs"] if key in ("token_logprobs", "tokens") else choice
            place[key] = value(place[key]) if callable(value) else value
        return 200, answer

    return tamper


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (change(prompt_token_ids=lambda ids: ids[1:]), "read another prompt than it was sent"),
        (change(token_logprobs=lambda values: values[1:]), "3 ids and 2 log-probs"),
        (change(token_ids=None, logprobs=None), "0 ids and 0 log-probs.*return_token_ids"),
        (change(tokens=lambda names: names[::-1]), "not those that its log-probs belong to"),
        (change(token_logprobs=[-1.0, None, -1.0]), "None for a log-prob"),
        (change(token_logprobs=[-1.0, 2.5, -1.0]), r"2\.5 for a log-prob.*processed_logprobs"),
        (change(token_logprobs=[-1.0, float("nan"), -1.0]), "nan for a log-prob.*not finite"),
        (change(token_logprobs=[-1.0, -9999.0, -1.0]), r"-9999\.0 for a log-prob"),
        (change(finish_reason="length"), "ended for its length after 3 ids, its budget was 20"),
        (lambda body, answer: (200, [1, 2]), "no completion"),
        (lambda body, answer: (200, b"oops"), "no completion: 'oops'"),
        (lambda body, answer: (200, {"choices": answer["choices"] * 2}), "gave samples.*0 to 0 were asked for"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_never_a_sample(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm, tamper: Tamper, message: str
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = tamper
    with pytest.raises(EngineError, match=message):
        engine.generate(requests(policy))


def test_a_stop_id_within_a_sample_is_an_error(policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    stop = policy.stop_id
    fake.tamper = change(token_ids=lambda ids: [ids[0], stop, stop], tokens=lambda n: [n[0], n[2], n[2]])
    with pytest.raises(EngineError, match=r"stop ids stand at \[1, 2\]"):
        engine.generate(requests(policy))


def test_ids_outside_the_legal_set_are_counted_and_stop_the_run(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = change(token_ids=lambda ids: [0, 1, ids[2]], tokens=lambda n: ["token_id:0", "token_id:1", n[2]])
    with pytest.raises(IllegalIds, match="2 ids in the answer to one request are outside the 17 legal ones"):
        engine.generate(requests(policy, siblings=1, prompts=1))
    assert engine.counts["illegal_ids"] == 2


def test_fewer_samples_than_asked_are_asked_for_again_and_counted(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    short: Tamper = lambda body, answer: (200, {"choices": answer["choices"][:-1]})  # noqa: E731
    fake.tamper = first_times(short, 2)
    assert [len(group) for group in engine.generate(requests(policy))] == [4, 4, 4]
    assert engine.counts["retries"] == 2
    fake.tamper = short
    with pytest.raises(EngineUnavailable, match="3 attempts, the last: the server gave 0 samples, 1 were asked for"):
        engine.generate(requests(policy))


def test_a_sample_that_the_server_aborted_is_asked_for_again(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = first_times(change(finish_reason="abort"), 1)
    assert len(engine.generate(requests(policy))) == 3
    assert engine.counts["retries"] == 1


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda body, answer: (503, {"error": {"message": "engine is dead"}}), "status 503: engine is dead"),
        (lambda body, answer: (0, None), "cannot reach .*disconnected"),
    ],
)
def test_failures_of_the_server_are_retried_and_then_told(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm, tamper: Tamper, message: str
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = first_times(tamper, 2)
    assert len(engine.generate(requests(policy))) == 3
    assert engine.counts["retries"] == 2
    fake.tamper = tamper
    with pytest.raises(EngineUnavailable, match=message):
        engine.generate(requests(policy))


def test_a_refusal_is_told_in_the_servers_words_and_not_retried(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = lambda body, answer: (400, {"error": {"message": "Token id 99999 is out of vocabulary"}})
    with pytest.raises(EngineError, match="refused with status 400: Token id 99999 is out of vocabulary"):
        engine.generate(requests(policy, siblings=1, prompts=1))
    assert len(fake.bodies) == 1


def test_an_answer_that_comes_late_is_asked_for_again_and_counted(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url, timeout_s=0.3)

    def late(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.6)
        return 200, answer

    fake.tamper = first_times(late, 1)
    assert len(engine.generate(requests(policy))) == 3
    assert engine.counts["late"] == 1
    fake.tamper = late
    with pytest.raises(EngineUnavailable, match=r"gave no answer within 0\.3 s"):
        engine.generate(requests(policy, prompts=1))


def restart(fake: FakeVllm, *, times: int) -> Tamper:
    """The server comes back with the weights that it was launched with, and answers with them."""

    def tamper(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
        fake.weights = "default"
        for choice in answer["choices"]:
            choice["logprobs"]["token_logprobs"] = [-2.0] * len(choice["token_ids"])
        return 200, answer

    return first_times(tamper, times)


def test_s62_answers_of_a_server_that_restarted_unnoticed_are_thrown_away(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = restart(fake, times=1)
    groups = engine.generate(requests(policy, prompts=6))
    assert all((completion.rollout_logprobs == -1).all() for group in groups for completion in group)
    assert engine.counts["stale"] >= 1
    assert engine.counts["reloads"] >= 1


def test_s62_a_server_that_has_loaded_again_scores_as_the_weights_that_were_proven_or_is_not_drawn_from(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    legal = policy.legal_ids.numpy()
    assert engine.score([(legal[:4], legal[:3, None])])[0].tolist() == [-1.0, -1.0, -1.0]
    fake.tamper = restart(fake, times=1)
    assert len(engine.generate(requests(policy))) == 3
    assert engine.counts["reloads"] == 1
    fake.score = -1.5  # as after a reload in part
    fake.tamper = restart(fake, times=1)
    with pytest.raises(RatioMismatch, match=r"one since it has loaded .* differ by 5\.00e-01"):
        engine.generate(requests(policy))
    assert fake.weights == "default"


def test_a_server_that_loses_its_weights_each_time_stops_the_run(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.tamper = restart(fake, times=1000)
    with pytest.raises(EngineUnavailable, match="lost their weights in each of 3 attempts"):
        engine.generate(requests(policy))


def test_a_server_that_does_not_take_the_weights_is_not_used(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    fake.refuses_weights = True
    with pytest.raises(EngineUnavailable, match=r"no server is left of 1; the last failure: .*no such file"):
        engine.load_weights(checkpoint, 4)
    with pytest.raises(EngineError, match="no weights have been loaded"):
        engine.generate(requests(policy))
    assert fake.calls.count("/pause") == fake.calls.count("/resume") > 0


def test_each_completion_is_handed_on_when_it_arrives_and_not_with_its_batch(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    rest = threading.Event()
    fake.tamper = lambda body, answer: (200, answer) if body["max_tokens"] == 20 or rest.wait(5) else (503, None)
    short, long = requests(policy, siblings=1, prompts=2)
    stream = engine.stream([replace(long, max_new=30), short])
    assert next(stream)[:2] == (1, 0)  # the other is held back by the server
    rest.set()
    assert [place[:2] for place in stream] == [(0, 0)]


def test_a_stream_that_is_left_ends_its_questions_and_lets_others_load(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    engine = engine_of(policy, checkpoint, fake.url)
    stream = engine.stream(requests(policy))
    next(stream)
    stream.close()
    loader = threading.Thread(target=engine.load_weights, args=(checkpoint, 4))
    loader.start()
    loader.join(timeout=5)
    assert not loader.is_alive()
    assert engine.generate(requests(policy))[0][0].policy_version == 4


def test_requests_go_to_the_server_with_the_least_to_do(policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm) -> None:
    with serving(FakeVllm(policy.llama.config.vocab_size)) as other:
        engine = engine_of(policy, checkpoint, fake.url, other.url)
        all_open = threading.Barrier(4, timeout=5)

        def together(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
            all_open.wait()
            return 200, answer

        fake.tamper = other.tamper = together
        engine.generate(requests(policy, siblings=1, prompts=4))
        assert (len(fake.bodies), len(other.bodies)) == (2, 2)


def test_a_server_that_is_gone_is_left_out_until_it_is_back_with_the_weights(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    other = FakeVllm(policy.llama.config.vocab_size)
    with serving(other):
        engine = engine_of(policy, checkpoint, fake.url, other.url)
        working = other.reply
        other.reply = lambda path, body: (0, None)  # type: ignore[method-assign]
        groups = engine.generate(requests(policy, siblings=1, prompts=4))
        assert all((completion.rollout_logprobs == -1).all() for group in groups for completion in group)
        assert (len(fake.bodies), len(other.bodies)) == (4, 0)
        other.reply, other.weights = working, "default"  # type: ignore[method-assign]
        engine.generate(requests(policy, siblings=1, prompts=4))
        assert other.weights == fake.weights
        assert other.bodies


def test_answers_of_a_server_that_restarted_and_then_died_are_thrown_away(
    policy: LlasaPolicy, checkpoint: Path, fake: FakeVllm
) -> None:
    with serving(FakeVllm(policy.llama.config.vocab_size)) as other:
        engine = engine_of(policy, checkpoint, fake.url, other.url)

        both = threading.Barrier(2, timeout=5)

        def last_words(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
            both.wait()
            other.reply = lambda path, body: (0, None)  # type: ignore[method-assign]
            for choice in answer["choices"]:
                choice["logprobs"]["token_logprobs"] = [-2.0] * len(choice["token_ids"])
            return 200, answer

        def one_of_two(body: dict[str, Any], answer: dict[str, Any]) -> tuple[int, Any]:
            both.wait()
            return 200, answer

        other.tamper, fake.tamper = last_words, first_times(one_of_two, 1)
        groups = engine.generate(requests(policy, siblings=1, prompts=2))
        assert all((completion.rollout_logprobs == -1).all() for group in groups for completion in group)
        assert engine.counts["stale"] == 1
