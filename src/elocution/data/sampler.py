"""Which prompts a step trains on: a pure function of seed and step, so resuming needs no state."""

import numpy as np

__all__ = ["PromptSampler"]


_EXTRA = 1  # sets the stream of extra prompts apart from that of the passes


class PromptSampler:
    """Deals `num_prompts` prompts, `prompts_per_step` a step; each pass is its own permutation.

    No prompt comes twice within a step or a pass; what does not fill a last step is left out of that pass.

    Raises: ValueError if a step needs more prompts than there are.
    """

    def __init__(self, num_prompts: int, prompts_per_step: int, seed: int) -> None:
        if not 1 <= prompts_per_step <= num_prompts:
            raise ValueError(f"cannot take {prompts_per_step} prompts a step from {num_prompts}")
        self._num_prompts, self._prompts_per_step, self._seed = num_prompts, prompts_per_step, seed

    def batch(self, step: int) -> list[int]:
        """Indices of the prompts of `step`, counted from 0."""
        steps_per_pass = self._num_prompts // self._prompts_per_step
        number, place = divmod(step, steps_per_pass)
        order = np.random.default_rng((self._seed, number)).permutation(self._num_prompts)
        start = place * self._prompts_per_step
        return [int(index) for index in order[start : start + self._prompts_per_step]]

    def extra(self, step: int, attempt: int, count: int) -> list[int]:
        """`count` more prompts for `step`, none of `batch(step)` or of another attempt; fewer if there are no more."""
        own = set(self.batch(step))
        order = np.random.default_rng((self._seed, step, _EXTRA)).permutation(self._num_prompts)
        others = [int(index) for index in order if int(index) not in own]
        return others[attempt * self._prompts_per_step :][:count]
