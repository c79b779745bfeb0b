"""NeuTTS Air, Orpheus and Spark-TTS: checkpoints of random weights with the vocabularies that their sources show."""

from pathlib import Path

import numpy as np
import pytest
import torch
from real_layouts import BASE, llama3_tokenizer, narrow_llama, narrow_qwen2, qwen2_tokenizer

from elocution.errors import CheckpointError, ConfigError, MissingDependency
from elocution.policies import load_policy, neutts
from elocution.policies.base import PolicyBatch
from elocution.policies.neutts import NeuTtsPolicy
from elocution.policies.orpheus import OrpheusPolicy
from elocution.policies.padding import pad_prompts
from elocution.policies.spark import SparkPolicy
from elocution.policies.speech_tokens import PromptStyle, SpeechTokenPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Utterance, Voice

GLOBALS = " ".join(str(7 * index) for index in range(32))


@pytest.fixture(scope="module")
def orpheus() -> OrpheusPolicy:
    tokenizer = llama3_tokenizer([f"<custom_token_{number}>" for number in range(28_684)])
    return OrpheusPolicy(narrow_llama(len(tokenizer)), tokenizer, style=PromptStyle("tara"))


@pytest.fixture(scope="module")
def spark() -> SparkPolicy:
    names = ["<|task_tts|>", "<|start_content|>", "<|end_content|>", "<|start_global_token|>", "<|end_global_token|>"]
    names += ["<|start_semantic_token|>", *(f"<|bicodec_global_{code}|>" for code in range(4096))]
    tokenizer = qwen2_tokenizer([*names, *(f"<|bicodec_semantic_{code}|>" for code in range(8192))])
    return SparkPolicy(narrow_qwen2(len(tokenizer)), tokenizer, style=PromptStyle(GLOBALS))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def neutts_policy() -> NeuTtsPolicy:
    names = [f"<|{name}_{edge}|>" for name in ("TEXT_PROMPT", "SPEECH_GENERATION") for edge in ("START", "END")]
    tokenizer = qwen2_tokenizer([*names, *(f"<|speech_{code}|>" for code in range(65_536))])
    return NeuTtsPolicy(narrow_qwen2(len(tokenizer)), tokenizer)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=["orpheus", "spark", "neutts_policy"])
def policy(request: pytest.FixtureRequest) -> SpeechTokenPolicy:
    found: SpeechTokenPolicy = request.getfixturevalue(request.param)
    return found


def test_orpheus_ids_and_prompt(orpheus: OrpheusPolicy) -> None:
    assert orpheus.first_code_id == 128_266
    assert (orpheus.num_codebooks, orpheus.codebook_size, orpheus.stop_ids) == (7, 4096, frozenset({128_258}))
    assert orpheus.legal_ids[[0, 1, -1]].tolist() == [128_258, 128_266, 128_266 + 7 * 4096 - 1]
    ids = orpheus.prompt_ids(Utterance("u", "Hi")).tolist()
    assert ids[:2] == [128_259, BASE]
    assert orpheus.tokenizer.decode(ids[2:-4]) == "tara: Hi"
    assert ids[-4:] == [128_009, 128_260, 128_261, 128_257]


def test_orpheus_frames_are_seven_codes_each_in_its_own_part_of_the_vocabulary(orpheus: OrpheusPolicy) -> None:
    codes = np.array([[5, 4095, 0, 1, 2, 3, 4], [6, 7, 8, 9, 10, 11, 12]])
    ids = orpheus.completion_ids(codes)
    assert ids[:3, 0].tolist() == [128_266 + 5, 128_266 + 4096 + 4095, 128_266 + 2 * 4096]
    assert ids[-1, 0] == 128_258
    assert orpheus.codes(ids).tolist() == codes.tolist()
    assert orpheus.codes(ids[:-3]).tolist() == codes[:1].tolist()  # the last frame is not whole
    swapped = ids.copy()
    swapped[[1, 2]] = swapped[[2, 1]]
    assert orpheus.codes(swapped).tolist() == codes[1:].tolist()
    assert orpheus.codes(ids[-1:]).shape == (0, 7)


