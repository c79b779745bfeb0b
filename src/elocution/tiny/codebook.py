"""The tiny codec's codebook: k-means over log-mel blocks of the source speech."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from elocution.codecs.tiny import MelSettings, TinyCodec, log_mel_blocks
from elocution.errors import MissingDependency
from elocution.tiny.speech import SAMPLE_RATE, SpeechCorpus
from elocution.types import Audio

__all__ = ["encode_corpus", "fit_codec"]

logger = logging.getLogger(__name__)


def fit_codec(corpus: SpeechCorpus, *, num_codes: int, num_clips: int, settings: MelSettings, seed: int) -> TinyCodec:
    """Clusters the first `num_clips` clips into `num_codes` centroids.

    Raises: MissingDependency if scikit-learn is not installed.
    """
    try:
        from sklearn.cluster import MiniBatchKMeans
    except ImportError as error:
        raise MissingDependency.naming("scikit-learn", "tiny-build") from error
    blocks = [
        log_mel_blocks(torch.from_numpy(corpus.clip(index)), settings)
        for index in tqdm(range(num_clips), desc="spectra", unit="clip")
    ]
    data = torch.cat(blocks).numpy()
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
    ).fit(data)
    return TinyCodec(torch.from_numpy(clustering.cluster_centers_).half(), settings)


def encode_corpus(
    codec: TinyCodec, corpus: SpeechCorpus, indices: Sequence[int] | None = None
) -> list[NDArray[np.int64]]:
    """Codes [F, 1] of every clip in order, or of those at `indices`."""
    return [
        codec.encode(Audio(corpus.clip(index), SAMPLE_RATE))
        for index in tqdm(range(len(corpus.sentences)) if indices is None else indices, desc="encode", unit="clip")
    ]
