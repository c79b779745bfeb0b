"""hama's phoneme CTC model as a likelihood of the wanted text."""

import hama
import numpy as np
from numpy.typing import NDArray

from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["HamaScorer", "ctc_nll"]

_SAMPLE_RATE = 16_000
MAX_NLL = 20.0
"""Reported where a clip is too short for any alignment of the text, nats per phoneme; wrong texts give about 10."""


class HamaScorer:
    """Scores English text by its phonemes; pronunciations are looked up once per word."""

    def __init__(self) -> None:
        self._asr = hama.ASRModel()
        self._g2p = hama.G2PModel()
        self._index = {token: index for index, token in enumerate(self._asr.decoder_tokens)}
        self._phonemes: dict[str, list[int]] = {}

    def nll(self, audio: Audio, text: str) -> float:
        """CTC negative log-likelihood per phoneme, nats, at most `MAX_NLL`.

        Raises: ValueError if the text has no phoneme that the model knows.
        """
        targets = [phoneme for word in text.split() for phoneme in self._pronounce(word)]
        if not targets:
            raise ValueError(f"no phoneme to listen for in {text!r}")
        samples = samples_at(audio, _SAMPLE_RATE)
        logprobs, lengths = self._asr.session.run(
            ["log_probs", "out_lengths"],
            {"waveform": samples[None], "waveform_lengths": np.array([len(samples)])},
        )
        total = ctc_nll(logprobs[0, : int(lengths[0])].astype(np.float64), targets, self._asr.blank_id)
        return min(MAX_NLL, total / len(targets))

    def _pronounce(self, word: str) -> list[int]:
        if word not in self._phonemes:
            spoken = self._g2p.predict(word)
            self._phonemes[word] = [self._index[item.phoneme] for item in spoken.alignments]
        return self._phonemes[word]


def ctc_nll(logprobs: NDArray[np.float64], targets: list[int], blank: int) -> float:
    """Negative log of the summed probability of all alignments of `targets`, nats; large but finite if there is none.

    Shapes: `logprobs` [frames, vocabulary].
    Source: Graves et al. 2006, "Connectionist Temporal Classification", section 4.1.
    """
    states = np.full(2 * len(targets) + 1, blank)
    states[1::2] = targets
    impossible = -1e9
    skips = np.zeros(len(states), dtype=bool)
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    forward = np.full(len(states), impossible)
    forward[:2] = logprobs[0, states[:2]]
    for frame in logprobs[1:]:
        from_previous = np.concatenate([[impossible], forward[:-1]])
        from_skip = np.where(skips, np.concatenate([[impossible, impossible], forward[:-2]]), impossible)
        forward = np.logaddexp(np.logaddexp(forward, from_previous), from_skip) + frame[states]
    return float(-np.logaddexp(forward[-1], forward[-2]))
