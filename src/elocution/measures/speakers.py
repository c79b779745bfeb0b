"""Speaker encoders, and how alike two voices are. Each embeds a clip by its own length, so that no padding is heard."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoFeatureExtractor, WavLMForXVector

from elocution.measures.loudness import is_silent
from elocution.measures.optional import NO_DEPS, import_optional, model_file, model_folder
from elocution.measures.released import load_whole
from elocution.measures.resample import samples_at
from elocution.measures.sherpa import sherpa_provider
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
        samples = [_voiced_samples(clip) for clip in clips]
        rows: dict[int, NDArray[np.float32]] = {}
        for length in sorted({len(own) for own in samples}):
            members = [index for index, own in enumerate(samples) if len(own) == length]
            inputs = self._features(
                [samples[index] for index in members], sampling_rate=_SAMPLE_RATE, return_tensors="pt"
            )
            embedded = self._model(inputs.input_values.to(self._model.device)).embeddings.float().cpu().numpy()
            rows |= dict(zip(members, embedded, strict=True))
        return _unit_rows([rows[index] for index in range(len(samples))])


class EcapaEncoder:
    """speechbrain's ECAPA-TDNN from a folder such as `spkrec-ecapa-voxceleb`; lengths go with the batch."""

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, _KEY, "the speaker encoder ecapa")
        speaker = import_optional(
            "speechbrain.inference.speaker", package="speechbrain", install="pip install speechbrain"
        )
        self._model: Any = speaker.EncoderClassifier.from_hparams(
            source=str(folder), savedir=str(folder), run_opts={"device": device}
        )

    @torch.inference_mode()
    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        samples = [torch.from_numpy(np.array(_voiced_samples(clip))) for clip in clips]
        padded = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
        lengths = torch.tensor([len(own) / padded.shape[1] for own in samples])
        return _unit_rows(list(self._model.encode_batch(padded, lengths)[:, 0].float().cpu().numpy()))


class CamPlusEncoder:
    """CAM++ or another ONNX speaker model of 3D-Speaker or WeSpeaker, run by sherpa-onnx; a folder with one `.onnx` file."""

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, _KEY, "the speaker encoder campplus")
        files = sorted(entry.name for entry in folder.glob("*.onnx"))
        sherpa = import_optional("sherpa_onnx", package="sherpa-onnx", install="pip install 'elocution[sherpa]'")
        provider = sherpa_provider(device, sherpa.__version__)
        config = sherpa.SpeakerEmbeddingExtractorConfig(
            model=str(model_file(folder, *(files or ["campplus.onnx"]))), num_threads=1, provider=provider
        )
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
