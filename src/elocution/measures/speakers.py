"""Speaker encoders, and how alike two voices are. Each embeds a clip by its own length, so that no padding is heard."""

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoFeatureExtractor, WavLMForXVector

from elocution.measures.loudness import is_silent
from elocution.measures.optional import NO_DEPS, import_optional, model_file, model_folder, without_torchaudio
from elocution.measures.released import load_whole
from elocution.measures.resample import samples_at
from elocution.measures.sherpa import check_metadata, sherpa_provider
from elocution.types import Audio

__all__ = ["CamPlusEncoder", "EcapaEncoder", "ResemblyzerEncoder", "XVectorEncoder", "cosine_similarity"]

_SAMPLE_RATE = 16_000
_SHORTEST_S = 0.4
_KEY = "reward.speaker_path"


def cosine_similarity(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of the angle between the rows of two matrices [B, D], in [-1, 1]; higher is more alike."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    product: NDArray[np.float64] = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return product


def _voiced_samples(audio: Audio) -> NDArray[np.float32]:
    if audio.duration_s < _SHORTEST_S:
        raise ValueError(f"a clip of {audio.duration_s:.2f} s is too short to hold a voice, {_SHORTEST_S} s are needed")
    if is_silent(audio):
        raise ValueError("there is no voice in a silent clip")
    return samples_at(audio, _SAMPLE_RATE)


def _unit_rows(rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    stacked = np.stack([np.asarray(row, dtype=np.float32).reshape(-1) for row in rows])
    unit: NDArray[np.float32] = stacked / np.linalg.norm(stacked, axis=1, keepdims=True)
    return unit


def _embed_each(
    clips: Sequence[Audio], embed: Callable[[NDArray[np.float32]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    return _unit_rows([embed(_voiced_samples(clip)) for clip in clips])


def _embed_by_length(
    clips: Sequence[Audio], embed: Callable[[NDArray[np.float32]], torch.Tensor]
) -> NDArray[np.float32]:
    """Embeddings of clips, those of one length together. Shapes: `embed` takes samples [N, S] and gives [N, D]."""
    samples = [_voiced_samples(clip) for clip in clips]
    rows: dict[int, NDArray[np.float32]] = {}
    for length in sorted({len(own) for own in samples}):
        members = [index for index, own in enumerate(samples) if len(own) == length]
        embedded = embed(np.stack([samples[index] for index in members])).float().cpu().numpy()
        rows |= dict(zip(members, embedded, strict=True))
    return _unit_rows([rows[index] for index in range(len(samples))])


class ResemblyzerEncoder:
    """The package's GE2E encoder, whose weights are in it: mean of the embeddings of 1.6 s windows, silences cut out.

    Source: Wan et al., arXiv:1710.10467.
    """

    def __init__(self) -> None:
        self._package = import_optional("resemblyzer", package="resemblyzer", install=f"{NO_DEPS} resemblyzer")
        self._encoder = self._package.VoiceEncoder("cpu", verbose=False)

    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        return _embed_each(clips, self._embed)

    def _embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        voiced = self._package.preprocess_wav(samples)
        if len(voiced) < _SHORTEST_S * _SAMPLE_RATE:
            raise ValueError("less than 0.4 s of the clip sound like a voice")
        embedding: NDArray[np.float32] = self._encoder.embed_utterance(voiced)
        return embedding


class XVectorEncoder:
    """WavLM with an x-vector head, as `microsoft/wavlm-base-plus-sv` and seed-tts-eval's likes are released for transformers.

    Clips of one length pass together; others by themselves, because the head averages over frames without a mask.
    Raises: CheckpointError if the folder does not hold such a model.
    """

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, _KEY, "the speaker encoder wavlm-sv")
        self._model = load_whole(WavLMForXVector, folder).to(device)
        self._features = AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)

    @torch.inference_mode()
    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        def pass_together(rows: NDArray[np.float32]) -> torch.Tensor:
            inputs = self._features(list(rows), sampling_rate=_SAMPLE_RATE, return_tensors="pt")
            embedded: torch.Tensor = self._model(inputs.input_values.to(self._model.device)).embeddings
            return embedded

        return _embed_by_length(clips, pass_together)


class EcapaEncoder:
    """speechbrain's ECAPA-TDNN from a folder such as `spkrec-ecapa-voxceleb`.

    Clips of one length pass together; others by themselves: speechbrain is told their lengths, but its convolutions reach
    into the padding behind a clip, and move the embedding.
    """

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, _KEY, "the speaker encoder ecapa").absolute()
        with without_torchaudio():
            speaker = import_optional(
                "speechbrain.inference.speaker",
                package="speechbrain",
                install="pip install --no-deps speechbrain hyperpyyaml && pip install 'ruamel.yaml<0.19' joblib sentencepiece",
            )
        model_file(folder, "hyperparams.yaml")
        # The released file names the hub as where its tensors are, and the package links what it reads into `savedir`.
        with without_torchaudio(), tempfile.TemporaryDirectory() as links:
            self._model: Any = speaker.EncoderClassifier.from_hparams(
                source=str(folder),
                savedir=links,
                overrides={"pretrained_path": str(folder)},
                overrides_must_match=False,
                run_opts={"device": device},
            )

    @torch.inference_mode()
    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        return _embed_by_length(clips, lambda rows: self._model.encode_batch(torch.from_numpy(rows))[:, 0])


class CamPlusEncoder:
    """CAM++ or another ONNX speaker model of 3D-Speaker or WeSpeaker, run by sherpa-onnx; a folder with one `.onnx` file."""

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, _KEY, "the speaker encoder campplus")
        files = sorted(entry.name for entry in folder.glob("*.onnx"))
        sherpa = import_optional("sherpa_onnx", package="sherpa-onnx", install="pip install 'elocution[sherpa]'")
        provider = sherpa_provider(device, sherpa.__version__)
        model = model_file(folder, *(files or ["campplus.onnx"]))
        check_metadata(model, ("framework", "output_dim", "sample_rate", "language"))
        config = sherpa.SpeakerEmbeddingExtractorConfig(model=str(model), num_threads=1, provider=provider)
        self._extractor: Any = sherpa.SpeakerEmbeddingExtractor(config)

    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        return _embed_each(clips, self._embed)

    def _embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        stream = self._extractor.create_stream()
        stream.accept_waveform(sample_rate=_SAMPLE_RATE, waveform=samples)
        stream.input_finished()
        if not self._extractor.is_ready(stream):
            raise ValueError("the clip is too short for the speaker model")
        return np.asarray(self._extractor.compute(stream), dtype=np.float32)
