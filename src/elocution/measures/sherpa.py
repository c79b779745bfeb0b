"""Recognisers that sherpa-onnx runs from a folder with `model.onnx` (or `model.int8.onnx`) and `tokens.txt`."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elocution.errors import CheckpointError, ConfigError
from elocution.measures.optional import import_optional, model_file, model_folder
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["SherpaParaformer", "SherpaSenseVoice", "check_metadata", "sherpa_provider"]

_SAMPLE_RATE = 16_000
_SHORTEST_S = 0.1
_PARAFORMER = ("vocab_size", "lfr_window_size", "lfr_window_shift", "neg_mean", "inv_stddev")
_SENSEVOICE = (*_PARAFORMER, "normalize_samples", "with_itn", "without_itn", "lang_auto")


class SherpaSenseVoice:
    """SenseVoice: Chinese, English, Japanese, Korean and Cantonese; one recogniser for each language that is asked for."""

    languages = ("zh", "en", "ja", "ko", "yue")

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        self._folder, self._recogniser, self._provider = _prepare(path, "sherpa-sensevoice", device)
        self._by_language: dict[str, Any] = {}
        check_metadata(Path(_files(self._folder)[0]), _SENSEVOICE)

    def transcribe(self, audio: Audio) -> str:
        """What was said in an English clip."""
        return self.transcribe_all([audio], ["en"])[0]

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip, clips of one language together.

        Raises: ValueError if SenseVoice does not know a language.
        """
        heard: dict[int, str] = {}
        for language in dict.fromkeys(languages):
            members = [index for index, own in enumerate(languages) if own == language]
            found = _decode(self._for(language), [clips[index] for index in members])
            heard |= dict(zip(members, found, strict=True))
        return [heard[index] for index in range(len(clips))]

    def _for(self, language: str) -> Any:
        if language not in self.languages:
            raise ValueError(f"SenseVoice hears {', '.join(self.languages)}; {language!r} was asked for")
        if language not in self._by_language:
            model, tokens = _files(self._folder)
            self._by_language[language] = self._recogniser.from_sense_voice(
                model=model, tokens=tokens, language=language, use_itn=False, num_threads=1, provider=self._provider
            )
        return self._by_language[language]


class SherpaParaformer:
    """Paraformer, one model for the languages that it was trained on: Chinese, or Chinese and English."""

    languages = ("zh", "en")

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder, recogniser, provider = _prepare(path, "sherpa-paraformer", device)
        model, tokens = _files(folder)
        check_metadata(Path(model), _PARAFORMER)
        self._model: Any = recogniser.from_paraformer(paraformer=model, tokens=tokens, num_threads=1, provider=provider)

    def transcribe(self, audio: Audio) -> str:
        """What was said in one clip."""
        return _decode(self._model, [audio])[0]

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip; Paraformer is not told the language.

        Each passes by itself: sherpa-onnx does not know how many words a shorter clip of a batch has, and hears some in the
        padding behind it.
        """
        return [text for clip in clips for text in _decode(self._model, [clip])]


def check_metadata(model: Path, keys: Sequence[str]) -> None:
    """Looks for the names of metadata in an ONNX file. sherpa-onnx ends the whole process where one is missing.

    Raises: CheckpointError if the file does not hold them.
    """
    with model.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            raise CheckpointError(f"{model} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            # A name stands behind its tag and its length; they come after the tensors.
            missing = [key for key in keys if content.rfind(b"\n" + bytes([len(key)]) + key.encode()) < 0]
    if missing:
        raise CheckpointError(f"{model} is no model exported for sherpa-onnx: its metadata has no {', '.join(missing)}")


def sherpa_provider(device: str, version: str) -> str:
    """What sherpa-onnx calls `device`. It knows one GPU alone, and takes the CPU without an error where it was built for that.

    Raises: ConfigError if it would not run on `device`.
    """
    place = torch.device(device)
    if place.type == "cpu":
        return "cpu"
    if place.type != "cuda" or place.index:
        raise ConfigError(f"sherpa-onnx runs on cpu, cuda or cuda:0; reward.devices has {device!r}")
    if "cuda" not in version:
        raise ConfigError(
            f"reward.devices has {device!r}, but this sherpa-onnx ({version}) computes on the CPU; install its build for CUDA"
        )
    return "cuda"


def _prepare(path: str, name: str, device: str) -> tuple[Path, Any, str]:
    folder = model_folder(path, "reward.asr_path (or eval.judge_path)", f"the recogniser {name}")
    sherpa = import_optional("sherpa_onnx", package="sherpa-onnx", install="pip install 'elocution[sherpa]'")
    return folder, sherpa.OfflineRecognizer, sherpa_provider(device, sherpa.__version__)


def _files(folder: Path) -> tuple[str, str]:
    return str(model_file(folder, "model.onnx", "model.int8.onnx")), str(model_file(folder, "tokens.txt"))


def _decode(recogniser: Any, clips: Sequence[Audio]) -> list[str]:
    """What was said in each clip; nothing in one that is shorter than a window of the model, which is not looked at."""
    streams: list[Any] = []
    for clip in clips:
        samples = samples_at(clip, _SAMPLE_RATE)
        if len(samples) < _SHORTEST_S * _SAMPLE_RATE:
            streams.append(None)
            continue
        streams.append(recogniser.create_stream())
        streams[-1].accept_waveform(_SAMPLE_RATE, samples)
    if asked := [stream for stream in streams if stream is not None]:
        recogniser.decode_streams(asked)
    return ["" if stream is None else str(stream.result.text).strip() for stream in streams]