def test_spark_ids_and_prompt(spark: SparkPolicy) -> None:
    voice = Voice("v", "Good evening.", np.array([[3], [8191]]))
    speaker = "".join(f"<|bicodec_global_{7 * index}|>" for index in range(32))
    head = "<|task_tts|><|start_content|>{}<|end_content|><|start_global_token|>" + speaker + "<|end_global_token|>"
    assert spark.render(Utterance("u", "Hi")) == head.format("Hi") + "<|start_semantic_token|>"
    assert spark.render(Utterance("u", "Hi", voice=voice)) == (
        head.format("Good evening.Hi") + "<|start_semantic_token|><|bicodec_semantic_3|><|bicodec_semantic_8191|>"
    )
    assert spark.codes(spark.prompt_ids(Utterance("u", "Hi", voice=voice))[-2:, None]).tolist() == [[3], [8191]]
    assert spark.codebook_size == 8192
    assert spark.tokenizer.decode([spark.stop_id]) == "<|im_end|>"


def test_neutts_ids_and_prompt(neutts_policy: NeuTtsPolicy) -> None:
    assert neutts.prompt_text("f\u0259n h\u028a", "<|speech_3|>") == (
        "user: Convert the text to speech:<|TEXT_PROMPT_START|>f\u0259n h\u028a<|TEXT_PROMPT_END|>\n"
        "assistant:<|SPEECH_GENERATION_START|><|speech_3|>"
    )
    assert neutts_policy.codebook_size == 65_536
    assert neutts_policy.tokenizer.decode([neutts_policy.stop_id]) == "<|SPEECH_GENERATION_END|>"
    ids = neutts_policy.completion_ids(np.array([[3], [65_535]]))
    assert neutts_policy.tokenizer.decode(ids[:, 0]) == "<|speech_3|><|speech_65535|><|SPEECH_GENERATION_END|>"
    assert neutts_policy.check_text(Utterance("u", "Hi")) == (
        "the family neutts needs a voice: prompt_text with prompt_audio or prompt_codes"
    )


def test_neutts_reads_phonemes_or_says_what_is_missing(neutts_policy: NeuTtsPolicy) -> None:
    utterance = Utterance("u", "Good evening", voice=Voice("v", "Hello", np.array([[3]])))
    try:
        rendered = neutts_policy.render(utterance)
    except MissingDependency as error:
        assert "elocution[neutts]" in str(error)  # noqa: PT017  (either is right, by what is installed)
    else:
        assert "Hello" not in rendered
        assert rendered.endswith("<|SPEECH_GENERATION_START|><|speech_3|>")


def ids_of(policy: SpeechTokenPolicy) -> list[np.ndarray]:
    """Two prompts of unlike lengths; those of NeuTTS without its phonemes, which need a library of the system."""
    texts = ["Hi", "Good evening, all"]
    if isinstance(policy, NeuTtsPolicy):
        rendered = [neutts.prompt_text(text, "<|speech_1|>") for text in texts]
    else:
        rendered = [policy.render(Utterance("u", text)) for text in texts]
    return [np.array(policy.tokenizer.encode(text, add_special_tokens=False)) for text in rendered]


