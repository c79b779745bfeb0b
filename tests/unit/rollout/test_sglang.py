import asyncio
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
from sglang_double import SglangDouble

from elocution.errors import ConfigError, EngineError, EngineUnavailable, RatioMismatch
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import LoraSettings, add_adapter, describe_base, save_adapter
from elocution.rollout.agreement import logprob_gap, score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang import SglangEngine, check_servers, seed_number
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sglang_settings import SglangSettings
from elocution.rollout.sglang_sync import SglangSync
from elocution.rollout.sync.base import Probe
from elocution.testing.policies import small_llasa
from elocution.types import FinishReason, Utterance

TEXTS = ("one", "mary painted the house", "three three one one")


@pytest.fixture
def policy() -> LlasaPolicy:
    built = small_llasa()
    with torch.no_grad():  # sharper than an initialised model, so that wrong weights and temperatures show
        built.llama.get_output_embeddings().weight.mul_(4)
    return built


def requests(policy: LlasaPolicy, siblings: int = 2, max_new: int = 6) -> list[RolloutRequest]:
    return [
        RolloutRequest(
            policy.prompt_ids(Utterance(str(index), text)),
            tuple((index, sibling) for sibling in range(siblings)),
            max_new - index,
        )
        for index, text in enumerate(TEXTS)
    ]


def change(policy: LlasaPolicy) -> None:
    with torch.no_grad():
        weight = policy.llama.get_output_embeddings().weight
        weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)), alpha=float(weight.std()))


def double_for(policy: LlasaPolicy) -> SglangDouble:
    return SglangDouble(vocabulary=policy.llama.get_output_embeddings().weight.shape[0])


def load(engine: SglangEngine, policy: LlasaPolicy, folder: Path, version: int) -> None:
    policy.save_pretrained(str(folder / str(version)))
    engine.load_weights(folder / str(version), version)


def build(
    policy: LlasaPolicy,
    double: SglangDouble,
    *,
    temperature: float = 0.8,
    urls: tuple[str, ...] = ("http://a",),
    revive: Any = lambda: None,
    **settings: Any,
) -> SglangEngine:
    servers = SglangServers(ServerSettings(urls, retry_wait_s=0.0, max_retries=1), transport=double.transport)
    return SglangEngine(
        policy,
        servers,
        SglangSync(servers),
        temperature=temperature,
        settings=SglangSettings(**settings),
        revive=revive,
    )


def test_s44_s47_completions_carry_the_policys_own_logprobs(policy: LlasaPolicy, tmp_path: Path) -> None:
    engine = build(policy, double_for(policy))
    load(engine, policy, tmp_path, 3)
    asked = requests(policy)
    groups = engine.generate(asked)
    assert [len(group) for group in groups] == [2, 2, 2]
    rows = [
        (request.prompt_ids, completion) for request, group in zip(asked, groups, strict=True) for completion in group
    ]
    own = score_completions(policy, [p for p, _ in rows], [c.ids for _, c in rows], temperature=0.8)
    assert logprob_gap([c.rollout_logprobs for _, c in rows], own).max < 1e-4
    legal = set(policy.legal_ids.tolist())
    for request, group in zip(asked, groups, strict=True):
        for completion in group:
            assert set(completion.ids[:, 0].tolist()) <= legal
            assert completion.policy_version == 3
            stopped = completion.ids[-1, 0] in policy.stop_ids
            assert completion.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
            assert stopped or len(completion.ids) == request.max_new


