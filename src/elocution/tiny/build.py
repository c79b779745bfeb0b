"""Makes the tiny codec, recogniser, prompts and checkpoints again from nothing but text templates and a voice.

Stages leave their results in the work folder, and a stage whose result is there is not run again: `speech`
(source clips), `codec`, `recogniser`, `prompts`, `llasa` and `cosyvoice2` (the checkpoints).
"""

import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.errors import MissingDependency
from elocution.files import reporting_disk_errors
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.spoken_text import TaughtTexts
from elocution.tiny import cosyvoice
from elocution.tiny.codebook import encode_corpus, fit_codec
from elocution.tiny.pretrain import PretrainSettings, build_policy, build_tokenizer, pretrain
from elocution.tiny.recogniser import write_recogniser
from elocution.tiny.sentences import WORDS, draw_sentences
from elocution.tiny.speech import SpeechCorpus, speak_sentences

__all__ = ["BuildSettings", "build", "require_modules"]

logger = logging.getLogger(__name__)

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
    cosyvoice_taught: int = 240
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


def require_modules(packages: Mapping[str, str]) -> None:
    """Raises: MissingDependency naming the package of the first of these modules that is not installed."""
    for module, package in packages.items():
        if importlib.util.find_spec(module) is None:
            raise MissingDependency.naming(package, "tiny-build")


def _build(output: Path, settings: BuildSettings, workers: int) -> None:
    (output / "NOTICE").write_text(NOTICE, encoding="utf-8")
    sentences = draw_sentences(settings.taught + settings.prompts + settings.held_out, settings.sentence_seed)
    taught = sentences[: settings.taught]
    corpus = _speech(output / "speech.npz", sentences, workers)
    codec = _codec(output / "codec", corpus, settings)
    write_recogniser(output / "recogniser", WORDS, taught)
    _write_prompts(output / "prompts" / "train.jsonl", "train", sentences[settings.taught : -settings.held_out])
    _write_prompts(output / "prompts" / "held_out.jsonl", "held-out", sentences[-settings.held_out :])
    _llasa(output, sentences, corpus, codec, settings)
    _cosyvoice(output, sentences, corpus, codec, settings)


def _llasa(
    output: Path, sentences: Sequence[str], corpus: SpeechCorpus, codec: TinyCodec, settings: BuildSettings
) -> None:
    if (output / "llasa" / "config.json").is_file():
        logger.info("llasa: already there")
        return
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
    partial = output / ".llasa.partial"
    shutil.rmtree(partial, ignore_errors=True)
    policy.save_pretrained(str(partial))
    os.replace(partial, output / "llasa")


def _cosyvoice(
    output: Path, sentences: Sequence[str], corpus: SpeechCorpus, codec: TinyCodec, settings: BuildSettings
) -> None:
    if (output / "cosyvoice2" / "llm.pt").is_file():
        logger.info("cosyvoice2: already there")
        return
    llasa = LlasaPolicy.from_pretrained(output / "llasa")
    partial = output / ".cosyvoice2.partial"
    shutil.rmtree(partial, ignore_errors=True)
    text_model = partial / cosyvoice.TEXT_MODEL
    cosyvoice.build_text_model(WORDS, TaughtTexts.of(sentences[: settings.taught]), llasa, text_model)
    policy = cosyvoice.from_llasa(llasa, text_model, seed=settings.model_seed)
    first, last = (
        range(min(settings.cosyvoice_taught, settings.taught)),
        range(len(sentences) - settings.held_out, len(sentences)),
    )
    taught, held_out = (
        ([sentences[index] for index in part], encode_corpus(codec, corpus, part)) for part in (first, last)
    )
    pretrain(policy, *taught, held_out, settings.cosyvoice)
    cosyvoice.write_checkpoint(policy, partial, torch.float16)
    os.replace(partial, output / "cosyvoice2")


def _speech(path: Path, sentences: Sequence[str], workers: int) -> SpeechCorpus:
    if path.is_file():
        corpus = SpeechCorpus.load(path)
        if corpus.sentences == tuple(sentences):
            logger.info("speech: %d clips already there", len(sentences))
            return corpus
    corpus = speak_sentences(sentences, workers=workers)
    corpus.save(path)
    return corpus


def _codec(path: Path, corpus: SpeechCorpus, settings: BuildSettings) -> TinyCodec:
    if (path / "codec.safetensors").is_file():
        logger.info("codec: already there")
        return TinyCodec.from_pretrained(path)
    codec = fit_codec(
        corpus,
        num_codes=settings.num_codes,
        num_clips=min(settings.codec_clips, len(corpus.sentences)),
        settings=settings.codec,
        seed=settings.model_seed,
    )
    codec.save_pretrained(path)
    return codec


def _write_prompts(path: Path, name: str, sentences: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        json.dumps({"id": f"{name}-{number:04d}", "text": text, "language": "en"})
        for number, text in enumerate(sentences, start=1)
    ]
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
