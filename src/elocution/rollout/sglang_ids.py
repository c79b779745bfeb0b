"""One channel on SGLang's wire: prompts and completions are ids, each with its log-prob. Knows no server."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elocution.policies.base import Policy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang_answers import Drawn, read_finish, read_ids
from elocution.rollout.sglang_legal import legal_ranges, processor_string
from elocution.rollout.sglang_protocol import GenerateRequest, GenerateResponse, SamplingParams

__all__ = ["IdWire"]


class IdWire:
    """Requests and answers of mainline SGLang for `policy`; with `has_mask` they bring the mask of legal ids."""

    def __init__(self, policy: Policy, *, has_mask: bool) -> None:
        self.has_mask = has_mask
        self._stop_ids: Sequence[int] = sorted(policy.stop_ids)
        # The same in every request, and walking 65 537 ids for each would cost more than sending it.
        self._ranges, self._processor = legal_ranges(policy.legal_ids.tolist()), processor_string()

    def request(self, prompt_ids: NDArray[np.int64], max_new: int, *, seed: int, temperature: float) -> GenerateRequest:
        """What asks for one completion of at most `max_new` ids. Shapes: `prompt_ids` [L]."""
        return GenerateRequest(
            rid="elocution",
            input_ids=tuple(prompt_ids.tolist()),
            sampling_params=SamplingParams(
                max_new_tokens=max_new,
                temperature=temperature,
                stop_token_ids=tuple(self._stop_ids),
                sampling_seed=seed,
                custom_params={"legal_ranges": self._ranges} if self.has_mask else None,
            ),
            return_logprob=True,
            return_prompt_token_ids=True,
            custom_logit_processor=self._processor if self.has_mask else None,
        )

    def read(self, answer: GenerateResponse, request: RolloutRequest) -> Drawn:
        """What was drawn. Raises: EngineError if the answer is not to `request`, or not whole."""
        ids, logprobs = read_ids(answer, request.prompt_ids.tolist(), request.max_new)
        return Drawn(ids, logprobs, read_finish(answer, request.max_new))
