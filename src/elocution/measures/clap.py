"""How well a clip fits a description in words, by CLAP as transformers runs it."""

from collections.abc import Sequence

import torch
from transformers import ClapModel, ClapProcessor

from elocution.errors import CheckpointError
from elocution.measures.optional import model_folder
from elocution.measures.released import load_whole
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["ClapScorer"]


class ClapScorer:
    """A CLAP checkpoint folder in the layout of `laion/clap-htsat-unfused`.

    Clips pass one by one: the processor crops clips above 10 s at random, so that those are taken from their beginning.
    Raises: CheckpointError if the folder does not hold such a model.
    """

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, "reward.clap_path", "CLAP")
        self._model = load_whole(ClapModel, folder).to(device)
        try:
            self._processor = ClapProcessor.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot load the processor of CLAP in {folder}: {error}") from error
        self._rate = int(self._processor.feature_extractor.sampling_rate)
        self._longest = int(self._processor.feature_extractor.nb_max_samples)

    @torch.inference_mode()
    def similarities(self, clips: Sequence[Audio], descriptions: Sequence[Sequence[str]]) -> list[list[float]]:
        """As `DescriptionScorer` says."""
        found = []
        for clip, texts in zip(clips, descriptions, strict=True):
            inputs = self._processor(
                text=list(texts),
                audio=[samples_at(clip, self._rate)[: self._longest]],
                sampling_rate=self._rate,
                text_kwargs={"padding": True},
                return_tensors="pt",
            ).to(self._model.device)
            answer = self._model(**inputs)
            found.append(torch.nn.functional.cosine_similarity(answer.audio_embeds, answer.text_embeds).tolist())
        return found