def test_siblings_have_seeds_of_their_own_and_none_is_sent_twice(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    engine = build(policy, double)
    load(engine, policy, tmp_path, 0)
    double.calls.clear()
    engine.generate(requests(policy))
    seeds = [body["sampling_params"]["sampling_seed"] for body in double.bodies("/generate")]
    assert len(set(seeds)) == len(seeds) == 6
    assert {body["sampling_params"]["n"] for body in double.bodies("/generate")} == {1}


def test_seed_numbers_fit_a_signed_integer_and_differ() -> None:
    numbers = {seed_number((0, 1, index)) for index in range(200)}
    assert len(numbers) == 200
    assert all(0 <= number < 2**63 for number in numbers)


def test_s64_a_server_that_failed_to_load_stays_paused_and_is_not_believed(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    with pytest.raises(EngineError, match="update_weights_from_disk failed, status 400"):
        build(policy, double).load_weights(tmp_path, 0)
    assert double.is_paused


def test_a_mask_that_the_server_does_not_apply_is_an_error(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    double.applies_mask = False
    engine = build(policy, double)
    load(engine, policy, tmp_path, 0)
    with pytest.raises(EngineError, match="does not apply the mask"):
        engine.generate(requests(policy))
    assert engine.metrics()["engine/illegal_ids"] > 0


def test_without_a_mask_completions_with_illegal_ids_are_drawn_again_and_counted(
    policy: LlasaPolicy, tmp_path: Path
) -> None:
    with torch.no_grad():  # legal ids much more probable, so that most completions have no other
        policy.llama.get_output_embeddings().weight.zero_()
        policy.llama.get_output_embeddings().weight[policy.legal_ids] += 0.05 * torch.sign(
            policy.llama.model.norm.weight
        )
    double = double_for(policy)
    engine = build(policy, double, legal="redraw", max_redraws=300, max_mean_gap=10.0, temperature=1.0)
    load(engine, policy, tmp_path, 0)
    groups = engine.generate(requests(policy, max_new=4))
    legal = set(policy.legal_ids.tolist())
    assert all(set(c.ids[:, 0].tolist()) <= legal for group in groups for c in group)
    metrics = engine.metrics()
    assert metrics["engine/redrawn"] > 0
    assert metrics["engine/illegal_ids"] >= metrics["engine/redrawn"]
    assert not any("custom_logit_processor" in body for body in double.bodies("/generate"))


def test_s64_a_server_that_lost_its_weights_gets_them_again_and_what_is_missing_is_drawn_again(
    policy: LlasaPolicy, tmp_path: Path
) -> None:
    double = double_for(policy)
    engine = build(policy, double)
    load(engine, policy, tmp_path, 3)
    asked = requests(policy)
    whole = engine.generate(asked)
    answers = 0

    def restarts(answer: dict[str, Any]) -> dict[str, Any]:
        """As a server that was started again after two answers: with the weights of its launch."""
        nonlocal answers
        answers += 1
        if answers == 2:
            double.version, double.path = "default", "launch"
        return answer

    double.mangle = restarts
    groups = engine.generate(asked)
    assert [[c.ids.tolist() for c in group] for group in groups] == [[c.ids.tolist() for c in group] for group in whole]
    assert {c.policy_version for group in groups for c in group} == {3}
    metrics = engine.metrics()
    assert metrics["engine/reloads"] == 1
    assert 0 < metrics["engine/stale"] < 6
    assert (double.version, answers) == ("3", 6 + metrics["engine/stale"])


def test_s64_a_server_that_scores_otherwise_once_it_has_loaded_again_stops_the_run(
    policy: LlasaPolicy, tmp_path: Path
) -> None:
    double = double_for(policy)
    engine = build(policy, double)
    policy.save_pretrained(str(tmp_path / "weights"))
    engine.load_weights(tmp_path / "weights", 0)
    prompt, ids = requests(policy)[0].prompt_ids, policy.legal_ids[:2].numpy()[:, None]
    engine.score([Probe(prompt, ids)])
    change(policy)
    policy.save_pretrained(str(tmp_path / "weights"))
    double.version = "default"
    with pytest.raises(RatioMismatch, match="loaded its weights again, and now gives log-probs that differ"):
        engine.generate(requests(policy))


def test_a_server_that_stays_away_is_revived_as_often_as_allowed(policy: LlasaPolicy, tmp_path: Path) -> None:
    async def refuse(body: dict[str, Any]) -> httpx2.Response:
        return httpx2.Response(503)

    double, revived = double_for(policy), []
    engine = build(policy, double, max_recoveries=2, revive=lambda: revived.append(1))
    load(engine, policy, tmp_path, 0)
    double.interrupt = refuse
    with pytest.raises(EngineUnavailable, match="failed 2 times"):
        engine.generate(requests(policy))
    assert len(revived) == 2


def test_completions_are_there_before_the_last_is(policy: LlasaPolicy, tmp_path: Path) -> None:
    async def hold(body: dict[str, Any]) -> None:
        if len(body["input_ids"]) == longest:
            while not is_seen:
                await asyncio.sleep(0.001)

    is_seen: list[int] = []
    asked = requests(policy, siblings=1)
    longest = max(len(request.prompt_ids) for request in asked)
    double = double_for(policy)
    engine = build(policy, double)
    load(engine, policy, tmp_path, 0)
    double.interrupt = hold
    stream = engine.stream(asked)
    is_seen.append(next(stream)[0])
    assert len([*is_seen, *stream]) == 3


def test_a_server_of_another_class_of_model_is_refused(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    double.architectures = ["Qwen2ForCausalLM"]
    servers = SglangServers(ServerSettings(("http://a",)), transport=double.transport)
    with pytest.raises(
        EngineError, match="http://a serves nothing, a Qwen2ForCausalLM, the policy is a LlamaForCausalLM"
    ):
        check_servers(servers, "LlamaForCausalLM")
    check_servers(servers, "Qwen2ForCausalLM")


def test_redraws_are_bounded(policy: LlasaPolicy, tmp_path: Path) -> None:
    engine = build(policy, double_for(policy), legal="redraw", max_redraws=0)
    load(engine, policy, tmp_path, 0)
    with pytest.raises(EngineError, match=r"not legal: after 0 redraws; use legal = 'mask'"):
        engine.generate(requests(policy))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[SglangEngine, SglangDouble, LlasaPolicy]:
    policy = small_llasa()
    double = double_for(policy)
    engine = build(policy, double)
    load(engine, policy, tmp_path_factory.mktemp("sync"), 0)
    return engine, double, policy


def changed(answer: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return answer | {"meta_info": answer["meta_info"] | meta}


@pytest.mark.parametrize(
    ("mangle", "message"),
    [
        (lambda a: changed(a, weight_version="9"), "drew with the weights"),
        (
            lambda a: changed(
                a, weight_versions=[{"version": "0", "start": 0, "end": 1}, {"version": "8", "start": 1, "end": 2}]
            ),
            "drew with the weights",
        ),
        (lambda a: a | {"prompt_token_ids": a["prompt_token_ids"][1:]}, "answers are crossed"),
        (lambda a: changed(a, prompt_tokens=2), "answers are crossed"),
        (lambda a: a | {"output_ids": []}, "drew 0 ids"),
        (lambda a: a | {"output_ids": a["output_ids"] * 20}, "asked were 1 to"),
        (lambda a: changed(a, output_token_logprobs=None), "log-probs of 0 ids"),
        (lambda a: changed(a, output_token_logprobs=[(None, i, None) for i in a["output_ids"]]), "not finite"),
        (lambda a: changed(a, finish_reason={"type": "stop", "matched": "NaN happened"}), "NaN happened"),
        (lambda a: a | {"output_ids": [[i, 1] for i in a["output_ids"]]}, "other ids than it drew"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_not_a_completion(
    published: tuple[SglangEngine, SglangDouble, LlasaPolicy], mangle: Any, message: str
) -> None:
    engine, double, policy = published
    double.mangle = mangle
    with pytest.raises(EngineError, match=message):
        engine.generate(requests(policy, siblings=1)[:1])


def test_a_completion_cut_short_of_its_budget_is_an_error(
    published: tuple[SglangEngine, SglangDouble, LlasaPolicy],
) -> None:
    engine, double, policy = published

    def cut(answer: dict[str, Any]) -> dict[str, Any]:
        short = changed(
            answer,
            output_token_logprobs=answer["meta_info"]["output_token_logprobs"][:1],
            finish_reason={"type": "length", "length": 1},
        )
        return short | {"output_ids": answer["output_ids"][:1]}

    double.mangle = cut
    with pytest.raises(EngineError, match="--allow-auto-truncate"):
        engine.generate(requests(policy, siblings=1)[:1])


def test_weights_are_loaded_into_paused_servers_and_asked_for_before_these_go_on(
    policy: LlasaPolicy, tmp_path: Path
) -> None:
    double = double_for(policy)
    load(build(policy, double, urls=("http://a", "http://b")), policy, tmp_path, 1)
    control = ["/pause_generation", "/update_weights_from_disk", "/model_info", "/continue_generation"]
    assert [path for path, _ in double.calls] == [path for path in control for _ in range(2)]


def test_s62_an_adapter_is_loaded_under_a_new_name_and_the_old_one_unloaded(tmp_path: Path) -> None:
    small_llasa().save_pretrained(str(tmp_path / "base"))
    policy = LlasaPolicy.from_pretrained(tmp_path / "base")
    base = describe_base(str(tmp_path / "base"))
    add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0, base_path=base.path)
    double = double_for(policy)
    engine = build(policy, double)
    for version in (0, 1):
        save_adapter(policy.model, str(tmp_path / str(version)), base=base)
        engine.load_adapter(tmp_path / str(version), version)
    assert list(double.adapters) == ["policy-1"]
    order = [
        "/pause_generation",
        "/load_lora_adapter",
        "/unload_lora_adapter",
        "/flush_cache",
        "/update_weight_version",
    ]
    assert [path for path, _ in double.calls if path in order][-5:] == order
    engine.generate(requests(policy))
    assert {body["lora_path"] for body in double.bodies("/generate")} == {"policy-1"}


@pytest.mark.parametrize(
    "sampling", [{"top_p": 0.9}, {"top_k": 50}, {"repetition_penalty": 1.1}, {"n": 4}, {"stop": "x"}]
)
def test_s44_sampling_that_the_learner_does_not_mirror_is_refused_at_once(
    tmp_path: Path, sampling: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(sampling))):
        SglangSettings(sampling=sampling)


def test_neutral_sampling_passes() -> None:
    SglangSettings(sampling={"top_p": 1.0, "top_k": -1})


def test_a_server_whose_own_defaults_would_act_is_refused(policy: LlasaPolicy) -> None:
    double = double_for(policy)
    servers = SglangServers(ServerSettings(("http://a",)), transport=double.transport)
    double.preferred = {"temperature": 0.6, "top_p": 0.9}  # always sent by us, so without effect
    check_servers(servers)
    double.preferred = {"regex": "a*"}
    with pytest.raises(ConfigError, match=r"http://a was started with preferred sampling parameters.*regex"):
        check_servers(servers)


def test_the_gap_of_known_logprobs() -> None:
    # |-1 - -1.5|, |-2 - -2|, |-3 - -2| = 0.5, 0, 1
    engine = [np.array([[-1.0], [-2.0]], dtype=np.float32), np.array([[-3.0]], dtype=np.float32)]
    own = [np.array([[-1.5], [-2.0]], dtype=np.float32), np.array([[-2.0]], dtype=np.float32)]
    gap = logprob_gap(engine, own)
    assert (gap.mean, gap.max, gap.num_cells) == (0.5, 1.0, 3)
