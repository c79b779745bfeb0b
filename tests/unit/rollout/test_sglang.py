import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sglang_double import SglangDouble

from elocution.assets import resolve_path
from elocution.errors import ConfigError, EngineError, RatioMismatch
from elocution.policies import load_policy
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import AdapterBase, LoraSettings, add_adapter, describe_base, save_adapter
from elocution.rollout.agreement import logprob_gap, score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang import SglangEngine, seed_number
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sglang_settings import SglangSettings
from elocution.rollout.sglang_sync import SglangSync
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


def build(
    policy: LlasaPolicy,
    double: SglangDouble,
    folder: Path,
    *,
    temperature: float = 0.8,
    urls: tuple[str, ...] = ("http://a",),
    save: Any = None,
    kind: Any = "weights",
    probes: list[RolloutRequest] | None = None,
    **settings: Any,
) -> SglangEngine:
    servers = SglangServers(ServerSettings(urls, retry_wait_s=0.0, max_retries=1), transport=double.transport)
    return SglangEngine(
        policy,
        servers,
        SglangSync(servers, folder, save or policy.save_pretrained, kind=kind),
        temperature=temperature,
        probes=requests(policy) if probes is None else probes,
        settings=SglangSettings(**settings),
    )


def test_s44_s47_completions_carry_the_policys_own_logprobs(policy: LlasaPolicy, tmp_path: Path) -> None:
    engine = build(policy, double_for(policy), tmp_path)
    engine.publish(3)
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
    engine = build(policy, double, tmp_path)
    engine.publish(0)
    double.calls.clear()
    engine.generate(requests(policy))
    seeds = [body["sampling_params"]["sampling_seed"] for body in double.bodies("/generate")]
    assert len(set(seeds)) == len(seeds) == 6
    assert {body["sampling_params"]["n"] for body in double.bodies("/generate")} == {1}


def test_seed_numbers_fit_a_signed_integer_and_differ() -> None:
    numbers = {seed_number((0, 1, index)) for index in range(200)}
    assert len(numbers) == 200
    assert all(0 <= number < 2**63 for number in numbers)


