"""NVIDIA's Parakeet, as transformers runs it: with a CTC head, which hears English, or with a transducer that predicts durations."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import ParakeetForCTC, ParakeetForTDT, ParakeetProcessor

from elocution.errors import CheckpointError
from elocution.measures.optional import model_folder
from elocution.measures.released import load_whole
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["ParakeetCtc", "ParakeetTdt"]


class ParakeetCtc:
    """A checkpoint folder in the layout of `nvidia/parakeet-ctc-1.1b` for transformers.

    Raises: CheckpointError if the folder does not hold such a model.
    """

    languages = ("en",)

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        self._parakeet = _Parakeet(ParakeetForCTC, path, device, "parakeet")

    def transcribe(self, audio: Audio) -> str:
        """What was said in one clip."""
        return self.transcribe_all([audio], ["en"])[0]

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip; clips of unequal length are masked, and hear the same as alone.

        Raises: ValueError if a clip is not in English.
        """
        if other := sorted(set(languages) - set(self.languages)):
            raise ValueError(f"Parakeet CTC hears English, {', '.join(other)} was asked for")
        return self._parakeet.hear(clips)


class ParakeetTdt:
    """A checkpoint folder in the layout of `nvidia/parakeet-tdt-0.6b-v3` for transformers, which finds out the language by itself.

    `languages` are those of v3; v2 hears English alone.
    Raises: CheckpointError if the folder does not hold such a model.
    """

    languages = tuple("bg cs da de el en es et fi fr hr hu it lt lv mt nl pl pt ro ru sk sl sv uk".split())

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        self._parakeet = _Parakeet(ParakeetForTDT, path, device, "parakeet-tdt")

    def transcribe(self, audio: Audio) -> str:
        """What was said in one clip."""
        return self._parakeet.hear([audio])[0]

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip; clips of unequal length are masked, and hear the same as alone.

        Raises: ValueError if no checkpoint of this kind hears a language.
        """
        if other := sorted(set(languages) - set(self.languages)):
            raise ValueError(f"Parakeet TDT hears {', '.join(self.languages)}; {', '.join(other)} was asked for")
        return self._parakeet.hear(clips)


class _Parakeet:
    def __init__(self, kind: Any, path: str, device: str, name: str) -> None:
        folder = model_folder(path, "reward.asr_path (or eval.judge_path)", f"the recogniser {name}")
        self._model = load_whole(kind, folder).to(device)
        try:
            self._processor = ParakeetProcessor.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot load the processor of Parakeet in {folder}: {error}") from error
        self._rate = int(self._processor.feature_extractor.sampling_rate)

    @torch.inference_mode()
    def hear(self, clips: Sequence[Audio]) -> list[str]:
        inputs = self._processor(
            [samples_at(clip, self._rate) for clip in clips], sampling_rate=self._rate, return_tensors="pt"
        ).to(self._model.device)
        ids = self._draw_tdt(inputs) if isinstance(self._model, ParakeetForTDT) else self._model.generate(**inputs)
        return [text.strip() for text in self._processor.batch_decode(ids, skip_special_tokens=True)]

    def _draw_tdt(self, inputs: Any) -> torch.Tensor:
        """The ids of each clip up to its own end: `generate` goes on with the short ones until the longest is heard."""
        # transformers wants a bound, although the end of the sound is one; as many frames of it are more than enough.
        longest = self._model.max_symbols_per_step * inputs.input_features.shape[1]
        drawn = self._model.generate(**inputs, max_new_tokens=longest)
        starts = drawn.durations.cumsum(dim=1) - drawn.durations
        frames = self._model._get_subsampling_output_length(inputs.attention_mask.sum(dim=1))
        ids: torch.Tensor = drawn.sequences.masked_fill(
            starts >= frames[:, None], self._processor.tokenizer.pad_token_id
        )
        return ids
