"""CosyVoice as a policy: prompts, legal ids, stops, and the bias of the head in sampling and learning alike."""

from pathlib import Path

import numpy as np
import pytest
import torch
from native_model import NUM_CODES, build, publish, text_tokenizer, write_model_folder

from elocution.config.load import load_config
from elocution.errors import CheckpointError, ConfigError
from elocution.export.cosyvoice import to_huggingface
from elocution.export.cosyvoice_tokens import V3_SPECIAL
from elocution.policies import load_policy
from elocution.policies.base import PolicyBatch
from elocution.policies.padding import pad_prompts
from elocution.policies.speech_tokens import PromptStyle, SpeechTokenPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.train.engines import build_engines
from elocution.types import Utterance, Voice

VOICE = Voice("v", "Good evening.", np.array([[3], [80]]))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    for generation in (2, 3):
        native = write_model_folder(build(generation), root / f"native{generation}", generation)
        to_huggingface(native, root / f"hf{generation}")
    to_huggingface(root / "native2", root / "dropped", bias="drop")
    publish(build(3), "v3-alias", list(V3_SPECIAL), root / "alias")
    return {"v2": root / "hf2", "v3": root / "hf3", "v3-alias": root / "alias", "v2 without bias": root / "dropped"}


@pytest.fixture(params=["v2", "v3", "v3-alias", "v2 without bias"])
def policy(request: pytest.FixtureRequest, folders: dict[str, Path]) -> SpeechTokenPolicy:
    found = load_policy(f"cosyvoice{request.param[1]}", folders[request.param])
    assert isinstance(found, SpeechTokenPolicy)
    return found


def load(folders: dict[str, Path], name: str) -> SpeechTokenPolicy:
    found = load_policy(f"cosyvoice{name[1]}", folders[name])
    assert isinstance(found, SpeechTokenPolicy)
    return found


