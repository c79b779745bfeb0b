"""A real vLLM server against the policy's own log-probs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from elocution.config.tree import LoraSettings, ServerConfig
from elocution.errors import CheckpointError, EngineError
from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import adapter_parameters, add_adapter, describe_base, save_adapter
from elocution.policies.padding import pad_prompts
from elocution.rollout.base import RolloutRequest
from elocution.rollout.launch import LaunchedServer, RemoteServer
from elocution.rollout.vllm import VllmEngine
from elocution.rollout.vllm_launch import vllm_launch
from elocution.rollout.vllm_servers import VllmServers
from elocution.testing.policies import SMALL_WORDS
from elocution.tiny.pretrain import build_tokenizer
from elocution.types import Completion, FinishReason, Utterance

TEXTS = ("the doctor visited the school", "the winter visited the lady", "nine nine seven one")


def random_qwen2(seed: int) -> LlasaPolicy:
    """A Qwen2 of random weights, untied and with biases, under the small tokenizer."""
    tokenizer = build_tokenizer(SMALL_WORDS, 64)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,  # of 32 each: vLLM's attention on a CPU has no smaller heads
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():  # sharper than an initialised model, so that a wrong id or mask would show
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return LlasaPolicy(model, tokenizer)  # type: ignore[arg-type]


def engine_of(policy: LlasaPolicy, servers: VllmServers, temperature: float = 1.0) -> VllmEngine:
    servers.start()
    return VllmEngine(policy, servers, temperature=temperature)


def load(engine: VllmEngine, policy: LlasaPolicy, folder: Path, version: int = 0) -> None:
    """Brings the policy's weights to the servers, tied ones under each name; what does not arrive shows in the samples."""
    path = folder / f"weights-{version}"
    policy.save_pretrained(str(path))
    head = policy.llama.get_output_embeddings().weight
    if policy.llama.config.tie_word_embeddings:
        save_file({"lm_head.weight": head}, path / "head.safetensors")
    engine.load_weights(path, version)


def requests(policy: LlasaPolicy, siblings: int = 4, max_new: int = 60) -> list[RolloutRequest]:
    return [
        RolloutRequest(
            policy.prompt_ids(Utterance(str(index), text)),
            tuple((7, index, sibling) for sibling in range(siblings)),
            max_new - 9 * index,
        )
        for index, text in enumerate(TEXTS)
    ]


def deviation(
    policy: LlasaPolicy, asked: list[RolloutRequest], groups: list[list[Completion]], temperature: float
) -> float:
    """How far the engine's log-probs are from those that the learner would compute."""
    rows = [(index, completion) for index, group in enumerate(groups) for completion in group]
    longest = max(len(completion.ids) for _, completion in rows)
    ids = torch.full((len(rows), longest, 1), policy.stop_id)
    mask = torch.zeros(len(rows), longest, 1, dtype=torch.bool)
    sampled = torch.zeros(len(rows), longest, 1)
    for row, (_, completion) in enumerate(rows):
        ids[row, : len(completion.ids)] = torch.from_numpy(completion.ids)
        sampled[row, : len(completion.ids)] = torch.from_numpy(completion.rollout_logprobs)
        mask[row, : len(completion.ids)] = True
    prompt_ids, prompt_mask = pad_prompts([request.prompt_ids for request in asked])
    batch = PolicyBatch(prompt_ids, prompt_mask, torch.tensor([index for index, _ in rows]), ids, mask)
    with torch.no_grad():
        logprobs, _ = policy.logprobs(batch, temperature=temperature)
    return float((logprobs - sampled)[mask].abs().max())


def move(policy: LlasaPolicy, seed: int, scale: float = 0.02) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_s44_s47_sampling_logprobs_are_the_learners(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path, temperature: float
) -> None:
    engine = engine_of(tiny_policy, tiny_servers, temperature)
    load(engine, tiny_policy, tmp_path, 0)
    asked = requests(tiny_policy)
    groups = engine.generate(asked)
    assert deviation(tiny_policy, asked, groups, temperature) < 1e-4
    other = 0.7 if temperature == 1.0 else 1.0
    assert deviation(tiny_policy, asked, groups, other) > 1e-2  # the check can fail


