"""Whether an engine draws from the policy that is trained: log-probs against the policy's own, answers against prompts.

Names no engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elocution.policies.base import Policy, PolicyBatch
from elocution.policies.padding import pad_completions, pad_prompts

__all__ = ["LogprobGap", "answer_gains", "crossed_answers", "logprob_gap", "score_completions"]


@dataclass(frozen=True)
class LogprobGap:
    """`|engine - policy|` over cells, nats."""

    mean: float
    max: float
    num_cells: int


@torch.no_grad()
def score_completions(
    policy: Policy,
    prompts: Sequence[NDArray[np.int64]],
    completions: Sequence[NDArray[np.int64]],
    *,
    temperature: float,
) -> list[NDArray[np.float32]]:
    """The policy's own log-probs of `completions[i]` after `prompts[i]`, nats.

    Shapes: `prompts` [L] or [L, C] each, `completions` [T, C] each; returns [T, C] each. All ids must be legal.
    """
    prompt_ids, prompt_mask = pad_prompts(prompts)
    ids, mask = pad_completions(completions)
    row_prompt = torch.arange(len(prompts), device="cpu")
    batch = PolicyBatch(prompt_ids, prompt_mask, row_prompt, ids, mask).to(next(policy.model.parameters()).device)
    logprobs, _ = policy.logprobs(batch, temperature=temperature)
    return [logprobs[row, : len(completion)].float().cpu().numpy() for row, completion in enumerate(completions)]


def logprob_gap(engine: Sequence[NDArray[np.float32]], own: Sequence[NDArray[np.float32]]) -> LogprobGap:
    """How far two sets of log-probs of the same cells are apart. Shapes: [T, C] each.

    Raises: ValueError if there are no cells.
    """
    gaps = np.concatenate(
        [np.abs(a.astype(np.float64) - b).reshape(-1) for a, b in zip(engine, own, strict=True)] or [np.empty(0)]
    )
    if not gaps.size:
        raise ValueError("there are no cells to compare")
    return LogprobGap(mean=float(gaps.mean()), max=float(gaps.max()), num_cells=gaps.size)


def answer_gains(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how many nats each answer is more probable after another prompt than after its own; the diagonal is 0.

    Shapes: `totals` [N, N], `totals[i, j]` the log-prob of answer i after prompt j; returns [N, N].
    """
    return totals - np.diagonal(totals)[:, None]


def crossed_answers(totals: NDArray[np.float64], *, margin_nats: float) -> list[tuple[int, int]]:
    """Pairs (i, j): the answer to prompt i is more probable after prompt j, by more than `margin_nats`.

    `totals` as in `answer_gains`. Answers that were drawn for their prompts make such a pair with a probability of at
    most N (N - 1) exp(-margin_nats), whatever the policy is: under the distribution that was drawn from, the mean of
    a likelihood ratio is at most 1 (Markov's inequality).
    """
    gains = answer_gains(totals)
    best = gains.argmax(axis=1)
    return [(i, int(j)) for i, j in enumerate(best) if gains[i, j] > margin_nats]
