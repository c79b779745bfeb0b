"""The recipe of the tiny MOSS checkpoint on a few clips of noise: its stages fit together, and teaching teaches."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.codecs import load_codec
from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.data.prompts import load_prompts
from elocution.data.voices import VoiceReader
from elocution.errors import ConfigError, MissingDependency
from elocution.policies import load_policy
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.moss import MossPolicy
from elocution.rollout.codec_fit import check_codec
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_moss
from elocution.tiny.moss_build import MossBuildSettings, build_moss, role_of, utterances_of
from elocution.tiny.moss_layout import build_moss_policy, build_moss_tokenizer
from elocution.tiny.moss_pretrain import lesson_loss, lessons_of, pretrain_moss
from elocution.tiny.moss_start import begin_as_llasa, nearest_codes
from elocution.tiny.sentences import draw_sentences
from elocution.tiny.speech import SpeechCorpus
from elocution.tiny.teaching import PretrainSettings
from elocution.tiny.voices import STYLES, VOICES
from elocution.types import Outcome, Utterance, Voice

SMALL = MossBuildSettings(
    taught=24,
    prompts=12,
    held_out=12,
    recordings=24,
    num_codes=16,
    width=48,
    layers=1,
    heads=4,
    begins_as_llasa=False,
    pretraining=PretrainSettings(epochs=8, batch_size=8, learning_rate=1e-2, warmup_steps=1),
)


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the extra only its presence is looked for: the stages that need it have been run."""
    folder = tmp_path / "stand_ins"
    folder.mkdir()
    for name in ("hibari", "pyworld", "sklearn"):
        (folder / f"{name}.py").touch()
    monkeypatch.syspath_prepend(folder)


def prepare(output: Path) -> None:
    """The results of the stages before the checkpoint."""
    sentences = draw_sentences(48, SMALL.sentence_seed)
    generator = np.random.default_rng(0)
    clips = [(1000 * generator.standard_normal(9000 + 100 * (i % 7))).astype(np.int16) for i in range(48)]
    output.mkdir()
    offsets = np.cumsum([0, *map(len, clips)])
    SpeechCorpus(tuple(sentences), np.concatenate(clips), offsets).save(output / "voices.npz")
    books = torch.randn(4, 16, 640, generator=torch.Generator().manual_seed(0))
    books[0] -= 5.0
    TinyResidualCodec(books, MelSettings(frames_per_code=8)).save_pretrained(output / "codec")


