"""What a model family must provide so that one loop can train it. Knows no engine, reward or optimiser."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elocution.errors import ConfigError
from elocution.policies.choices import Choices
from elocution.policies.states import States
from elocution.types import Utterance

__all__ = ["ForcesCells", "GivesStates", "IncrementalModel", "Policy", "PolicyBatch", "Reference", "require_states"]


@dataclass(frozen=True)
class PolicyBatch:
    """Completions of a few prompts, each prompt held once.

    Shapes: `prompt_ids` [P, L], or [P, L, C] where prompts fill all channels, and `prompt_mask` [P, L], padded on the
    left; `row_prompt` [B] says which prompt a
    completion answers; `completion_ids` [B, T, C], padded on the right; `completion_mask` [B, T, C], which cells
    count: a cell within a completion that was no choice does not. Padding holds a valid id, so that an embedding can look it up.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    row_prompt: Tensor
    completion_ids: Tensor
    completion_mask: Tensor

    def to(self, device: torch.device) -> "PolicyBatch":
        """The same batch on `device`."""
        return PolicyBatch(*(getattr(self, field.name).to(device) for field in fields(self)))


class IncrementalModel(Protocol):
    """A policy's weights arranged for drawing one position at a time; stale after the weights change.

    What it is given may lie on any device; choices lie where the weights do.
    """

    def start(self, rows: int, positions: int) -> None:
        """Forgets all rows and makes room for at most `rows` at a time, of at most `positions` with their prompts."""

    def join(self, prompts: Sequence[NDArray[np.int64]], row_prompt: Tensor) -> Choices:
        """Appends rows to those under way. Each prompt, [L] or [L, C], is read once, and every row gets its own copy.

        Returns what the new rows may draw first. `row_prompt` [B'] says which prompt a row continues.
        """

    def step(self, ids: Tensor) -> Choices:
        """Appends `ids` [B, C] and returns what may be drawn next."""

    def keep(self, rows: Tensor) -> None:
        """Goes on with the rows `rows` [B'] alone, in that order; a row that stays at its place costs nothing."""


class Reference(Protocol):
    """The frozen model that KL is measured against."""

    def logprobs(self, batch: PolicyBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """As `Policy.logprobs`."""


@runtime_checkable
class GivesStates(Protocol):
    """A policy or reference that can be compared over all legal ids, and not only at the ids that were drawn."""

    def states(self, batch: PolicyBatch) -> States:
        """The cells' hidden states, from which `logprobs` makes what the method of that name returns."""


@runtime_checkable
class ForcesCells(Protocol):
    """A policy some of whose cells follow from what was written before, so that nothing can be learnt from them."""

    @property
    def flush_rows(self) -> int:
        """Positions that a completion needs beside those for its frames and its stop."""

    def actions(self, completion_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which cells of a completion were a choice that shall be learnt from. Shapes: [T, C] -> [T, C]."""


class Policy(Protocol):
    """One model family: prompt, legal ids, log-probs, and completion ids <-> codec codes."""

    model: nn.Module

    @property
    def compute_dtype(self) -> torch.dtype:
        """Type of matrix products, in sampling and learning alike; the weights may be held in more."""

    @property
    def num_channels(self) -> int:
        """C, the number of ids drawn at each position."""

    @property
    def channel_sizes(self) -> tuple[int, ...]:
        """How many ids each channel has, those that only prompts hold included; C of them."""

    @property
    def lora_targets(self) -> tuple[str, ...]:
        """Shell-style patterns of the linear layers that may have an adapter; `incremental` must fold it in."""

    @property
    def legal_ids(self) -> Tensor:
        """Ids that channel 0 may ever hold by choice, ascending, on the CPU; all there are to draw if C is 1. Shapes: [K]."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a completion."""

    @property
    def max_positions(self) -> int:
        """Prompt and completion together may have no more positions."""

    @property
    def num_codebooks(self) -> int:
        """Q of the codes that completions hold."""

    @property
    def codebook_size(self) -> int:
        """Codes are 0 … codebook_size - 1."""

    @property
    def frame_rate(self) -> float | None:
        """Codes per second in each codebook; None where the checkpoint does not say."""

    def check_text(self, utterance: Utterance) -> str | None:
        """Why the text cannot be spoken by this checkpoint, or None."""

    def prompt_ids(self, utterance: Utterance) -> NDArray[np.int64]:
        """The rendered prompt. Shapes: [L], or [L, C] where prompts fill all channels."""

    def codes(self, completion_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The codec codes in a completion; ids that are no code are left out. Shapes: [T, C] -> [F, Q]."""

    def illegal_cells(self, completion_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which cells hold what may not be drawn there, given what stands before. Shapes: [T, C] -> [T, C].

        Every id must be one of its channel.
        """

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies, nats, of each completion cell over the legal ids. Shapes: [B, T, C] each.

        Cells outside the mask hold 0. Gradients flow through the log-probs, and through the entropies if `entropy_grad`.
        """

    def incremental(self, *, compiled: bool = True) -> IncrementalModel:
        """The current weights arranged for sampling; `compiled` uses kernels made for this CPU where that is possible."""

    def save_pretrained(self, path: str) -> None:
        """Writes the checkpoint in the family's released layout, an adapter folded into the weights."""


def require_states(part: object) -> GivesStates:
    """`part` itself.

    Raises: ConfigError if it is no `GivesStates`.
    """
    if isinstance(part, GivesStates):
        return part
    raise ConfigError(
        f"algorithm.kl_estimate = 'exact' compares whole distributions, but {type(part).__name__} has no `states`; "
        "choose k1, k2 or k3"
    )
