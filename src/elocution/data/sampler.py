"""Which prompts a step trains on: a pure function of seed and step, so resuming needs no state."""

import numpy as np

__all__ = ["PromptSampler"]


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
