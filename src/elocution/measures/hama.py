"""hama's phoneme CTC model: the likelihood of the wanted text, and which of its phonemes were heard."""

import hama
import numpy as np
from numpy.typing import NDArray

from elocution.measures.base import Likelihood
from elocution.measures.ctc import best_labels, ctc_nll
from elocution.measures.error_rates import count_edits
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["HamaScorer"]

_SAMPLE_RATE = 16_000
_WORD_BOUNDARY = "<wb>"
# The pronouncer separates the parts of some phonemes by a space that the recogniser never emits.
_NEVER_EMITTED = " "


class HamaScorer:
    """Scores English text by its phonemes; a word is pronounced once and remembered."""

    languages = ("en",)

    def __init__(self) -> None:
        self._asr = hama.ASRModel()
        self._g2p = hama.G2PModel()
        self._index = {token: index for index, token in enumerate(self._asr.decoder_tokens)}
        self._phonemes: dict[str, list[int]] = {}

    def score(self, audio: Audio, text: str) -> Likelihood:
        targets = [phoneme for word in text.split() for phoneme in self._pronounce(word)]
        if not targets:
            raise ValueError(f"no phoneme to listen for in {text!r}")
        logprobs, blank = self._logprobs(audio), self._asr.blank_id
        heard = best_labels(logprobs, blank)
        nll = ctc_nll(logprobs, targets, blank) / len(targets)
        return Likelihood(nll, len(targets), len(heard), phonemes=count_edits(targets, heard))

    def _logprobs(self, audio: Audio) -> NDArray[np.float64]:
        """Log-probabilities [frames, vocabulary] at 50 Hz.

        The mass of the word boundary is given to the blank: words run together in speech, and where the model hears
        a boundary says nothing about whether the right phonemes were spoken.
        """
        samples = samples_at(audio, _SAMPLE_RATE).clip(-1.0, 1.0)
        (logprobs,), lengths = self._asr.session.run(
            ["log_probs", "out_lengths"],
            {"waveform": samples[None], "waveform_lengths": np.array([len(samples)])},
        )
        merged: NDArray[np.float64] = logprobs[: int(lengths[0])].astype(np.float64)
        blank, boundary = self._asr.blank_id, self._index[_WORD_BOUNDARY]
        merged[:, blank] = np.logaddexp(merged[:, blank], merged[:, boundary])
        merged[:, boundary] = -np.inf
        return merged

    def _pronounce(self, word: str) -> list[int]:
        if word not in self._phonemes:
            spoken = [item.phoneme for item in self._g2p.predict(word).alignments]
            self._phonemes[word] = [self._index[phoneme] for phoneme in spoken if phoneme != _NEVER_EMITTED]
        return self._phonemes[word]
