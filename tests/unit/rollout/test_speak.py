from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from elocution.rollout.base import RolloutRequest
from elocution.rollout.speak import Speaker, token_budget
from elocution.testing.policies import small_llasa
from elocution.types import Audio, Completion, FinishReason, Outcome, Utterance


class ScriptedEngine:
    """Gives the same three completions to every request: two alike, one empty."""

    def __init__(self, first_code: int, stop: int) -> None:
        self.first_code, self.stop = first_code, stop
        self.requests: list[RolloutRequest] = []

    def publish(self, version: int) -> None: ...

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        self.requests += requests
        speech = np.array([[self.first_code + 3], [self.first_code + 1], [self.stop]])
        empty = np.array([[self.stop]])
        for sibling, ids in reversed(list(enumerate((speech, empty, speech)))):
            for index in range(len(requests)):
                yield index, sibling, Completion(ids, np.zeros(ids.shape, np.float32), FinishReason.STOP, 0)


class CountingCodec:
    """Half a second of tone for any codes; counts the clips that it decodes."""

    sample_rate, frame_rate, num_codebooks, codebook_size = 16_000, 25.0, 1, 16

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        raise NotImplementedError

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        self.decoded += len(codes)
        return [Audio(np.full(8000, 0.1, np.float32), 16_000) for _ in codes]


def test_s14_each_distinct_code_sequence_is_decoded_once_and_outcomes_are_typed() -> None:
    policy = small_llasa()
    engine, codec = ScriptedEngine(policy.first_code_id, policy.stop_id), CountingCodec()
    speaker = Speaker(policy, engine, codec, max_codes_per_char=4.0, min_codes=10)
    utterances = [Utterance("a", "one"), Utterance("b", "mary painted the house")]
    groups = speaker.speak(utterances, [[(1,), (2,), (3,)]] * 2)
    assert codec.decoded == 1
    for group in groups:
        assert [r.outcome for r in group.rollouts] == [Outcome.SPEECH, Outcome.EMPTY, Outcome.SPEECH]
        assert group.rollouts[0].audio is group.rollouts[2].audio
        assert group.rollouts[1].audio is None
        assert group.rollouts[0].codes.tolist() == [[3], [1]]
    assert [request.max_new for request in engine.requests] == [4 * 3 + 1, 4 * 22 + 1]


@pytest.mark.parametrize(("text", "budget"), [("ab", 11), ("a" * 20, 81)])
def test_s31_the_budget_follows_the_text(text: str, budget: int) -> None:
    assert token_budget(text, max_codes_per_char=4.0, min_codes=10) == budget
