"""In-process rollouts: each prompt read once, finished rows dropped, exact sampling log-probs.

A draw is one uniform number per position, taken from a generator of the completion's own seed and sent through
the inverse of the cumulative distribution; so a completion is the same in any batch.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from elocution.errors import EngineError
from elocution.policies.base import IncrementalModel, Policy
from elocution.rollout.base import RolloutRequest, in_order
from elocution.types import Completion, FinishReason

__all__ = ["TorchEngine"]


class TorchEngine:
    """Samples from `policy` at `temperature`, restricted to its legal ids, `batch_size` rows at a time."""

    def __init__(self, policy: Policy, *, temperature: float, batch_size: int) -> None:
        self._policy = policy
        self.temperature = temperature
        self._batch_size = batch_size
        self._model: IncrementalModel | None = None
        self._version = -1
        self._published: tuple[int, ...] = ()

    def publish(self, version: int) -> None:
        self._model = self._policy.incremental()
        self._version = version
        self._published = self._weights_state()

    def _weights_state(self) -> tuple[int, ...]:
        """Torch counts the changes of each tensor in place."""
        return tuple(parameter._version for parameter in self._policy.model.parameters())

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds."""
        return in_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        rows = [(index, sibling) for index, request in enumerate(requests) for sibling in range(len(request.seeds))]
        # Rows of like budget run together; the longest first, so that memory peaks at once.
        rows.sort(key=lambda row: -requests[row[0]].max_new)
        for start in range(0, len(rows), self._batch_size):
            yield from self._draw_rows(requests, rows[start : start + self._batch_size])

    @torch.inference_mode()
    def _draw_rows(
        self, requests: Sequence[RolloutRequest], rows: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int, Completion]]:
        if self._model is None:
            raise EngineError("no weights have been published to the engine")
        if self._weights_state() != self._published:
            raise EngineError("the policy's weights have changed since they were published to the engine")
        prompt_of = {index: place for place, index in enumerate(dict.fromkeys(index for index, _ in rows))}
        row_prompt = torch.tensor([prompt_of[index] for index, _ in rows], device="cpu")
        longest, channels = max(requests[index].max_new for index, _ in rows), self._policy.num_channels
        choices = self._model.prefill([requests[index].prompt_ids for index in prompt_of], row_prompt, longest)
        device = choices.device
        budgets = torch.tensor([requests[index].max_new for index, _ in rows], device=device)
        uniforms = _uniforms([requests[index].seeds[sibling] for index, sibling in rows], longest, channels).to(device)
        stops = torch.tensor(sorted(self._policy.stop_ids), device=device)
        ids = torch.zeros(longest, len(rows), channels, dtype=torch.long, device=device)
        logprobs = torch.zeros(longest, len(rows), channels, device=device)
        active = torch.arange(len(rows), device=device)  # row of the batch behind each row of the model
        for position in range(longest):
            try:
                drawn, logprob = choices.draw(uniforms[position, active], self.temperature)
            except FloatingPointError as error:
                raise EngineError(
                    "the policy's probabilities are not finite; its weights or the temperature are broken"
                ) from error
            ids[position, active] = drawn
            logprobs[position, active] = logprob
            stop = torch.isin(drawn[:, 0], stops)
            over = stop | (budgets[active] <= position + 1)
            if over.any():
                for row, stopped in zip(active[over].tolist(), stop[over].tolist(), strict=True):
                    completion = Completion(
                        ids=ids[: position + 1, row].cpu().numpy().copy(),
                        rollout_logprobs=logprobs[: position + 1, row].cpu().numpy().copy(),
                        finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
                        policy_version=self._version,
                    )
                    yield *rows[row], completion
                rows_left = _fill_holes(~over)
                if len(rows_left) == 0:
                    break
                self._model.keep(rows_left)
                active, drawn = active[rows_left], drawn[rows_left]
            choices = self._model.step(drawn)


def _fill_holes(live: Tensor) -> Tensor:
    """The live rows, as many as can staying at their place: rows from the end stand in for finished ones. [B] -> [B']."""
    rows = torch.nonzero(live)[:, 0]
    places = torch.arange(len(rows), device=rows.device)
    stay = rows[rows < len(rows)]
    places[torch.isin(places, stay, invert=True)] = rows[rows >= len(rows)]
    return places


def _uniforms(seeds: Sequence[tuple[int, ...]], positions: int, channels: int) -> Tensor:
    """Uniform numbers of each seed's own stream. Shapes: [positions, B, channels]."""
    drawn = [
        np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).random((positions, channels))
        for seed in seeds
    ]
    return torch.from_numpy(np.stack(drawn, axis=1).astype(np.float32))
