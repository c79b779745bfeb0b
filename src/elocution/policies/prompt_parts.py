"""Which parts of an utterance reach a policy's prompt: found by leaving them out, so that no family has to say it."""

from dataclasses import replace

import numpy as np

from elocution.policies.base import Policy
from elocution.types import Utterance

__all__ = ["reads_manner", "reads_voice_words"]


def reads_manner(policy: Policy, utterance: Utterance) -> bool:
    """Whether the instruction or the emotion of `utterance` is in its prompt."""
    plain = replace(utterance, instruction="", emotion="")
    return not np.array_equal(policy.prompt_ids(utterance), policy.prompt_ids(plain))


def reads_voice_words(policy: Policy, utterance: Utterance) -> bool:
    """Whether the words of the recording are in the prompt beside its codes; `utterance` has a voice."""
    assert utterance.voice is not None
    without, with_words = (
        policy.prompt_ids(replace(utterance, voice=replace(utterance.voice, text=text)))
        for text in ("", utterance.text)
    )
    return not np.array_equal(without, with_words)