def test_s28_s30_completions_end_at_the_stop_id_or_at_their_budget(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    engine = engine_of(tiny_policy, tiny_servers)
    load(engine, tiny_policy, tmp_path, 5)
    prompt = tiny_policy.prompt_ids(Utterance("u", TEXTS[0]))
    asked = [
        RolloutRequest(prompt, tuple((1, sibling) for sibling in range(4)), 120),
        RolloutRequest(prompt, ((2, 0), (2, 1)), 9),
    ]
    stopped, cut = engine.generate(asked)
    legal = set(tiny_policy.legal_ids.tolist())
    for completion in (*stopped, *cut):
        ids = completion.ids[:, 0].tolist()
        assert set(ids) <= legal
        assert tiny_policy.stop_id not in ids[:-1]
        assert completion.rollout_logprobs.shape == completion.ids.shape
        assert completion.policy_version == 5
    for completion in stopped:
        assert completion.finish_reason is FinishReason.STOP
        assert completion.ids[-1, 0] == tiny_policy.stop_id
    for completion in cut:
        assert completion.finish_reason is FinishReason.LENGTH
        assert len(completion.ids) == 9


def test_a_completion_depends_on_its_seed_and_not_on_its_siblings(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    engine = engine_of(tiny_policy, tiny_servers)
    load(engine, tiny_policy, tmp_path, 0)
    prompt = tiny_policy.prompt_ids(Utterance("u", TEXTS[0]))
    together = engine.generate([RolloutRequest(prompt, ((3, 0), (3, 1), (3, 2), (4, 1)), 60)])[0]
    assert len({completion.ids.tobytes() for completion in together}) == 4
    alone = engine.generate([RolloutRequest(prompt, ((4, 1), (3, 2)), 60)])[0]
    assert np.array_equal(alone[0].ids, together[3].ids)
    assert np.array_equal(alone[1].ids, together[2].ids)


def test_s62_s64_changed_weights_of_a_tied_model_arrive_whole(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    assert tiny_policy.llama.config.tie_word_embeddings
    engine = engine_of(tiny_policy, tiny_servers)
    for version in (1, 2):
        move(tiny_policy, seed=version)
        load(engine, tiny_policy, tmp_path, version)
        asked = requests(tiny_policy, siblings=2)
        groups = engine.generate(asked)
        assert deviation(tiny_policy, asked, groups, 1.0) < 1e-4
        assert {completion.policy_version for group in groups for completion in group} == {version}


def test_tied_weights_under_one_name_are_refused(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    tiny_policy.save_pretrained(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"tied embeddings and no lm_head\.weight"):
        engine_of(tiny_policy, tiny_servers).load_weights(tmp_path, 0)


def test_completions_arrive_one_by_one(tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path) -> None:
    engine = engine_of(tiny_policy, tiny_servers)
    load(engine, tiny_policy, tmp_path)
    long, short = requests(tiny_policy, siblings=2, max_new=300)[0], requests(tiny_policy, siblings=2, max_new=30)[2]
    places = [place[:2] for place in engine.stream([long, short])]
    assert sorted(places) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert set(places[:2]) == {(1, 0), (1, 1)}


def test_scores_are_the_policys_log_probs(tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path) -> None:
    engine = engine_of(tiny_policy, tiny_servers)
    load(engine, tiny_policy, tmp_path, 0)
    (request, *_) = requests(tiny_policy, siblings=2, max_new=200)
    drawn = engine.generate([request])[0]
    sequences = [(request.prompt_ids, np.tile(completion.ids, (4, 1))) for completion in drawn]  # over 128 positions
    assert min(len(ids) for _, ids in sequences) > 128
    for completion, scores in zip(drawn, engine.score(sequences), strict=True):
        assert len(scores) == 4 * len(completion.ids)
        assert np.abs(scores[: len(completion.ids)] - completion.rollout_logprobs[:, 0]).max() < 1e-4


def test_adapters_are_loaded_while_the_server_runs_and_replace_each_other(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    engine = engine_of(tiny_policy, tiny_servers, 0.7)
    load(engine, tiny_policy, tmp_path)  # the base, in case another test has changed it
    add_adapter(tiny_policy.model, LoraSettings(rank=4), targets=tiny_policy.lora_targets, seed=0)
    base = describe_base("builtin:tiny-llasa")
    for version in (1, 2, 3):
        move(tiny_policy, seed=version, scale=0.05)
        assert all(bool(parameter.any()) for parameter in adapter_parameters(tiny_policy.model).values())
        save_adapter(tiny_policy.model, str(tmp_path / f"adapter-{version}"), base=base)
        engine.load_adapter(tmp_path / f"adapter-{version}", version)
        asked = requests(tiny_policy, siblings=2)
        assert deviation(tiny_policy, asked, engine.generate(asked), 0.7) < 1e-4


def test_s63_an_adapter_whose_modules_the_engine_does_not_know_is_refused(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    engine = engine_of(tiny_policy, tiny_servers)
    add_adapter(tiny_policy.model, LoraSettings(rank=4), targets=tiny_policy.lora_targets, seed=0)
    save_adapter(tiny_policy.model, str(tmp_path / "adapter"), base=describe_base("builtin:tiny-llasa"))
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"q_proj", b"z_proj"))
    with pytest.raises(EngineError, match="expected target modules"):
        engine.load_adapter(tmp_path / "adapter", 1)


def test_sleeping_and_waking_leave_the_weights_as_they_are(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    move(tiny_policy, seed=3)
    tiny_servers.start()
    engine = VllmEngine(tiny_policy, tiny_servers, temperature=1.0, sleeps=True)
    load(engine, tiny_policy, tmp_path, 1)
    asked = requests(tiny_policy, siblings=2)
    first, second = engine.generate(asked), engine.generate(asked)
    assert deviation(tiny_policy, asked, second, 1.0) < 1e-4
    assert all(
        np.array_equal(one.ids, other.ids)
        for a, b in zip(first, second, strict=True)
        for one, other in zip(a, b, strict=True)
    )


def test_too_long_a_request_is_refused_before_it_is_cut_short(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    engine = engine_of(tiny_policy, tiny_servers)
    load(engine, tiny_policy, tmp_path, 0)
    with pytest.raises(EngineError, match=r"need \d+ ids, the server takes 512; raise its --max-model-len"):
        engine.generate(requests(tiny_policy, max_new=500))


def test_a_model_of_another_vocabulary_behind_the_url_is_refused(tiny_server: LaunchedServer) -> None:
    for vocab_size in (2222, 2224):
        with pytest.raises(EngineError, match="another vocabulary than the policy"):
            VllmServers([RemoteServer(tiny_server.url)], vocab_size=vocab_size).start()


def test_a_server_that_died_comes_back_with_the_trained_weights(
    tiny_policy: LlasaPolicy, tiny_server: LaunchedServer, tmp_path: Path
) -> None:
    servers = VllmServers([tiny_server], vocab_size=len(tiny_policy.tokenizer), backoff_s=0.1)
    try:
        engine = engine_of(tiny_policy, servers)
        move(tiny_policy, seed=4)
        load(engine, tiny_policy, tmp_path, 1)
        restarts = tiny_server.restarts
        tiny_server.stop()
        asked = requests(tiny_policy, siblings=2)
        groups = engine.generate(asked)
        assert deviation(tiny_policy, asked, groups, 1.0) < 1e-4
        assert tiny_server.restarts == restarts + 1
        assert engine.counts["reloads"] == 1
    finally:
        servers.stop()
        tiny_server.start()  # for the tests below


def test_a_qwen2_of_untied_embeddings_agrees_at_any_temperature_and_after_an_update(
    settings: ServerConfig, tmp_path: Path
) -> None:
    policy = random_qwen2(seed=0)
    policy.save_pretrained(str(tmp_path / "qwen2"))
    launch = vllm_launch(settings, model_path=tmp_path / "qwen2", precision="fp32", lora_rank=0, on_cpu=True)
    servers = VllmServers([LaunchedServer(launch, tmp_path / "server.log")], vocab_size=policy.llama.config.vocab_size)
    try:
        engine = engine_of(policy, servers)
        for version, temperature in enumerate((1.0, 0.7)):
            engine.temperature = temperature
            move(policy, seed=version)
            load(engine, policy, tmp_path, version)
            asked = [
                RolloutRequest(policy.prompt_ids(Utterance("u", text)), ((version, 0), (version, 1), (9, 5)), 40)
                for text in ("one", "mary painted the house")
            ]
            assert deviation(policy, asked, engine.generate(asked), temperature) < 1e-4
    finally:
        servers.stop()


def test_a_server_that_reports_raw_log_probs_is_refused(settings: ServerConfig, tmp_path: Path) -> None:
    raw = settings.model_copy(update={"flags": (*settings.flags, "--logprobs-mode", "raw_logprobs")})
    policy = random_qwen2(seed=0)
    policy.save_pretrained(str(tmp_path / "qwen2"))
    launch = vllm_launch(raw, model_path=tmp_path / "qwen2", precision="fp32", lora_rank=0, on_cpu=True)
    servers = VllmServers([LaunchedServer(launch, tmp_path / "server.log")], vocab_size=policy.llama.config.vocab_size)
    with pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
        servers.start()
