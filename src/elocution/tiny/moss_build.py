"""Makes the tiny MOSS checkpoint, its residual codec and its prompts again from text templates and one voice.

Stages leave their results in the work folder, and a stage whose result is there is not run again: `speech.npz` (source
clips), `voices.npz` (the same in four voices and three styles), `codec`, `prompts`, `moss` (the checkpoint).
"""

import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from tqdm import tqdm

from elocution.assets import resolve_path
from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.files import reporting_disk_errors
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.spoken_text import TaughtTexts
from elocution.tiny.codebook import encode_corpus, fit_residual_codec
from elocution.tiny.moss_layout import build_moss_policy, build_moss_tokenizer
from elocution.tiny.moss_pretrain import lessons_of, pretrain_moss
from elocution.tiny.moss_start import begin_as_llasa
from elocution.tiny.sentences import WORDS, draw_sentences
from elocution.tiny.speech import SAMPLE_RATE, SpeechCorpus
from elocution.tiny.stages import kept_codec, kept_corpus, kept_folder, require_modules, spoken_corpus, write_prompts
from elocution.tiny.teaching import PretrainSettings
from elocution.tiny.voices import STYLES, VOICES, speak_as
from elocution.types import Utterance, Voice

__all__ = ["MossBuildSettings", "Role", "build_moss", "role_of", "utterances_of"]

# Modules that the extra brings, and their packages.
_NEEDED = {"hibari": "hibari-tts", "pyworld": "pyworld", "sklearn": "scikit-learn"}


@dataclass(frozen=True)
class MossBuildSettings:
    """How much of everything. Units: sentences, codes, clips, rows. A model that begins as LLaSA has its sizes.

    The voices of prompts are the neutral ones among the first `recordings` sentences that are not taught.
    """

    taught: int = 17_400
    prompts: int = 2_000
    held_out: int = 600
    recordings: int = 48
    num_codebooks: int = 4
    num_codes: int = 512
    codec_clips: int = 12_000
    sentence_seed: int = 2026
    model_seed: int = 0
    width: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    max_positions: int = 512
    begins_as_llasa: bool = True
    codec: MelSettings = MelSettings(frames_per_code=8)
    pretraining: PretrainSettings = PretrainSettings(batch_size=32, learning_rate=1.5e-3)


@dataclass(frozen=True)
class Role:
    """Who speaks a sentence, and how: names of `VOICES` and `STYLES`."""

    voice: str
    style: str


