"""In-process rollouts: each prompt read once, finished rows replaced by waiting ones, exact sampling log-probs.

A draw is one uniform number per position, taken from a generator of the completion's own seed and sent through
the inverse of the cumulative distribution; so a completion is the same in any batch.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from elocution.errors import EngineError
from elocution.policies.base import IncrementalModel, Policy
from elocution.policies.choices import Choices
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.slots import Job, Slots
from elocution.types import Completion

__all__ = ["TorchEngine"]

_JOIN_SHARE = 8  # waiting rows join when one in so many is free: reading a prompt costs about a step of all rows


class TorchEngine:
    """Samples from `policy` at `temperature`, restricted to its legal ids, `batch_size` rows at a time.

    `compiled` is that of `Policy.incremental`.
    """

    def __init__(self, policy: Policy, *, temperature: float, batch_size: int, compiled: bool = True) -> None:
        self._policy = policy
        self.temperature = temperature
        self._batch_size = batch_size
        self._compiled = compiled
        self._model: IncrementalModel | None = None
        self._version = -1
        self._published: tuple[int, ...] = ()

    def publish(self, version: int) -> None:
        self._model = self._policy.incremental(compiled=self._compiled)
        self._version = version
        self._published = self._weights_state()

    def _weights_state(self) -> tuple[int, ...]:
        """Torch counts the changes of each tensor in place."""
        return tuple(parameter._version for parameter in self._policy.model.parameters())

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds."""
        return in_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        jobs = [
            Job(index, sibling, seed, request.max_new)
            for index, request in enumerate(requests)
            for sibling, seed in enumerate(request.seeds)
        ]
        # The longest first, so that memory peaks at once, and no long one is left to be drawn alone at the end.
        jobs.sort(key=lambda job: -job.max_new)
        return self._draw_jobs(requests, deque(jobs)) if jobs else iter(())

    @torch.inference_mode()
    def _draw_jobs(
        self, requests: Sequence[RolloutRequest], waiting: deque[Job]
    ) -> Iterator[tuple[int, int, Completion]]:
        model = self._published_model()
        device = next(self._policy.model.parameters()).device
        count = min(self._batch_size, len(waiting))
        slots = Slots(count, waiting[0].max_new, self._policy.num_channels, device)
        model.start(count, max(len(request.prompt_ids) + request.max_new for request in requests))
        stops = torch.tensor(sorted(self._policy.stop_ids), device=device)
        drawn = torch.empty(0, dtype=torch.long, device=device)
        while waiting or len(drawn):
            parts, stepped = [], len(drawn)
            if stepped:
                parts.append(self._draw(model.step(drawn), slots.uniforms(slice(stepped))))
            if waiting and slots.num_free >= min(len(waiting), max(1, count // _JOIN_SHARE)):
                joining = [waiting.popleft() for _ in range(min(slots.num_free, len(waiting)))]
                slots.join(joining)
                parts.append(self._draw(_read(model, requests, joining), slots.uniforms(slice(stepped, None))))
            drawn = torch.cat([ids for ids, _ in parts])
            is_full = slots.append(drawn, torch.cat([logprobs for _, logprobs in parts]))
            stopped = torch.isin(drawn[:, 0], stops)
            over = stopped | is_full
            if over.any():
                yield from slots.ended(over, stopped, self._version)
                live = _fill_holes(~over)
                slots.keep(live)
                model.keep(live)
                drawn = drawn[live]

    def _published_model(self) -> IncrementalModel:
        if self._model is None:
            raise EngineError("no weights have been published to the engine")
        if self._weights_state() != self._published:
            raise EngineError("the policy's weights have changed since they were published to the engine")
        return self._model

    def _draw(self, choices: Choices, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        try:
            return choices.draw(uniforms, self.temperature)
        except FloatingPointError as error:
            raise EngineError(
                "the policy's probabilities are not finite; its weights or the temperature are broken"
            ) from error


def _read(model: IncrementalModel, requests: Sequence[RolloutRequest], jobs: Sequence[Job]) -> Choices:
    """What `jobs` may draw first; each prompt is read once."""
    place = {index: place for place, index in enumerate(dict.fromkeys(job.request for job in jobs))}
    row_prompt = torch.tensor([place[job.request] for job in jobs], device="cpu")
    return model.join([requests[index].prompt_ids for index in place], row_prompt)


def _fill_holes(live: Tensor) -> Tensor:
    """The live rows, as many as can staying at their place: rows from the end stand in for finished ones. [B] -> [B']."""
    rows = torch.nonzero(live)[:, 0]
    places = torch.arange(len(rows), device=rows.device)
    stay = rows[rows < len(rows)]
    places[torch.isin(places, stay, invert=True)] = rows[rows >= len(rows)]
    return places
