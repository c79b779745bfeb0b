"""Whisper in CTranslate2's layout, run by faster-whisper: several times faster than transformers on a CPU."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from elocution.measures.optional import import_optional, model_folder
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["FasterWhisper"]

_SAMPLE_RATE = 16_000


class FasterWhisper:
    """A converted checkpoint folder (`model.bin`, `tokenizer.json` or `vocabulary`); greedy, without earlier text as context."""

    languages = tuple(LANGUAGES)

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, "reward.asr_path (or eval.judge_path)", "the recogniser faster-whisper")
        package = import_optional(
            "faster_whisper", package="faster-whisper", install="pip install 'elocution[faster-whisper]'"
        )
        kind, gpu = torch.device(device).type, torch.device(device).index or 0
        self._model: Any = package.WhisperModel(
            str(folder),
            device=kind,
            device_index=gpu,
            compute_type="float16" if kind == "cuda" else "int8",
            cpu_threads=1,
            local_files_only=True,
        )

    def transcribe(self, audio: Audio) -> str:
        """What was said in an English clip."""
        return self.transcribe_all([audio], ["en"])[0]

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip; segments that Whisper takes for silence are left out."""
        return [self._hear(clip, language) for clip, language in zip(clips, languages, strict=True)]

    def _hear(self, clip: Audio, language: str) -> str:
        segments, _ = self._model.transcribe(
            samples_at(clip, _SAMPLE_RATE),
            language=language,
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(segment.text.strip() for segment in segments)
