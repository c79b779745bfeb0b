"""Whether an engine answers each prompt with its own speech, and not with that of another that is asked at the same time."""

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from elocution.errors import EngineError
from elocution.policies.base import Policy
from elocution.rollout.agreement import answer_gains, crossed_answers, score_completions
from elocution.rollout.base import RolloutRequest, in_order
from elocution.types import Completion, Utterance

__all__ = ["Canary", "check_answers_uncrossed"]

logger = logging.getLogger(__name__)

# A false alarm is less probable than N² exp(-14), whatever the policy; sentences of a few words differ by far more.
_MARGIN_NATS = 14.0
_STREAM = 0x43414E41  # keeps its random numbers apart from those of steps


class Canary:
    """Different texts that an engine is asked for at once."""

    def __init__(
        self, policy: Policy, utterances: Sequence[Utterance], *, count: int, length: int, seed: int, temperature: float
    ) -> None:
        """At most `count` of the utterances, no two with the same prompt; completions of at most `length` positions."""
        prompts: dict[bytes, NDArray[np.int64]] = {}
        for index in np.random.default_rng([seed, _STREAM]).permutation(len(utterances)):
            if len(prompts) == count:
                break
            prompt = policy.prompt_ids(utterances[index])
            prompts.setdefault(prompt.tobytes(), prompt)
        self._policy, self._temperature = policy, temperature
        self._requests = [
            RolloutRequest(prompt, ((seed, _STREAM, place),), length) for place, prompt in enumerate(prompts.values())
        ]

    def __call__(self, stream: Callable[[Sequence[RolloutRequest]], Iterator[tuple[int, int, Completion]]]) -> None:
        """`stream` must draw at the canary's temperature. Raises: EngineError if answers are crossed."""
        ids = [group[0].ids for group in in_order(self._requests, stream(self._requests))]
        prompts = [request.prompt_ids for request in self._requests]
        check_answers_uncrossed(self._policy, prompts, ids, temperature=self._temperature)


def check_answers_uncrossed(
    policy: Policy, prompts: Sequence[NDArray[np.int64]], ids: Sequence[NDArray[np.int64]], *, temperature: float
) -> None:
    """Compares what was drawn for N prompts at once with each of the prompts, by the policy.

    Shapes: `prompts` [L] each, `ids` [T, C] each. If the policy is too much the same for all prompts to tell, that is
    logged.

    Raises: EngineError if an answer belongs to another prompt than the one that it came for.
    """
    count = len(prompts)
    totals = np.empty((count, count))
    for answer, drawn in enumerate(ids):
        scores = score_completions(policy, prompts, [drawn] * count, temperature=temperature)
        totals[answer] = [score.astype(np.float64).sum() for score in scores]
    crossed = crossed_answers(totals, margin_nats=_MARGIN_NATS)
    if crossed:
        pairs_text = ", ".join(f"the answer to probe {i} fits probe {j}" for i, j in crossed)
        raise EngineError(f"the engine's answers are crossed: {pairs_text}")
    others = answer_gains(totals)[~np.eye(count, dtype=bool)]
    if others.max(initial=-np.inf) > -_MARGIN_NATS:
        logger.warning("the probes' answers are too much alike to tell whether the engine crosses answers")
