"""Whisper: a random multilingual checkpoint for the arithmetic, and tiny.en's real weights for the listening."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from elocution.errors import CheckpointError, DataError
from elocution.measures.whisper import Whisper, _windows
from elocution.types import Audio

RATE = 16_000
SPECIAL = ["endoftext", "startoftranscript", "en", "ko", "zh", "translate", "transcribe", "nospeech", "notimestamps"]


def save_random(folder: Path) -> None:
    """A multilingual layout with few real tokens: bytes, then the special ones; the rest of the ids have no text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytes_only.decoder = decoders.ByteLevel()
    bytes_only.add_special_tokens([f"<|{name}|>" for name in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_only, eos_token="<|endoftext|>")
    end, start = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|startoftranscript|>"])
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=51_865,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_target_positions=24,
        eos_token_id=end,
        bos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=start,
    )
    WhisperForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whisper")
    save_random(path)
    return path


@pytest.fixture(scope="module")
def random_whisper(folder: Path) -> Whisper:
    return Whisper.from_pretrained(folder)


def noise(seconds: float, seed: int = 0) -> Audio:
    samples = np.random.default_rng(seed).normal(0, 0.1, int(seconds * RATE)).astype(np.float32)
    return Audio(samples, RATE)


@pytest.mark.parametrize(
    ("language", "text", "written"), [("en", "one two", " one two"), ("ko", "하나", " 하나"), ("zh", "你好", "你好")]
)
def test_s11_the_likelihood_conditions_on_language_and_task_and_scores_the_text_and_its_end(
    language: str, text: str, written: str, folder: Path, random_whisper: Whisper
) -> None:
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    prefix = tokenizer.convert_tokens_to_ids(
        ["<|startoftranscript|>", f"<|{language}|>", "<|transcribe|>", "<|notimestamps|>"]
    )
    wanted = [*tokenizer.encode(written, add_special_tokens=False), tokenizer.eos_token_id]
    clip = noise(1.0)
    features = WhisperFeatureExtractor()(clip.samples, sampling_rate=RATE, return_tensors="pt").input_features
    logprobs = []
    with torch.inference_mode():
        for position, token in enumerate(wanted):  # one call for each token: nothing to get wrong
            ids = torch.tensor([prefix + wanted[:position]])
            logits = model(input_features=features, decoder_input_ids=ids).logits[0, -1]
            logprobs.append(float(torch.log_softmax(logits, dim=-1)[token]))
    (heard,) = random_whisper.hear([clip], [text], language=language)
    assert heard.nll == pytest.approx(-np.mean(logprobs), rel=1e-5)


def test_a_clip_is_heard_the_same_in_any_batch(random_whisper: Whisper) -> None:
    clips, texts = [noise(1, 0), noise(2.5, 1), noise(0.2, 2)], ["a", "a longer text", "b"]
    together = random_whisper.hear(clips, texts)
    for clip, text, heard in zip(clips, texts, together, strict=True):
        (alone,) = random_whisper.hear([clip], [text])
        assert heard.transcript == alone.transcript
        assert heard.nll == pytest.approx(alone.nll, rel=1e-4)
        assert heard.no_speech == pytest.approx(alone.no_speech, rel=1e-3)


def test_the_encoder_reads_each_window_once(random_whisper: Whisper) -> None:
    rows: list[int] = []
    encoder = random_whisper._model.get_encoder()
    hook = encoder.register_forward_pre_hook(lambda _, arguments: rows.append(len(arguments[0])))
    random_whisper.hear([noise(1, 0), noise(2, 1)], ["a", "b"])
    hook.remove()
    assert sum(rows) == 2


def test_s11_what_lies_behind_30_s_is_heard_too_and_has_no_made_up_likelihood(random_whisper: Whisper) -> None:
    heard, short = random_whisper.hear([noise(35), noise(1)], ["a", "a"])
    assert heard.nll is None
    assert short.nll is not None


def test_long_clips_are_cut_in_their_pauses() -> None:
    samples = np.ones(70 * RATE, dtype=np.float32)
    samples[int(27.3 * RATE) : int(27.7 * RATE)] = 0.0
    first, *rest = _windows(samples)
    assert 27.3 * RATE <= len(first) <= 27.7 * RATE
    assert all(len(piece) <= 30 * RATE for piece in rest)
    assert sum(map(len, [first, *rest])) == len(samples)


def test_a_language_an_empty_text_or_one_too_long_is_refused(random_whisper: Whisper) -> None:
    with pytest.raises(DataError, match="'de'"):
        random_whisper.hear([noise(1)], language="de")
    with pytest.raises(DataError, match="empty text"):
        random_whisper.hear([noise(1)], [" "])
    with pytest.raises(DataError, match="41 tokens"):
        random_whisper.hear([noise(1)], ["x" * 40])


def test_a_folder_that_is_no_whisper_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot load"):
        Whisper.from_pretrained(tmp_path)
    other = tmp_path / "other"
    model = WhisperForConditionalGeneration.from_pretrained(folder)
    state = {name: value for name, value in model.state_dict().items() if "fc1" not in name}
    PreTrainedTokenizerFast.from_pretrained(folder).save_pretrained(other)
    WhisperFeatureExtractor().save_pretrained(other)
    model.save_pretrained(other, state_dict=state)
    with pytest.raises(CheckpointError, match=r"missing_keys.*fc1"):
        Whisper.from_pretrained(other)


@pytest.fixture(scope="module")
def tiny_en() -> Whisper:
    path = os.environ.get("WHISPER_TINY_EN")
    if not path:
        pytest.skip("needs Whisper's weights: make test-whisper")
    return Whisper.from_pretrained(Path(path))


@pytest.mark.slow
def test_real_weights_hear_real_speech_and_prefer_its_own_words(tiny_en: Whisper, spoken: dict[str, Audio]) -> None:
    texts = [text for text in spoken if not {"nine", "seven", "zero"} & set(text.split())][:6]
    clips = [spoken[text] for text in texts]
    right, wrong = tiny_en.hear(clips, texts), tiny_en.hear(clips, texts[1:] + texts[:1])
    exact = sum(heard.transcript.lower().strip(".!?") == text for heard, text in zip(right, texts, strict=True))
    assert exact >= len(texts) - 1
    for own, other in zip(right, wrong, strict=True):
        assert own.no_speech < 0.1
        assert own.nll is not None
        assert other.nll is not None
        assert own.nll + 2 < other.nll


@pytest.mark.slow
def test_s06_real_weights_make_words_of_silence_and_say_that_there_was_no_speech(tiny_en: Whisper) -> None:
    hum = np.sin(2 * np.pi * 50 * np.arange(2 * RATE) / RATE).astype(np.float32) * 0.1
    for clip in (Audio(np.zeros(2 * RATE, dtype=np.float32), RATE), noise(2), Audio(hum, RATE)):
        (heard,) = tiny_en.hear([clip])
        assert heard.no_speech > 0.6
