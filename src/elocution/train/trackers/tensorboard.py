"""TensorBoard: event files in `tensorboard/` of the run."""

from collections.abc import Mapping

import torch

from elocution.audio import read_audio
from elocution.measures.optional import import_optional
from elocution.train.trackers.base import Clip, Start

__all__ = ["TensorBoardTracker"]


class TensorBoardTracker:
    """A `Tracker`. What an interrupted run wrote past the step that it goes on from is hidden by TensorBoard."""

    def __init__(self, start: Start) -> None:
        self.check()
        from torch.utils.tensorboard import SummaryWriter

        purged = start.step + 1 if start.step else None
        self._writer = SummaryWriter(str(start.run / "tensorboard"), purge_step=purged)

    @classmethod
    def check(cls) -> None:
        import_optional("tensorboard", package="tensorboard", install="pip install 'elocution[tensorboard]'")

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def clip(self, step: int, clip: Clip) -> None:
        audio = read_audio(clip.path)
        self._writer.add_audio(clip.name, torch.from_numpy(audio.samples)[None], step, sample_rate=audio.sample_rate)
        self._writer.add_text(clip.name, clip.caption, step)

    def close(self) -> None:
        self._writer.close()
