"""Makes the tiny codec, recogniser, prompts and checkpoints again from nothing but text templates and a voice.

Stages leave their results in the work folder, and a stage whose result is there is not run again: `speech`
(source clips), `codec`, `recogniser`, `prompts`, `llasa` and `cosyvoice2` (the checkpoints).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.files import reporting_disk_errors
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.spoken_text import TaughtTexts
from elocution.tiny import cosyvoice
from elocution.tiny.codebook import encode_corpus, fit_codec
from elocution.tiny.pretrain import build_policy, build_tokenizer, pretrain
from elocution.tiny.recogniser import write_recogniser
from elocution.tiny.sentences import WORDS, draw_sentences
from elocution.tiny.speech import SpeechCorpus
from elocution.tiny.stages import kept_codec, kept_folder, require_modules, spoken_corpus, write_prompts
from elocution.tiny.teaching import PretrainSettings

__all__ = ["BuildSettings", "build"]

# Modules that the extra brings, and their packages.
_NEEDED = {"hibari": "hibari-tts", "sklearn": "scikit-learn"}

NOTICE = """\
The weights and codebook in this folder were derived from speech made by hibari-tts 0.2.1 with its bundled voice
"heart" (Apache License 2.0), speaking sentences drawn from templates. The dictionary in recogniser/ is an excerpt of
the CMU Pronouncing Dictionary, Copyright (C) 1993-2015 Carnegie Mellon University, BSD licence.
"""


@dataclass(frozen=True)
class BuildSettings:
    """How much of everything; the defaults made the shipped files."""

    taught: int = 17_400
    prompts: int = 2_000
    held_out: int = 600
    num_codes: int = 2048
    codec_clips: int = 12_000
    sentence_seed: int = 2026
    model_seed: int = 0
    codec: MelSettings = MelSettings()
    pretraining: PretrainSettings = PretrainSettings()
    cosyvoice_taught: int = 4_000
    cosyvoice: PretrainSettings = cosyvoice.SETTINGS


def build(output: Path, settings: BuildSettings | None = None, *, workers: int = 0) -> None:
    """Writes `codec/`, `recogniser/`, `prompts/`, `llasa/`, `cosyvoice2/` and `NOTICE` into `output`; resumable by stage.

    Raises: MissingDependency before anything is written if the extra `tiny-build` is not installed; StorageError if
    `output` cannot be written.
    """
    settings = settings or BuildSettings()
    require_modules(_NEEDED)
    with reporting_disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        _build(output, settings, workers or os.cpu_count() or 1)


def _build(output: Path, settings: BuildSettings, workers: int) -> None:
    (output / "NOTICE").write_text(NOTICE, encoding="utf-8")
    sentences = draw_sentences(settings.taught + settings.prompts + settings.held_out, settings.sentence_seed)
    taught = sentences[: settings.taught]
    corpus = spoken_corpus(output, sentences, workers)
    codec = kept_codec(
        output / "codec",
        TinyCodec,
        lambda: fit_codec(
            corpus,
            num_codes=settings.num_codes,
            num_clips=min(settings.codec_clips, len(corpus.sentences)),
            settings=settings.codec,
            seed=settings.model_seed,
        ),
    )
    write_recogniser(output / "recogniser", WORDS, taught)
    parts = {"train": sentences[settings.taught : -settings.held_out], "held-out": sentences[-settings.held_out :]}
    for name, part in parts.items():
        rows = [{"text": text, "language": "en"} for text in part]
        write_prompts(output / "prompts" / f"{name.replace('-', '_')}.jsonl", name, rows)
    kept_folder(output / "llasa", "config.json", lambda folder: _llasa(folder, sentences, corpus, codec, settings))
    llasa = LlasaPolicy.from_pretrained(output / "llasa")
    kept_folder(
        output / "cosyvoice2",
        "llm.pt",
        lambda folder: _cosyvoice(folder, llasa, sentences, corpus, codec, settings),
    )


def _llasa(
    folder: Path, sentences: Sequence[str], corpus: SpeechCorpus, codec: TinyCodec, settings: BuildSettings
) -> None:
    taught = sentences[: settings.taught]
    codes = encode_corpus(codec, corpus)
    policy = build_policy(build_tokenizer(WORDS, settings.num_codes), seed=settings.model_seed)
    pretrain(
        policy,
        taught,
        codes[: settings.taught],
        (sentences[-settings.held_out :], codes[-settings.held_out :]),
        settings.pretraining,
    )
    policy.llama.config.codec_frame_rate = codec.frame_rate
    TaughtTexts.of(taught).write(policy.tokenizer)
    policy.model.half()
    policy.save_pretrained(str(folder))


def _cosyvoice(
    folder: Path,
    llasa: LlasaPolicy,
    sentences: Sequence[str],
    corpus: SpeechCorpus,
    codec: TinyCodec,
    settings: BuildSettings,
) -> None:
    text_model = folder / cosyvoice.TEXT_MODEL
    cosyvoice.build_text_model(WORDS, TaughtTexts.of(sentences[: settings.taught]), llasa, text_model)
    policy = cosyvoice.begin_as_llasa(llasa, text_model, seed=settings.model_seed)
    first, last = (
        range(min(settings.cosyvoice_taught, settings.taught)),
        range(len(sentences) - settings.held_out, len(sentences)),
    )
    taught, held_out = (
        ([sentences[index] for index in part], encode_corpus(codec, corpus, part)) for part in (first, last)
    )
    pretrain(policy, *taught, held_out, settings.cosyvoice)
    cosyvoice.write_checkpoint(policy, folder, torch.float16)
