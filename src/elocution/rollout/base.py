"""What a rollout engine must do: prompts in, completions out. Names no model family."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elocution.types import Completion

__all__ = ["RolloutEngine", "RolloutRequest"]


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One prompt and how it shall be answered.

    Shapes: `prompt_ids` [L]. One completion is drawn for each entry of `seeds`, and depends on the weights, the
    prompt and that seed alone: not on what else is in the batch. `max_new` is the token budget, stop id included.
    """

    prompt_ids: NDArray[np.int64]
    seeds: tuple[tuple[int, ...], ...]
    max_new: int


class RolloutEngine(Protocol):
    """Draws completions with the weights that were last published.

    `temperature` is that of the softmax, and may be changed between calls.
    """

    temperature: float

    def publish(self, version: int) -> None:
        """After this returns, `generate` draws with the policy's current weights and stamps `version`."""

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds.

        Raises: EngineError if the weights give probabilities that are not finite.
        """
