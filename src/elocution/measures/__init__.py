"""Facts about audio, with units. Recognisers by name."""

from elocution.measures.base import Likelihood, PhonemeScorer, Transcriber
from elocution.registry import import_part

__all__ = [
    "PHONEME_SCORERS",
    "TRANSCRIBERS",
    "Likelihood",
    "PhonemeScorer",
    "Transcriber",
    "check_recognisers",
    "load_phoneme_scorer",
    "load_transcriber",
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
        import_part("recogniser", transcriber, TRANSCRIBERS, methods=["transcribe"])
    if phoneme_scorer is not None:
        import_part("phoneme scorer", phoneme_scorer, PHONEME_SCORERS, methods=["score"])


def load_transcriber(name: str) -> Transcriber:
    """The recogniser `name`: a row of the table or `module:Class`."""
    transcriber: Transcriber = import_part("recogniser", name, TRANSCRIBERS)()
    return transcriber


def load_phoneme_scorer(name: str) -> PhonemeScorer:
    """The phoneme scorer `name`: a row of the table or `module:Class`."""
    scorer: PhonemeScorer = import_part("phoneme scorer", name, PHONEME_SCORERS)()
    return scorer
