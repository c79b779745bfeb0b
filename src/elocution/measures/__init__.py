"""Facts about audio, with units. Recognisers by name."""

from typing import Any

from elocution.measures.base import Likelihood, PhonemeScorer, Transcriber
from elocution.registry import build_part, import_part

__all__ = [
    "PHONEME_SCORERS",
    "TRANSCRIBERS",
    "Likelihood",
    "PhonemeScorer",
    "Transcriber",
    "check_recognisers",
    "load_phoneme_scorer",
    "load_transcriber",
    "phoneme_scorer_languages",
    "transcriber_languages",
]

TRANSCRIBERS = {
    "pocketsphinx-bigram": "elocution.measures.pocketsphinx:BigramTranscriber",
    "pocketsphinx-open": "elocution.measures.pocketsphinx:OpenTranscriber",
}
PHONEME_SCORERS = {"hama": "elocution.measures.hama:HamaScorer"}


def check_recognisers(*, transcriber: str | None = None, phoneme_scorer: str | None = None) -> None:
    """Imports the classes without building them, so that a wrong name is found before any work.

    Raises: ConfigError if there is no such class.
    """
    if transcriber is not None:
        _transcriber_class(transcriber)
    if phoneme_scorer is not None:
        _phoneme_scorer_class(phoneme_scorer)


def load_transcriber(name: str) -> Transcriber:
    """The recogniser `name`: a row of the table or `module:Class`.

    Raises: ConfigError if there is no such class, or it cannot be built.
    """
    transcriber: Transcriber = build_part("recogniser", name, _transcriber_class(name))
    return transcriber


def load_phoneme_scorer(name: str) -> PhonemeScorer:
    """The phoneme scorer `name`: a row of the table or `module:Class`.

    Raises: ConfigError if there is no such class, or it cannot be built.
    """
    scorer: PhonemeScorer = build_part("phoneme scorer", name, _phoneme_scorer_class(name))
    return scorer


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