def test_s40_s47_the_sampler_and_the_learner_agree_with_a_plain_forward_pass(policy: SpeechTokenPolicy) -> None:
    prompts = ids_of(policy)
    engine = TorchEngine(policy, temperature=0.9, batch_size=4)
    engine.publish(0)
    drawn = engine.generate([RolloutRequest(prompt, ((1,), (2,)), 12) for prompt in prompts])
    ids, mask = pad_prompts(prompts)
    rows = [completion for group in drawn for completion in group]
    longest = max(len(row.ids) for row in rows)
    completion_ids = torch.zeros(4, longest, 1, dtype=torch.long) + policy.stop_id
    completion_mask = torch.zeros(4, longest, 1, dtype=torch.bool)
    for index, row in enumerate(rows):
        completion_ids[index, : len(row.ids)] = torch.from_numpy(row.ids)
        completion_mask[index, : len(row.ids)] = True
    batch = PolicyBatch(ids, mask, torch.tensor([0, 0, 1, 1]), completion_ids, completion_mask)
    logprobs, _ = policy.logprobs(batch, temperature=0.9)
    for index, row in enumerate(rows):
        length = len(row.ids)
        assert np.isin(row.ids, policy.legal_ids.numpy()).all()
        assert np.allclose(row.rollout_logprobs, logprobs[index, :length].detach().numpy(), atol=1e-4)
        prompt = torch.from_numpy(prompts[index // 2])
        whole = torch.cat([prompt, completion_ids[index, :length, 0]])
        logits = policy.llama(input_ids=whole[None]).logits[0, len(prompt) - 1 : -1, policy.legal_ids] / 0.9
        chosen = torch.searchsorted(policy.legal_ids, completion_ids[index, :length, 0])
        plain = torch.log_softmax(logits, -1)[torch.arange(length), chosen]
        assert torch.allclose(logprobs[index, :length, 0], plain, atol=1e-4)


@pytest.mark.parametrize("family", ["orpheus", "spark"])
def test_s73_saved_exported_and_loaded_again_logits_are_equal(
    family: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    policy: SpeechTokenPolicy = request.getfixturevalue(family)
    policy.save_pretrained(str(tmp_path / "model"))
    again = load_policy(family, tmp_path / "model", speaker=policy.style.speaker)
    ids = torch.from_numpy(ids_of(policy)[0])[None]
    with torch.inference_mode():
        wanted = policy.llama(input_ids=ids).logits
        assert torch.equal(again.model(input_ids=ids).logits, wanted)
    with pytest.raises(CheckpointError, match=r"check model\.family"):
        load_policy("spark" if family == "orpheus" else "orpheus", tmp_path / "model", speaker=GLOBALS)


def test_a_style_that_a_family_has_not_is_refused(orpheus: OrpheusPolicy, spark: SparkPolicy) -> None:
    with pytest.raises(ConfigError, match=r"model\.language_tags: the family orpheus has none"):
        OrpheusPolicy(orpheus.llama, orpheus.tokenizer, style=PromptStyle("tara", {"en": "EN"}))
    with pytest.raises(ConfigError, match="must be the speaker's 32 global codes"):
        SparkPolicy(spark.llama, spark.tokenizer, style=PromptStyle("1 2 3"))
    reason = SparkPolicy(spark.llama, spark.tokenizer).check_text(Utterance("u", "Hi"))
    assert reason is not None
    assert reason.startswith("the family spark needs model.speaker: must be the speaker's 32 global codes")


def test_a_voice_from_a_recording_and_codes_in_the_text_are_reasons_for_orpheus(orpheus: OrpheusPolicy) -> None:
    voice = Voice("v", "Hi", np.zeros((1, 7), np.int64))
    assert orpheus.check_text(Utterance("u", "Hi", voice=voice)) == "the family orpheus takes no voice from a recording"
    assert (
        orpheus.check_text(Utterance("u", "Hi <custom_token_12>")) == "the text holds control tokens: <custom_token_12>"
    )


def test_s33_a_vocabulary_without_all_seven_parts_is_refused(orpheus: OrpheusPolicy) -> None:
    short = llama3_tokenizer([f"<custom_token_{number}>" for number in range(20_000)])
    with pytest.raises(CheckpointError, match="19990 speech tokens, expected 28672 from <custom_token_10>"):
        OrpheusPolicy(orpheus.llama, short)
