"""Texts that are asked for at once, of the tiny checkpoint, whose speech tells them apart."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from elocution.assets import resolve_path
from elocution.errors import EngineError
from elocution.policies import load_policy
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.canary import Canary
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Completion, Utterance

POLICY = load_policy("llasa", resolve_path("builtin:tiny-llasa"))
TEXTS = ("mary painted the house", "three birds are here", "mary painted the house", "the winter visited the lady")
Stream = Callable[[Sequence[RolloutRequest]], Iterator[tuple[int, int, Completion]]]


def engine() -> TorchEngine:
    made = TorchEngine(POLICY, temperature=1.0, batch_size=8)
    made.publish(0)
    return made


def canary(*texts: str) -> Canary:
    utterances = [Utterance(str(number), text) for number, text in enumerate(texts)]
    return Canary(POLICY, utterances, count=8, length=40, seed=0, temperature=1.0)


def test_an_engine_that_answers_each_text_with_its_own_speech_passes() -> None:
    asked: list[Sequence[RolloutRequest]] = []

    def stream(requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        asked.append(requests)
        return engine().stream(requests)

    canary(*TEXTS)(stream)
    (requests,) = asked
    assert len({request.prompt_ids.tobytes() for request in requests}) == len(requests) == 3  # one text is there twice


def test_answers_that_have_changed_places_are_found() -> None:
    def crossing(requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        completions = [group[0] for group in in_order(requests, engine().stream(requests))]
        for index, completion in enumerate(np.roll(np.array(completions, dtype=object), 1)):
            yield index, 0, completion

    with pytest.raises(EngineError, match="answers are crossed: the answer to probe 0 fits probe 2"):
        canary(*TEXTS)(crossing)


def test_one_text_has_none_to_be_taken_for() -> None:
    canary("mary painted the house")(engine().stream)
