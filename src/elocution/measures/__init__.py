"""Facts about audio, with units. Recognisers and speaker encoders by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

from elocution.measures.base import (
    BatchScorer,
    BatchTranscriber,
    DescriptionScorer,
    HearsAndScores,
    Likelihood,
    PhonemeScorer,
    SpeakerEncoder,
    Transcriber,
)
from elocution.registry import build_part, import_part

__all__ = [
    "DESCRIPTION_SCORERS",
    "PACKAGED",
    "PHONEME_SCORERS",
    "SPEAKER_ENCODERS",
    "TRANSCRIBERS",
    "BatchScorer",
    "BatchTranscriber",
    "DescriptionScorer",
    "HearsAndScores",
    "Likelihood",
    "PhonemeScorer",
    "SpeakerEncoder",
    "Transcriber",
    "check_recognisers",
    "load_description_scorer",
    "load_phoneme_scorer",
    "load_speaker_encoder",
    "load_transcriber",
    "phoneme_scorer_languages",
    "transcriber_languages",
]

TRANSCRIBERS = {
    "pocketsphinx-bigram": "elocution.measures.pocketsphinx:BigramTranscriber",
    "pocketsphinx-open": "elocution.measures.pocketsphinx:OpenTranscriber",
    "whisper": "elocution.measures.whisper_recogniser:WhisperRecogniser",
    "faster-whisper": "elocution.measures.faster_whisper:FasterWhisper",
    "sherpa-sensevoice": "elocution.measures.sherpa:SherpaSenseVoice",
    "sherpa-paraformer": "elocution.measures.sherpa:SherpaParaformer",
    "parakeet": "elocution.measures.parakeet:ParakeetCtc",
    "parakeet-tdt": "elocution.measures.parakeet:ParakeetTdt",
}
PHONEME_SCORERS = {
    "hama": "elocution.measures.hama:HamaScorer",
    "whisper": "elocution.measures.whisper_recogniser:WhisperRecogniser",
}
PACKAGED = frozenset({"hama", "pocketsphinx-bigram", "pocketsphinx-open"})
"""Recognisers whose weights are in packages that are always installed; the others need a folder."""

SPEAKER_ENCODERS = {
    "resemblyzer": "elocution.measures.speakers:ResemblyzerEncoder",
    "wavlm-sv": "elocution.measures.speakers:XVectorEncoder",
    "ecapa": "elocution.measures.speakers:EcapaEncoder",
    "campplus": "elocution.measures.speakers:CamPlusEncoder",
}
DESCRIPTION_SCORERS = {"clap": "elocution.measures.clap:ClapScorer"}


def check_recognisers(*, transcriber: str | None = None, phoneme_scorer: str | None = None) -> None:
    """Imports the classes without building them, so that a wrong name is found before any work.

    Raises: ConfigError if there is no such class.
    """
    if transcriber is not None:
        _transcriber_class(transcriber)
    if phoneme_scorer is not None:
        _phoneme_scorer_class(phoneme_scorer)


def load_transcriber(name: str, *, path: str = "", device: str = "cpu") -> Transcriber:
    """The recogniser `name`: a row of the table or `module:Class`. With a `path` it is built as `Class(path, device=device)`.

    Raises: ConfigError if there is no such class, or it cannot be built; MissingDependency if its package is absent.
    """
    transcriber: Transcriber = build_part("recogniser", name, _with_path(_transcriber_class(name), path, device))
    return transcriber


def load_phoneme_scorer(name: str, *, path: str = "", device: str = "cpu") -> PhonemeScorer:
    """The likelihood `name`: a row of the table or `module:Class`. With a `path` it is built as `Class(path, device=device)`.

    Raises: ConfigError if there is no such class, or it cannot be built; MissingDependency if its package is absent.
    """
    scorer: PhonemeScorer = build_part("phoneme scorer", name, _with_path(_phoneme_scorer_class(name), path, device))
    return scorer


def load_speaker_encoder(name: str, *, path: str = "", device: str = "cpu") -> SpeakerEncoder:
    """The speaker encoder `name`: a row of the table or `module:Class`. With a `path` it is built as `Class(path, device=device)`.

    Raises: ConfigError if there is no such class, or it cannot be built; MissingDependency if its package is absent.
    """
    part = import_part("speaker encoder", name, SPEAKER_ENCODERS, methods=["embed"])
    encoder: SpeakerEncoder = build_part("speaker encoder", name, _with_path(part, path, device))
    return encoder


def load_description_scorer(name: str, *, path: str = "", device: str = "cpu") -> DescriptionScorer:
    """The CLAP `name`: a row of the table or `module:Class`. With a `path` it is built as `Class(path, device=device)`.

    Raises: ConfigError if there is no such class, or it cannot be built; CheckpointError if the folder does not hold it.
    """
    part = import_part("description scorer", name, DESCRIPTION_SCORERS, methods=["similarities"])
    scorer: DescriptionScorer = build_part("description scorer", name, _with_path(part, path, device))
    return scorer


def _with_path(part: Any, path: str, device: str) -> Callable[[], Any]:
    return partial(part, path, device=device) if path else part


def transcriber_languages(name: str) -> frozenset[str] | None:
    """The languages that the recogniser `name` hears; None if its class has no `languages` to say so."""
    return _languages(_transcriber_class(name))


def phoneme_scorer_languages(name: str) -> frozenset[str] | None:
    """The languages that the phoneme scorer `name` hears; None if its class has no `languages` to say so."""
    return _languages(_phoneme_scorer_class(name))


def _languages(part: Any) -> frozenset[str] | None:
    return frozenset(part.languages) if hasattr(part, "languages") else None


def _transcriber_class(name: str) -> Any:
    return import_part("recogniser", name, TRANSCRIBERS, methods=["transcribe"])


def _phoneme_scorer_class(name: str) -> Any:
    return import_part("phoneme scorer", name, PHONEME_SCORERS, methods=["score"])
