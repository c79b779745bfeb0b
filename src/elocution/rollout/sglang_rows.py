"""Several channels on SGLang's wire, as its multi-channel fork and our own server have them: prompts and completions are rows.

The rows are what was sampled; a clip in the same answer is never encoded again. The fork gives no log-probs. Nothing here
has been run against the fork: it follows its source (OpenMOSS/sglang 858ffe9, `input_ids` of rows as in 022ffe3).
"""

import numpy as np
from numpy.typing import NDArray

from elocution.errors import EngineError
from elocution.policies.base import Policy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang_answers import (
    Drawn,
    check_prompt,
    decode_answer_audio,
    read_finish,
    read_row_logprobs,
    read_rows,
)
from elocution.rollout.sglang_protocol import GenerateRequest, GenerateResponse, SamplingParams
from elocution.types import FinishReason

__all__ = ["RowWire"]


class RowWire:
    """Requests and answers for `policy`; the servers keep to the legal ids by themselves, and have no mask to be given."""

    has_mask = False

    def __init__(self, policy: Policy) -> None:
        self._sizes, self._stop_ids = policy.channel_sizes, sorted(policy.stop_ids)
        self.no_audio = self.text_only = 0

    def request(self, prompt_ids: NDArray[np.int64], max_new: int, *, seed: int, temperature: float) -> GenerateRequest:
        """What asks for one completion of at most `max_new` rows. Shapes: `prompt_ids` [L, C].

        Raises: EngineError if that is too little for a clip.
        """
        # The server adds a row for each channel to the budget, to end a clip in.
        budget = max_new - len(self._sizes)
        if budget < 1:
            raise EngineError(
                f"a budget of {max_new} rows is too small: {len(self._sizes)} of them end a clip; raise "
                "rollout.min_codes or rollout.sync.probe_codes"
            )
        # No return_logprob: it ends the fork's scheduler. No stop ids: text goes on behind them there, and is cut off here.
        return GenerateRequest(
            rid="elocution",
            input_ids=tuple(map(tuple, prompt_ids.tolist())),
            multi_channel=True,
            sampling_params=SamplingParams(max_new_tokens=budget, temperature=temperature, sampling_seed=seed),
            return_prompt_token_ids=True,
            return_row_logprobs=True,
        )

    def read(self, answer: GenerateResponse, request: RolloutRequest) -> Drawn:
        """The rows up to the first stop id. Raises: EngineError if the answer is not to `request`, or not whole."""
        check_prompt(answer, request.prompt_ids.tolist(), may_be_silent=True)
        rows = read_rows(answer, self._sizes, request.max_new)
        finish = read_finish(answer, request.max_new - len(self._sizes))
        logprobs = read_row_logprobs(answer, rows.shape)
        self._count(answer, rows)
        stops = np.flatnonzero(np.isin(rows[:, 0], self._stop_ids))
        if len(stops):
            end = int(stops[0]) + 1
            return Drawn(rows[:end], None if logprobs is None else logprobs[:end], FinishReason.STOP)
        return Drawn(rows, logprobs, finish)

    def _count(self, answer: GenerateResponse, rows: NDArray[np.int64]) -> None:
        has_codes = bool((rows[:, 1:] != np.array(self._sizes[1:]) - 1).any())
        self.text_only += not has_codes
        if not answer.text.strip():  # no clip was asked for
            return
        has_audio = decode_answer_audio(answer.text) is not None
        if has_audio and not has_codes:
            raise EngineError("SGLang sent a clip with rows that hold no code: answers are crossed")
        self.no_audio += not has_audio
