"""What a rollout engine must do: prompts in, completions out. Names no model family."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elocution.types import Completion

__all__ = ["RolloutEngine", "RolloutRequest", "as_stream", "in_order"]


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
    """Draws completions with the weights that were last published; used by one thread at a time.

    `temperature` is that of the softmax, and may be changed between calls.
    """

    temperature: float

    def publish(self, version: int) -> None:
        """After this returns, `stream` draws with the policy's current weights and stamps `version`."""

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        """Each completion as soon as it has ended, with the index of its request and that of its seed; in any order.

        Raises: EngineError if the weights give probabilities that are not finite.
        """


def in_order(
    requests: Sequence[RolloutRequest], drawn: Iterable[tuple[int, int, Completion]]
) -> list[list[Completion]]:
    """What an engine streamed for `requests`, by request, in the order of its seeds."""
    completions = {(index, sibling): completion for index, sibling, completion in drawn}
    return [
        [completions[index, sibling] for sibling in range(len(request.seeds))] for index, request in enumerate(requests)
    ]


def as_stream(completions: Sequence[Sequence[Completion]]) -> Iterator[tuple[int, int, Completion]]:
    """The stream of an engine that knows its completions only when all have ended; the inverse of `in_order`."""
    for index, group in enumerate(completions):
        for sibling, completion in enumerate(group):
            yield index, sibling, completion
