"""Source speech for the tiny checkpoints: sentences spoken by hibari's bundled voice, trimmed, at 16 kHz."""

import logging
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from elocution.errors import MissingDependency

__all__ = ["SAMPLE_RATE", "SpeechCorpus", "speak_sentences"]

logger = logging.getLogger(__name__)

SAMPLE_RATE = 16_000
_LEAD_S, _TAIL_S = 0.06, 0.10
_SPEECH_THRESHOLD = 0.02  # of the clip's peak: below it a sample counts as silence when trimming
_CHUNK = 128


@dataclass(frozen=True)
class SpeechCorpus:
    """Clips of many sentences in one array. Shapes: `samples` [sum S] int16; clip i is `clip(i)`, float32 [S]."""

    sentences: tuple[str, ...]
    samples: NDArray[np.int16]
    offsets: NDArray[np.int64]

    def clip(self, index: int) -> NDArray[np.float32]:
        start, stop = self.offsets[index], self.offsets[index + 1]
        return self.samples[start:stop].astype(np.float32) / 32768.0

    @property
    def duration_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    def save(self, path: Path) -> None:
        """Writes an npz file, whole or not at all."""
        partial = path.with_name(f".partial.{path.name}")
        np.savez(partial, sentences=np.array(self.sentences), samples=self.samples, offsets=self.offsets)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> "SpeechCorpus":
        with np.load(path) as stored:
            return cls(tuple(stored["sentences"].tolist()), stored["samples"], stored["offsets"])


def speak_sentences(sentences: Sequence[str], *, workers: int) -> SpeechCorpus:
    """Speaks every sentence; the result depends on the sentences alone.

    Raises: MissingDependency if hibari-tts is not installed.
    """
    chunks = [sentences[start : start + _CHUNK] for start in range(0, len(sentences), _CHUNK)]
    clips: list[NDArray[np.int16]] = []
    with ProcessPoolExecutor(workers) as pool, tqdm(total=len(sentences), desc="speak", unit="clip") as bar:
        for spoken in pool.map(_speak_chunk, chunks):
            clips += spoken
            bar.update(len(spoken))
    offsets = np.cumsum([0, *(len(clip) for clip in clips)])
    return SpeechCorpus(tuple(sentences), np.concatenate(clips), offsets)


def _speak_chunk(sentences: Sequence[str]) -> list[NDArray[np.int16]]:
    try:
        from hibari import Hibari
        from scipy.signal import resample_poly
    except ImportError as error:
        raise MissingDependency.naming("hibari-tts", "tiny-build") from error
    voice = Hibari()
    clips = []
    for sentence in sentences:
        wave = resample_poly(voice(f"{sentence}.", seed=0), 2, 3)
        clips.append((_trim(wave) * 32767).clip(-32768, 32767).astype(np.int16))
    return clips


def _trim(wave: NDArray[np.float32]) -> NDArray[np.float32]:
    loud = np.flatnonzero(np.abs(wave) > _SPEECH_THRESHOLD * np.abs(wave).max())
    start = max(0, loud[0] - round(_LEAD_S * SAMPLE_RATE))
    return wave[start : loud[-1] + round(_TAIL_S * SAMPLE_RATE)]
