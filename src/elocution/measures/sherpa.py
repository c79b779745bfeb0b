"""Recognisers that sherpa-onnx runs from a folder with `model.onnx` (or `model.int8.onnx`) and `tokens.txt`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elocution.errors import ConfigError
from elocution.measures.optional import import_optional, model_file, model_folder
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["SherpaParaformer", "SherpaSenseVoice", "sherpa_provider"]

_SAMPLE_RATE = 16_000
_SHORTEST_S = 0.1


class SherpaSenseVoice:
    """SenseVoice: Chinese, English, Japanese, Korean and Cantonese; one recogniser for each language that is asked for."""

    languages = ("zh", "en", "ja", "ko", "yue")

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        self._folder, self._recogniser, self._provider = _prepare(path, "sherpa-sensevoice", device)
        self._by_language: dict[str, Any] = {}
        _files(self._folder)

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
