"""The tiny codecs' codebooks: k-means over log-mel blocks of the source speech, or over what earlier codebooks left."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from elocution.codecs.base import Codec
from elocution.codecs.mel import MelSettings, log_mel_blocks
from elocution.codecs.tiny import TinyCodec
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.errors import MissingDependency
from elocution.tiny.speech import SAMPLE_RATE, SpeechCorpus
from elocution.types import Audio

__all__ = ["encode_corpus", "fit_codec", "fit_residual_codec"]

logger = logging.getLogger(__name__)


def fit_codec(corpus: SpeechCorpus, *, num_codes: int, num_clips: int, settings: MelSettings, seed: int) -> TinyCodec:
    """Clusters the first `num_clips` clips into `num_codes` centroids.

    Raises: MissingDependency if scikit-learn is not installed.
    """
    data = _blocks(corpus, num_clips, settings)
    return TinyCodec(_cluster(data, num_codes, seed).half(), settings)


def fit_residual_codec(
    corpus: SpeechCorpus, *, num_codebooks: int, num_codes: int, num_clips: int, settings: MelSettings, seed: int
) -> TinyResidualCodec:
    """Clusters the first `num_clips` clips into `num_codes` entries, then what these leave into the next, and so on.

    Raises: MissingDependency if scikit-learn is not installed.
    """
    left = _blocks(corpus, num_clips, settings)
    codebooks = []
    for book in range(num_codebooks):
        entries = _cluster(left, num_codes, seed + book)
        left = left - entries[torch.cdist(left, entries).argmin(dim=1)]
        logger.info("codebook %d leaves an RMS of %.3f nepers", book, left.square().mean().sqrt())
        codebooks.append(entries)
    return TinyResidualCodec(torch.stack(codebooks).half(), settings)


def _blocks(corpus: SpeechCorpus, num_clips: int, settings: MelSettings) -> Tensor:
    """Log-mel blocks of the first clips. Shapes: [N, frames * bands]."""
    return torch.cat(
        [
            log_mel_blocks(torch.from_numpy(corpus.clip(index)), settings)
            for index in tqdm(range(num_clips), desc="spectra", unit="clip")
        ]
    )


def _cluster(data: Tensor, num_codes: int, seed: int) -> Tensor:
    """Shapes: [N, D] -> [num_codes, D]."""
    try:
        from sklearn.cluster import MiniBatchKMeans
    except ImportError as error:
        raise MissingDependency.naming("scikit-learn", "tiny-build") from error
    logger.info("clustering %d blocks into %d codes", len(data), num_codes)
    clustering = MiniBatchKMeans(
        num_codes,
        batch_size=16384,
        max_iter=6,
        n_init=1,
        init="random",
        init_size=65536,
        reassignment_ratio=0.005,
        random_state=seed,
    ).fit(data.numpy())
    return torch.from_numpy(clustering.cluster_centers_)


def encode_corpus(codec: Codec, corpus: SpeechCorpus, indices: Sequence[int] | None = None) -> list[NDArray[np.int64]]:
    """Codes [F, Q] of every clip in order, or of those at `indices`."""
    return [
        codec.encode(Audio(corpus.clip(index), SAMPLE_RATE))
        for index in tqdm(range(len(corpus.sentences)) if indices is None else indices, desc="encode", unit="clip")
    ]
