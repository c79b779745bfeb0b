import numpy as np
import pytest

from elocution.rollout.outcomes import classify_outcome
from elocution.types import Audio, FinishReason, Outcome

CODES = np.zeros((10, 1), np.int64)
LOUD = Audio(np.full(6400, 0.1, np.float32), 16_000)
QUIET = Audio(np.zeros(6400, np.float32), 16_000)


def test_s07_no_codes_are_empty_and_need_no_audio() -> None:
    assert classify_outcome(CODES[:0], None, FinishReason.STOP) is Outcome.EMPTY
    assert classify_outcome(CODES[:0], None, FinishReason.LENGTH) is Outcome.EMPTY


@pytest.mark.parametrize("audio", [LOUD, QUIET])
def test_s27_a_spent_budget_is_a_runaway_whatever_it_sounds_like(audio: Audio) -> None:
    assert classify_outcome(CODES, audio, FinishReason.LENGTH) is Outcome.RUNAWAY


def test_s06_a_clip_below_the_gate_is_silent() -> None:
    assert classify_outcome(CODES, QUIET, FinishReason.STOP) is Outcome.SILENT


def test_anything_else_is_speech_until_somebody_listens() -> None:
    assert classify_outcome(CODES, LOUD, FinishReason.STOP) is Outcome.SPEECH