@pytest.mark.usefixtures("stand_ins")
def test_the_recipe_makes_a_checkpoint_that_speaks_its_prompts(tmp_path: Path) -> None:
    output = tmp_path / "out"
    prepare(output)
    build_moss(output, SMALL, workers=1)
    policy = load_policy("moss", output / "moss")
    codec = load_codec("tiny-residual", output / "codec")
    check_codec(codec, policy, name="codec")
    engine = TorchEngine(policy, temperature=1.0, batch_size=16)
    engine.publish(0)
    speaker = Speaker(policy, engine, codec, max_codes_per_char=1.0, min_codes=20)
    prompts = load_prompts(
        output / "prompts" / "held_out.jsonl",
        languages=("en",),
        on_bad_row="skip",  # words that the few taught sentences do not have
        check_text=speaker.check,
        voices=VoiceReader(lambda: codec),
    ).utterances
    assert {utterance.emotion for utterance in prompts} <= set(STYLES)
    for utterance in prompts:  # each can be compared with the recording whose codes it has
        assert utterance.voice is not None
        assert utterance.voice.audio is not None
        assert np.array_equal(utterance.voice.codes, codec.encode(read_audio(utterance.voice.audio)))
    groups = speaker.speak(prompts, [[(0,), (1,)]] * len(prompts))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert all(
        rollout.actions is not None and rollout.actions.shape == rollout.completion.ids.shape for rollout in rollouts
    )
    assert any(rollout.outcome is not Outcome.EMPTY for rollout in rollouts)
    before = (output / "moss" / "model.safetensors").stat().st_mtime_ns
    build_moss(output, SMALL, workers=1)
    assert (output / "moss" / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("missing", ["hibari", "pyworld", "sklearn"])
def test_without_its_extra_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    import importlib.util

    found = importlib.util.find_spec
    present = importlib.util.spec_from_loader("present", loader=None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else present or found(name))
    with pytest.raises(MissingDependency, match="tiny-build"):
        build_moss(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_voices_and_styles_come_equally_often() -> None:
    roles = Counter((role_of(index).voice, role_of(index).style) for index in range(120))
    assert set(roles) == {(voice, style) for voice in VOICES for style in STYLES}
    assert set(roles.values()) == {10}


def test_a_sentence_is_spoken_in_the_voice_of_another_one() -> None:
    sentences = [f"sentence {index}" for index in range(48)]
    codes = [np.full((2, 4), index) for index in range(48)]
    utterances = utterances_of(sentences, codes, seed=0)
    for index, utterance in enumerate(utterances):
        assert utterance.voice is not None
        other = int(utterance.voice.codes[0, 0])
        assert other != index
        assert role_of(other).voice == role_of(index).voice
        assert role_of(other).style == "neutral"
        assert utterance.emotion == role_of(index).style
        assert utterance.voice.text == sentences[other]
    assert utterances == utterances_of(sentences, codes, seed=0)
    with pytest.raises(ValueError, match="too few"):
        utterances_of(sentences[:12], codes[:12], seed=0)


def lesson_parts(policy: MossPolicy) -> tuple[list[Utterance], list[np.ndarray]]:
    codes = [np.random.default_rng(seed).integers(0, 16, (6, 4)) for seed in range(2)]
    utterances = [
        Utterance(str(i), "mary painted", voice=Voice("v", "one", codes[1 - i]), emotion="three") for i in range(2)
    ]
    return utterances, codes


def test_s48_teaching_learns_the_next_row_of_every_channel() -> None:
    policy = small_moss()
    utterances, codes = lesson_parts(policy)
    lessons = lessons_of(policy, utterances, codes)
    before = lesson_loss(policy, lessons).item()
    pretrain_moss(
        policy, lessons, lessons, PretrainSettings(epochs=25, batch_size=2, learning_rate=2e-2, warmup_steps=2)
    )
    after = lesson_loss(policy, lessons).item()
    assert after < 0.2 * before
    late = lessons_of(policy, utterances, [np.roll(clip, 1, axis=0) for clip in codes])  # frames one row later
    assert lesson_loss(policy, late).item() > 3 * after
    for channel in range(1, 5):  # each codebook has been learnt, not the text alone
        changed = [clip.copy() for clip in codes]
        for clip in changed:
            clip[:, channel - 1] = (clip[:, channel - 1] + 1) % 16
        assert lesson_loss(policy, lessons_of(policy, utterances, changed)).item() > 3 * after


def test_the_loss_of_lessons_is_the_same_together_and_with_shared_rows() -> None:
    policy = small_moss()
    utterances, codes = lesson_parts(policy)
    utterances[1] = replace(utterances[1], voice=None)  # begins otherwise: hardly any shared rows
    lessons = lessons_of(policy, utterances, codes)
    alone = [lesson_loss(policy, [lesson]).item() for lesson in lessons]
    # Not closer: from where on the end of a turn may stand is counted from the first row that is not shared.
    assert lesson_loss(policy, lessons).item() == pytest.approx(np.mean(alone), rel=1e-4)


def test_what_ends_a_clip_is_taught_and_the_codes_of_that_row_are_not() -> None:
    policy = small_moss()
    utterances, codes = lesson_parts(policy)
    lesson = lessons_of(policy, utterances, codes)[0]
    text = lesson.rows[lesson.start :, 0].tolist()
    slots = policy.slots
    wanted = [slots.audio_start, *[slots.gen_slot] * 6, *[slots.delay_slot] * 3, slots.audio_end, slots.im_end]
    assert text == wanted
    changed = lesson.rows.copy()
    changed[lesson.start + 7, 1] = 3  # codebook 0 in the row that ends the clip
    assert changed[lesson.start + 7, 0] == slots.delay_slot
    assert lesson.rows[lesson.start + 7, 1] == slots.pad_code


def test_a_model_that_begins_as_llasa_knows_its_words_and_reads_entries_as_its_codes() -> None:
    llasa = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    llasa_codec = TinyCodec.from_pretrained(resolve_path("builtin:tiny-codec"))
    pairs = torch.tensor([[3, 1], [700, 700], [2047, 0]])
    books = torch.zeros(4, 3, 640)
    books[0] = llasa_codec.centroids.float()[pairs].flatten(1)
    codec = TinyResidualCodec(books, MelSettings(frames_per_code=8))
    policy = build_moss_policy(
        build_moss_tokenizer(["doctor", "calm"]),
        num_codebooks=4,
        codebook_size=3,
        width=192,
        layers=6,
        heads=6,
        kv_heads=2,
        frame_rate=12.5,
        sample_rate=16_000,
        max_positions=512,
        seed=0,
    )
    begin_as_llasa(policy, codec, llasa, llasa_codec)
    words = llasa.llama.model.embed_tokens.weight

    def word(tokenizer: PreTrainedTokenizerBase) -> int:
        return int(tokenizer.encode("doctor", add_special_tokens=False)[0])

    assert torch.equal(
        policy.moss.language_model.embed_tokens.weight[word(policy.tokenizer)], words[word(llasa.tokenizer)]
    )
    codes = words[llasa.first_code_id + pairs]
    assert torch.equal(policy.moss.emb_ext[0].weight[:3], codes.mean(dim=1))
    assert torch.equal(policy.moss.head_weight(1)[:3], codes[:, 0])
    # Vectors of one layer in, the same vectors out: only the sizes of queries and keys differ between the two.
    states = torch.randn(1, 5, 192, generator=torch.Generator().manual_seed(0))
    old, new = llasa.llama.model.layers[2], policy.moss.language_model.layers[2]
    assert torch.equal(old.mlp(states), new.mlp(states))
    queries = old.self_attn.q_proj(old.input_layernorm(states))
    gains = new.self_attn.q_norm.weight
    assert gains.std() == 0
    assert gains[0].item() == pytest.approx(queries.square().mean().sqrt().item(), rel=0.2)


def test_a_model_of_another_size_cannot_begin_as_llasa() -> None:
    llasa = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    llasa_codec = TinyCodec.from_pretrained(resolve_path("builtin:tiny-codec"))
    codec = TinyResidualCodec(torch.zeros(4, 16, 640), MelSettings(frames_per_code=8))
    with pytest.raises(ConfigError, match="do not fit"):
        begin_as_llasa(small_moss(), codec, llasa, llasa_codec)
    odd = TinyResidualCodec(torch.zeros(4, 16, 400), MelSettings(frames_per_code=5))
    with pytest.raises(ConfigError, match="cannot be cut"):
        nearest_codes(odd, llasa_codec)
