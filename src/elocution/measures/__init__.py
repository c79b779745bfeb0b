"""Facts about audio, with units. Recognisers by name."""

from elocution.measures.base import Likelihood, PhonemeScorer, Transcriber
from elocution.registry import import_part

__all__ = [
    "PHONEME_SCORERS",
    "TRANSCRIBERS",
    "Likelihood",
    "PhonemeScorer",
    "Transcriber",
    "load_phoneme_scorer",
    "load_transcriber",
]

TRANSCRIBERS = {
    "pocketsphinx-bigram": "elocution.measures.pocketsphinx:BigramTranscriber",
    "pocketsphinx-open": "elocution.measures.pocketsphinx:OpenTranscriber",
}
PHONEME_SCORERS = {"hama": "elocution.measures.hama:HamaScorer"}


def load_transcriber(name: str) -> Transcriber:
    """The recogniser `name`: a row of the table or `module:Class`."""
    transcriber: Transcriber = import_part("recogniser", name, TRANSCRIBERS)()
    return transcriber


def load_phoneme_scorer(name: str) -> PhonemeScorer:
    """The phoneme scorer `name`: a row of the table or `module:Class`."""
    scorer: PhonemeScorer = import_part("phoneme scorer", name, PHONEME_SCORERS)()
    return scorer