def role_of(index: int) -> Role:
    """The role of sentence `index`; all pairs come equally often."""
    voices, styles = list(VOICES), list(STYLES)
    return Role(voices[index % len(voices)], styles[index // len(voices) % len(styles)])


def build_moss(output: Path, settings: MossBuildSettings | None = None, *, workers: int = 0) -> None:
    """Writes `codec/`, `prompts/` and `moss/` into `output`; resumable by stage.

    Raises: MissingDependency before anything is written if a part of the extra `tiny-build` is not installed;
    StorageError if `output` cannot be written.
    """
    require_modules(_NEEDED)
    with reporting_disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        _build(output, settings or MossBuildSettings(), workers or os.cpu_count() or 1)


def utterances_of(
    sentences: Sequence[str], codes: Sequence[NDArray[np.int64]], *, seed: int, recordings: range | None = None
) -> list[Utterance]:
    """Each sentence in the voice of another one that has its role's voice in the style `neutral`, by its codes.

    `recordings` are the sentences that may give their voice, or all.

    Raises: ValueError if a voice has fewer than two such sentences.
    """
    recordings = range(len(sentences)) if recordings is None else recordings
    roles = [role_of(index) for index in range(len(sentences))]
    by_voice = {voice: [i for i in recordings if roles[i] == Role(voice, "neutral")] for voice in VOICES}
    if any(len(known) < 2 for known in by_voice.values()):
        raise ValueError(f"{len(recordings)} sentences are too few to have each voice twice")
    generator = random.Random(seed)
    utterances = []
    for index, (sentence, role) in enumerate(zip(sentences, roles, strict=True)):
        known = by_voice[role.voice]
        other = generator.choice(known)
        while other == index:
            other = generator.choice(known)
        recording = Path("voices", f"{role.voice}-{other}.flac")
        voice = Voice(recording.stem, sentences[other], codes[other], recording)
        utterances.append(Utterance(f"{index}", sentence, "en", voice, emotion=role.style))
    return utterances


def _build(output: Path, settings: MossBuildSettings, workers: int) -> None:
    sentences = draw_sentences(settings.taught + settings.prompts + settings.held_out, settings.sentence_seed)
    corpus = kept_corpus(output / "voices.npz", sentences, lambda: _voices(output, sentences, workers))
    codec = kept_codec(
        output / "codec",
        TinyResidualCodec,
        lambda: fit_residual_codec(
            corpus,
            num_codebooks=settings.num_codebooks,
            num_codes=settings.num_codes,
            num_clips=min(settings.codec_clips, len(corpus.sentences)),
            settings=settings.codec,
            seed=settings.model_seed,
        ),
    )
    codes = encode_corpus(codec, corpus)
    utterances = utterances_of(sentences, codes, seed=settings.model_seed)
    _write_prompts(output / "prompts", corpus, codes, settings)
    kept_folder(output / "moss", "config.json", lambda folder: _moss(folder, utterances, codes, codec, settings))


def _write_prompts(
    folder: Path, corpus: SpeechCorpus, codes: Sequence[NDArray[np.int64]], settings: MossBuildSettings
) -> None:
    """Prompts in few voices, whose recordings lie beside them to be compared with."""
    recordings = range(settings.taught, settings.taught + settings.recordings)
    asked = utterances_of(corpus.sentences, codes, seed=settings.model_seed, recordings=recordings)
    (folder / "voices").mkdir(parents=True, exist_ok=True)
    for index in recordings:
        role = role_of(index)
        if role.style == "neutral":
            path = folder / "voices" / f"{role.voice}-{index}.flac"
            soundfile.write(path, corpus.clip(index), SAMPLE_RATE)
    parts = {"train": slice(settings.taught, -settings.held_out), "held-out": slice(-settings.held_out, None)}
    for name, part in parts.items():
        rows = [_prompt_row(utterance) for utterance in asked[part]]
        write_prompts(folder / f"{name.replace('-', '_')}.jsonl", name, rows)


def _moss(
    folder: Path,
    utterances: Sequence[Utterance],
    codes: Sequence[NDArray[np.int64]],
    codec: TinyResidualCodec,
    settings: MossBuildSettings,
) -> None:
    llasa = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    policy = build_moss_policy(
        build_moss_tokenizer([*WORDS, *STYLES]),
        num_codebooks=codec.num_codebooks,
        codebook_size=codec.codebook_size,
        width=settings.width,
        layers=settings.layers,
        heads=settings.heads,
        kv_heads=settings.kv_heads,
        frame_rate=codec.frame_rate,
        sample_rate=codec.sample_rate,
        max_positions=settings.max_positions,
        rope_theta=llasa.llama.config.to_dict()["rope_parameters"]["rope_theta"],
        seed=settings.model_seed,
    )
    if settings.begins_as_llasa:
        begin_as_llasa(policy, codec, llasa, TinyCodec.from_pretrained(resolve_path("builtin:tiny-codec")))
    lessons = lessons_of(policy, utterances, codes)
    pretrain_moss(policy, lessons[: settings.taught], lessons[-settings.held_out :], settings.pretraining)
    TaughtTexts.of([utterance.text for utterance in utterances[: settings.taught]]).write(policy.tokenizer)
    policy.model.half()
    policy.save_pretrained(str(folder))


def _voices(output: Path, sentences: Sequence[str], workers: int) -> SpeechCorpus:
    """The source speech, each sentence in its role."""
    spoken = spoken_corpus(output, sentences, workers)
    clips = [(spoken.clip(index), role_of(index)) for index in range(len(sentences))]
    with ProcessPoolExecutor(workers) as pool:
        made = list(tqdm(pool.map(_speak_as, clips, chunksize=64), total=len(clips), desc="voices", unit="clip"))
    offsets = np.cumsum([0, *(len(clip) for clip in made)])
    return SpeechCorpus(tuple(sentences), np.concatenate(made), offsets)


def _speak_as(clip: tuple[NDArray[np.float32], Role]) -> NDArray[np.int16]:
    samples, role = clip
    made = speak_as(samples, SAMPLE_RATE, VOICES[role.voice], STYLES[role.style])
    return (made * 32767).clip(-32768, 32767).astype(np.int16)


def _prompt_row(utterance: Utterance) -> dict[str, Any]:
    assert utterance.voice is not None  # `utterances_of` gives each one
    return {
        "text": utterance.text,
        "language": utterance.language,
        "emotion": utterance.emotion,
        "prompt_text": utterance.voice.text,
        "prompt_audio": str(utterance.voice.audio),
        "prompt_codes": utterance.voice.codes.tolist(),
    }