def drawn_batch(
    policy: SpeechTokenPolicy, temperature: float
) -> tuple[PolicyBatch, list[np.ndarray], list[np.ndarray]]:
    """Completions of two prompts, and for each row its prompt and the log-probs under which it was drawn."""
    utterances = [Utterance("a", "hi"), Utterance("b", "good evening, 你好", voice=VOICE)]
    prompts = [policy.prompt_ids(utterance) for utterance in utterances]
    engine = TorchEngine(policy, temperature=temperature, batch_size=4)
    engine.publish(0)
    groups = engine.generate([RolloutRequest(prompt, ((1,), (2,), (3,)), 12) for prompt in prompts])
    rows = [completion for group in groups for completion in group]
    ids, mask = pad_prompts(prompts)
    longest = max(len(row.ids) for row in rows)
    completion_ids = torch.full((6, longest, 1), policy.stop_id)
    completion_mask = torch.zeros(6, longest, 1, dtype=torch.bool)
    for index, row in enumerate(rows):
        completion_ids[index, : len(row.ids)] = torch.from_numpy(row.ids)
        completion_mask[index, : len(row.ids)] = True
    batch = PolicyBatch(ids, mask, torch.tensor([0, 0, 0, 1, 1, 1]), completion_ids, completion_mask)
    return batch, [prompts[index // 3] for index in range(6)], [row.rollout_logprobs for row in rows]


def test_s40_s47_sampler_and_learner_agree_with_the_whole_softmax_over_legal_ids(policy: SpeechTokenPolicy) -> None:
    batch, prompts, sampled = drawn_batch(policy, 0.9)
    logprobs, entropy = policy.logprobs(batch, temperature=0.9)
    legal = policy.legal_ids
    for index, prompt in enumerate(prompts):
        length = int(batch.completion_mask[index].sum())
        completion = batch.completion_ids[index, :length, 0]
        with torch.no_grad():
            logits = policy.model(input_ids=torch.cat([torch.from_numpy(prompt), completion])[None]).logits[0]
        plain = (logits[len(prompt) - 1 : -1, legal] / 0.9).log_softmax(-1)
        chosen = plain[torch.arange(length), torch.searchsorted(legal, completion)]
        assert torch.isin(completion, legal).all()
        assert torch.allclose(logprobs[index, :length, 0], chosen, atol=1e-4)
        assert np.allclose(sampled[index][:, 0], chosen.numpy(), atol=1e-4)
        assert torch.allclose(entropy[index, :length, 0], -(plain.exp() * plain).sum(-1), atol=1e-4)


def test_s40_log_probs_are_those_of_the_native_model(folders: dict[str, Path]) -> None:
    native = build(2)
    policy = load(folders, "v2")
    codes = [7, 80, 0]
    ids = torch.from_numpy(policy.completion_ids(np.array(codes)[:, None]))[None]
    prompt = torch.from_numpy(policy.prompt_ids(Utterance("a", "hi")))[None]
    batch = PolicyBatch(prompt, torch.ones_like(prompt), torch.tensor([0]), ids, torch.ones_like(ids, dtype=torch.bool))
    logprobs, _ = policy.logprobs(batch, temperature=1.0)
    wanted = native.logits(text_tokenizer().encode("hi"), codes).log_softmax(-1)[range(4), [*codes, NUM_CODES]]
    assert torch.allclose(logprobs[0, :, 0], wanted, atol=1e-4)
    without, _ = load(folders, "v2 without bias").logprobs(batch, temperature=1.0)
    assert (without[0, :, 0] - wanted).abs().max() > 0.1  # the bias matters in this model


def test_the_bias_gets_the_gradient_of_the_plain_computation(folders: dict[str, Path]) -> None:
    policy = load(folders, "v2")
    batch, prompts, _ = drawn_batch(policy, 1.0)
    policy.logprobs(batch, temperature=1.0)[0].sum().backward()
    bias = policy.model.get_parameter("lm_head.bias")
    found = bias.grad
    assert found is not None
    legal = policy.legal_ids
    wanted = torch.zeros(len(legal))
    for index, prompt in enumerate(prompts):
        length = int(batch.completion_mask[index].sum())
        completion = batch.completion_ids[index, :length, 0]
        with torch.no_grad():
            logits = policy.model(input_ids=torch.cat([torch.from_numpy(prompt), completion])[None]).logits[0]
        wanted -= logits[len(prompt) - 1 : -1, legal].softmax(-1).sum(0)
        wanted += torch.bincount(torch.searchsorted(legal, completion), minlength=len(legal))
    assert torch.allclose(found[legal], wanted, atol=1e-4)
    assert found.abs().sum() == pytest.approx(found[legal].abs().sum().item())


def test_the_exact_kl_sees_the_bias(folders: dict[str, Path]) -> None:
    policy, reference = load(folders, "v2"), load(folders, "v2 without bias")
    batch, prompts, _ = drawn_batch(policy, 1.0)
    kl = policy.states(batch).exact_kl(reference.states(batch), temperature=1.0)
    prompt, completion = torch.from_numpy(prompts[0]), batch.completion_ids[0, :1, 0]
    with torch.no_grad():
        p, q = (
            each.model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1, policy.legal_ids]
            for each in (policy, reference)
        )
    plain = (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum()
    assert kl[0, 0, 0].item() == pytest.approx(plain.item(), abs=1e-4)
    assert plain > 0.01


def test_legal_ids_are_codes_and_native_stops(folders: dict[str, Path]) -> None:
    for name, stops in (("v2", 3), ("v3", 200), ("v3-alias", 200)):
        policy = load(folders, name)
        assert len(policy.stop_ids) == stops
        assert len(policy.legal_ids) == NUM_CODES + stops
        assert policy.legal_ids.tolist() == sorted(set(policy.legal_ids.tolist()))
        assert (policy.codebook_size, policy.num_codebooks, policy.frame_rate) == (NUM_CODES, 1, 25.0)
        codes = np.array([[0], [NUM_CODES - 1]])
        ids = policy.completion_ids(codes)
        assert policy.codes(ids).tolist() == codes.tolist()
        assert int(ids[-1, 0]) in policy.stop_ids
    assert load(folders, "v2").tokenizer.convert_ids_to_tokens(load(folders, "v2").stop_id) == "<|eos1|>"
    assert load(folders, "v3").tokenizer.convert_ids_to_tokens(load(folders, "v3").stop_id) == "<|eos1|>"
    assert load(folders, "v3-alias").tokenizer.convert_ids_to_tokens(load(folders, "v3-alias").stop_id) == "<|eos|>"


def test_s37_prompts_are_those_of_the_recipe_to_the_byte(folders: dict[str, Path]) -> None:
    second, third = load(folders, "v2"), load(folders, "v3")
    assert second.render(Utterance("a", "你好")) == "<|sos|>你好<|task_id|>"
    assert second.render(Utterance("a", " hi.", voice=VOICE)) == "<|sos|>Good evening. hi.<|task_id|><|s_3|><|s_80|>"
    assert third.render(Utterance("a", "hi")) == "<|sos|>You are a helpful assistant.<|endofprompt|>hi<|task_id|>"
    ids = second.prompt_ids(Utterance("a", "你好")).tolist()
    text = text_tokenizer().encode("你好")
    sos, task = second.tokenizer.convert_tokens_to_ids(["<|sos|>", "<|task_id|>"])
    assert ids == [sos, *text, task]


def test_control_tokens_in_a_text_and_styles_are_refused(folders: dict[str, Path]) -> None:
    policy = load(folders, "v2")
    for text in ("hi <|s_3|>", "hi <|eos1|>", "<|sos|>"):
        assert "the text holds control tokens" in str(policy.check_text(Utterance("a", text)))
    assert policy.check_text(Utterance("a", "你好 hi", voice=VOICE)) is None
    with pytest.raises(ConfigError, match="voices are recordings here"):
        load_policy("cosyvoice2", folders["v2"], speaker="anna")
    with pytest.raises(ConfigError, match=r"model\.language_tags: the family cosyvoice2 has none"):
        load_policy("cosyvoice2", folders["v2"], language_tags={"en": "EN"})
    assert policy.style == PromptStyle()


def test_s73_a_saved_policy_is_the_same_with_its_bias(folders: dict[str, Path], tmp_path: Path) -> None:
    policy = load(folders, "v2")
    policy.save_pretrained(str(tmp_path / "saved"))
    again = load_policy("cosyvoice2", tmp_path / "saved")
    saved, wanted = again.model.state_dict(), policy.model.state_dict()
    assert saved.keys() == wanted.keys()
    assert "lm_head.bias" in saved
    assert all(torch.equal(saved[name], tensor) for name, tensor in wanted.items())
    assert '"Qwen2ForCausalLM"' in (tmp_path / "saved" / "config.json").read_text()


def test_s33_a_bias_that_is_not_finite_at_a_legal_id_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    policy = load(folders, "v2")
    with torch.no_grad():
        policy.model.get_parameter("lm_head.bias")[policy.stop_id] = float("nan")
    policy.save_pretrained(str(tmp_path / "broken"))
    with pytest.raises(CheckpointError, match="the bias of the output layer is not finite at ids that may be drawn"):
        load_policy("cosyvoice2", tmp_path / "broken")


def test_an_engine_that_drops_the_bias_is_refused_before_it_starts(folders: dict[str, Path], tmp_path: Path) -> None:
    policy = load(folders, "v2")
    config = load_config(
        None,
        [
            "model.family=cosyvoice2",
            f"model.path={folders['v2']}",
            "rollout.engine=vllm",
            'rollout.server.urls=["http://127.0.0.1:1"]',
        ],
    )
    with pytest.raises(ConfigError, match=r"a bias in its output layer, which vLLM drops"):
        build_engines(config, policy, policy, dict(policy.model.named_parameters()), tmp_path)
