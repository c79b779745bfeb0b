"""Fixed sequences by which an engine's weights are compared with the trainer's, and the trainer's own answers to them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from elocution.errors import ConfigError
from elocution.policies.base import IncrementalModel, Policy
from elocution.policies.choices import Choices
from elocution.policies.padding import pad_completions
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.base import Probe
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Utterance

__all__ = ["draw_probes", "greedy_gaps", "greedy_ids", "probe_logprobs"]

_STREAM = 0x50524F42  # keeps the probes' random numbers apart from those of steps


def draw_probes(
    policy: Policy, utterances: Sequence[Utterance], *, count: int, length: int, seed: int
) -> tuple[Probe, ...]:
    """`count` of the utterances with completions of at most `length` positions, drawn from the policy as it is now.

    They follow from the arguments and the weights. Log-probs of what the policy itself would say are those that training
    uses, and they react to weights most.

    Raises: ConfigError if there are no utterances.
    """
    if not utterances:
        raise ConfigError("a weight sync needs at least one prompt to make probes of")
    generator = np.random.default_rng([seed, _STREAM])
    chosen = generator.permutation(len(utterances))[:count]
    requests = [
        RolloutRequest(policy.prompt_ids(utterances[index]), ((seed, _STREAM, int(index)),), length) for index in chosen
    ]
    engine = TorchEngine(policy, temperature=1.0, batch_size=count)
    engine.publish(0)
    return tuple(
        Probe(request.prompt_ids, completions[0].ids)
        for request, completions in zip(requests, engine.generate(requests), strict=True)
    )


def probe_logprobs(policy: Policy, probes: Sequence[Probe], *, temperature: float = 1.0) -> list[NDArray[np.float32]]:
    """The policy's log-probs of each probe's completion, nats. Shapes: [T, C] each."""
    prompts, completions = [p.prompt_ids for p in probes], [p.completion_ids for p in probes]
    return score_completions(policy, prompts, completions, temperature=temperature)


def greedy_ids(policy: Policy, probes: Sequence[Probe]) -> list[NDArray[np.int64]]:
    """The policy's most probable ids after each prompt, up to a stop id or the length of the completion.

    Shapes: [T', C] each.
    """
    model = policy.incremental()
    choices = _prefill(model, probes)
    stops = torch.tensor(sorted(policy.stop_ids), device="cpu")
    longest = max(len(probe.completion_ids) for probe in probes)
    drawn = []
    for position in range(longest):
        drawn.append(choices.best().cpu())
        if position + 1 < longest:
            choices = model.step(drawn[-1])
    ids = torch.stack(drawn, dim=1)  # [B, T, C]
    found = []
    for row, probe in zip(ids, probes, strict=True):
        own = row[: len(probe.completion_ids)]
        stop = torch.nonzero(torch.isin(own[:, 0], stops))
        found.append(own[: int(stop[0]) + 1 if len(stop) else len(own)].numpy().copy())
    return found


def greedy_gaps(policy: Policy, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
    """By how much each id of the completions is less probable than the most probable one, nats. Shapes: [T, C] each.

    0 where the id is the policy's own greedy choice after the ids before it.
    """
    ids, _ = pad_completions([probe.completion_ids for probe in probes])
    model = policy.incremental()
    choices = _prefill(model, probes)
    gaps = []
    for position in range(ids.shape[1]):
        gaps.append(choices.gaps(ids[:, position].to(choices.device)).float())
        if position + 1 < ids.shape[1]:
            choices = model.step(ids[:, position])
    stacked = torch.stack(gaps, dim=1).cpu()
    return [row[: len(probe.completion_ids)].numpy().copy() for row, probe in zip(stacked, probes, strict=True)]


def _prefill(model: IncrementalModel, probes: Sequence[Probe]) -> Choices:
    longest = max(len(probe.completion_ids) for probe in probes)
    model.start(len(probes), max(len(probe.prompt_ids) for probe in probes) + longest)
    return model.join([probe.prompt_ids for probe in probes], torch.arange(len(probes), device="cpu"))
