"""NVIDIA's Parakeet CTC, as transformers runs it; English."""

from collections.abc import Sequence

import torch
from transformers import ParakeetForCTC, ParakeetProcessor

from elocution.errors import CheckpointError
from elocution.measures.optional import model_folder
from elocution.measures.released import load_whole
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["ParakeetCtc"]


class ParakeetCtc:
    """A checkpoint folder in the layout of `nvidia/parakeet-ctc-1.1b` for transformers.

    Raises: CheckpointError if the folder does not hold such a model.
    """

    languages = ("en",)

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, "reward.asr_path (or eval.judge_path)", "the recogniser parakeet")
        self._model = load_whole(ParakeetForCTC, folder).to(device)
        try:
            self._processor = ParakeetProcessor.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot load the processor of Parakeet in {folder}: {error}") from error
        self._rate = int(self._processor.feature_extractor.sampling_rate)

    def transcribe(self, audio: Audio) -> str:
        """What was said in one clip."""
        return self.transcribe_all([audio], ["en"])[0]

    @torch.inference_mode()
    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip; clips of unequal length are masked, and hear the same as alone.

        Raises: ValueError if a clip is not in English.
        """
        if other := sorted(set(languages) - set(self.languages)):
            raise ValueError(f"Parakeet CTC hears English, {', '.join(other)} was asked for")
        inputs = self._processor(
            [samples_at(clip, self._rate) for clip in clips], sampling_rate=self._rate, return_tensors="pt"
        ).to(self._model.device)
        ids = self._model.generate(**inputs)
        texts: list[str] = self._processor.batch_decode(ids, skip_special_tokens=True)
        return [text.strip() for text in texts]