def test_a_publish_pauses_loads_proves_and_keeps_one_folder(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    engine = build(policy, double, tmp_path, urls=("http://a", "http://b"))
    engine.publish(0)
    change(policy)
    double.calls.clear()
    engine.publish(1)
    order = [path for path, _ in double.calls]
    control = ["/pause_generation", "/update_weights_from_disk", "/model_info", "/continue_generation"]
    assert order == [path for path in control for _ in range(2)] + ["/model_info"] * 2 + ["/generate"] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["version_000001"]
    assert engine.metrics()["engine/probe_gap_max_nats"] < 1e-4


def test_engines_that_share_servers_publish_a_version_once(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    servers = SglangServers(ServerSettings(("http://a",)), transport=double.transport)
    sync = SglangSync(servers, tmp_path, policy.save_pretrained)
    for temperature in (1.0, 0.5):
        engine = SglangEngine(
            policy, servers, sync, temperature=temperature, probes=requests(policy), settings=SglangSettings()
        )
        engine.publish(4)
        assert engine.metrics()["engine/probe_gap_max_nats"] < 1e-4
    assert len(double.bodies("/update_weights_from_disk")) == 1


def test_s62_s64_a_server_that_acknowledges_weights_but_keeps_the_old_stops_the_run(
    policy: LlasaPolicy, tmp_path: Path
) -> None:
    double = double_for(policy)
    engine = build(policy, double, tmp_path)
    engine.publish(0)
    double.loads_weights = False
    change(policy)
    with pytest.raises(RatioMismatch, match="differ from the policy's by"):
        engine.publish(1)
    with pytest.raises(EngineError, match="no weights have been published"):
        engine.generate(requests(policy))


def test_logprobs_without_the_temperature_are_found_out(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    double.applies_temperature = False
    with pytest.raises(RatioMismatch, match="leave out the temperature"):
        build(policy, double, tmp_path, temperature=0.5).publish(0)


def test_s64_a_server_that_failed_to_load_stays_paused_and_is_not_believed(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    engine = build(policy, double, tmp_path, save=lambda path: None)
    with pytest.raises(EngineError, match="update_weights_from_disk failed, status 400"):
        engine.publish(0)
    assert double.is_paused


def test_a_mask_that_the_server_does_not_apply_is_an_error(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    double.applies_mask = False
    engine = build(policy, double, tmp_path)
    with pytest.raises(EngineError, match="does not apply the mask"):
        engine.publish(0)
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
    engine = build(policy, double, tmp_path, legal="redraw", max_redraws=300, max_mean_gap=10.0, temperature=1.0)
    engine.publish(0)
    groups = engine.generate(requests(policy, max_new=4))
    legal = set(policy.legal_ids.tolist())
    assert all(set(c.ids[:, 0].tolist()) <= legal for group in groups for c in group)
    metrics = engine.metrics()
    assert metrics["engine/redrawn"] > 0
    assert metrics["engine/illegal_ids"] >= metrics["engine/redrawn"]
    assert not any("custom_logit_processor" in body for body in double.bodies("/generate"))


def test_redraws_are_bounded(policy: LlasaPolicy, tmp_path: Path) -> None:
    engine = build(policy, double_for(policy), tmp_path, legal="redraw", max_redraws=0)
    with pytest.raises(EngineError, match=r"not legal: after 0 redraws; use legal = 'mask'"):
        engine.publish(0)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[SglangEngine, SglangDouble, LlasaPolicy]:
    policy = small_llasa()
    double = double_for(policy)
    engine = build(policy, double, tmp_path_factory.mktemp("sync"))
    engine.publish(0)
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


def test_answers_with_each_others_ids_are_found_by_the_canary(tmp_path: Path) -> None:
    held: list[dict[str, Any]] = []

    def cross(answer: dict[str, Any]) -> dict[str, Any]:
        """Gives the ids and log-probs of the answer before; all that says whose they are stays right."""
        held.append(answer)
        before = held[max(0, len(held) - 2)]
        info = {key: before["meta_info"][key] for key in ("output_token_logprobs", "finish_reason")}
        return changed(answer, **info) | {"output_ids": before["output_ids"]}

    policy = load_policy("llasa", resolve_path("builtin:tiny-llasa"))
    double = double_for(policy)
    texts = ("mary painted the house", "three birds are here")
    probes = [RolloutRequest(policy.prompt_ids(Utterance(text, text)), ((0,),), 30) for text in texts]
    build(policy, double, tmp_path / "right", probes=probes).publish(0)
    double.mangle = cross
    with pytest.raises(EngineError, match="the answer to probe 1 fits probe 0"):
        build(policy, double, tmp_path / "crossed", probes=probes).publish(0)


def test_a_canary_that_cannot_tell_says_so(
    policy: LlasaPolicy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with torch.no_grad():
        policy.llama.get_output_embeddings().weight.mul_(0.01)
    with caplog.at_level(logging.WARNING):
        build(policy, double_for(policy), tmp_path).publish(0)
    assert "too much alike to tell" in caplog.text


def adapted_llasa(path: Path) -> tuple[LlasaPolicy, AdapterBase]:
    if not path.exists():
        small_llasa().save_pretrained(str(path))
    policy = LlasaPolicy.from_pretrained(path)
    add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0, base_path=str(path))
    return policy, describe_base(str(path))


def raise_adapter(policy: LlasaPolicy) -> None:
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.5)


def test_s62_an_adapter_is_loaded_under_a_new_name_and_the_old_one_unloaded(tmp_path: Path) -> None:
    policy, base = adapted_llasa(tmp_path / "base")
    double = double_for(policy)
    engine = build(
        policy,
        double,
        tmp_path / "sync",
        kind="adapter",
        save=lambda path: save_adapter(policy.model, path, base=base),
    )
    engine.publish(0)
    raise_adapter(policy)
    engine.publish(1)
    assert list(double.adapters) == ["policy-1"]
    order = [
        "/pause_generation",
        "/load_lora_adapter",
        "/unload_lora_adapter",
        "/flush_cache",
        "/update_weight_version",
    ]
    assert [path for path, _ in double.calls if path in order][-5:] == order
    assert {body["lora_path"] for body in double.bodies("/generate")[-3:]} == {"policy-1"}
    assert engine.metrics()["engine/probe_gap_max_nats"] < 1e-3


def test_s63_an_adapter_that_the_server_takes_but_that_changes_nothing_stops_the_run(tmp_path: Path) -> None:
    policy, _ = adapted_llasa(tmp_path / "base")
    unlearnt, base = adapted_llasa(tmp_path / "base")
    raise_adapter(policy)
    engine = build(
        policy,
        double_for(policy),
        tmp_path / "sync",
        kind="adapter",
        save=lambda path: save_adapter(unlearnt.model, path, base=base),
    )
    with pytest.raises(RatioMismatch):
        engine.publish(0)


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


def test_a_server_whose_own_defaults_would_act_is_refused(policy: LlasaPolicy, tmp_path: Path) -> None:
    double = double_for(policy)
    double.preferred = {"temperature": 0.6, "top_p": 0.9}  # always sent by us, so without effect
    build(policy, double, tmp_path / "a").publish(0)
    double.preferred = {"regex": "a*"}
    with pytest.raises(ConfigError, match=r"http://a was started with preferred sampling parameters.*regex"):
        build(policy, double, tmp_path / "b").publish(0)


def test_probes_must_have_prompts_of_their_own(policy: LlasaPolicy, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least two probes"):
        build(policy, double_for(policy), tmp_path, probes=requests(policy)[:1])
    with pytest.raises(ConfigError, match="at least two probes"):
        build(policy, double_for(policy), tmp_path, probes=requests(policy)[:1] * 2)


def test_the_gap_of_known_logprobs() -> None:
    # |-1 - -1.5|, |-2 - -2|, |-3 - -2| = 0.5, 0, 1
    engine = [np.array([[-1.0], [-2.0]], dtype=np.float32), np.array([[-3.0]], dtype=np.float32)]
    own = [np.array([[-1.5], [-2.0]], dtype=np.float32), np.array([[-2.0]], dtype=np.float32)]
    gap = logprob_gap(engine, own)
    assert (gap.mean, gap.max, gap.num_cells) == (0.5, 1.0, 3)
