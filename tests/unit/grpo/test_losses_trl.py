"""Losses and gradients against TRL's own code: `GRPOTrainer._compute_loss`, given log-probs instead of a model."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from elocution.grpo.correction import Correction, importance_weights
from elocution.grpo.kl import kl_k3
from elocution.grpo.losses import LOSSES, LossSettings
from elocution.grpo.weights import Aggregation, StepTotals, cell_weights

trl = pytest.importorskip("trl", reason="TRL comes with the extra dev")

LONGEST = 9


class Accelerator:
    """One process."""

    num_processes = 1
    sync_gradients = True

    def reduce(self, value: Tensor, reduction: str) -> Tensor:
        return value

    def gather(self, value: Tensor) -> Tensor:
        return value


def step_of() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    shape = (7, LONGEST)
    old = -3 * torch.rand(shape, dtype=torch.float64, generator=generator)
    logprobs = old + 0.4 * torch.randn(shape, dtype=torch.float64, generator=generator)
    reference = old + 0.4 * torch.randn(shape, dtype=torch.float64, generator=generator)
    advantages = torch.randn(7, dtype=torch.float64, generator=generator)
    lengths = torch.randint(1, LONGEST + 1, (7,), generator=generator)
    return logprobs, old, reference, advantages, torch.arange(LONGEST)[None] < lengths[:, None]


def trl_loss(logprobs: Tensor, old: Tensor, reference: Tensor, advantages: Tensor, mask: Tensor, **options: Any) -> Any:
    weights = options.pop("importance_sampling_ratio", None)
    settings: dict[str, Any] = {
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "beta": 0.0,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "use_vllm": weights is not None,
    } | options
    trainer = SimpleNamespace(
        **settings,
        args=SimpleNamespace(
            delta=settings.get("delta"),
            use_bias_correction_kl=False,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            steps_per_generation=1,
        ),
        accelerator=Accelerator(),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        vllm_importance_sampling_correction=True,
        current_gradient_accumulation_steps=1,
        max_completion_length=LONGEST,
        _entropy_bonus_enabled=False,
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
    )
    inputs = {
        "prompt_ids": torch.zeros(7, 1).long(),
        "prompt_mask": torch.ones(7, 1).long(),
        "completion_ids": torch.zeros(7, LONGEST).long(),
        "completion_mask": mask.long(),
        "advantages": advantages,
        "old_per_token_logps": old,
        "ref_per_token_logps": reference,
        "num_items_in_batch": mask.sum().double(),
        "importance_sampling_ratio": weights,
    }
    return trl.GRPOTrainer._compute_loss(trainer, SimpleNamespace(training=True), inputs)


def our_loss(
    name: str,
    aggregation: Aggregation,
    grids: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    settings: LossSettings,
    *,
    kl_coef: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    logprobs, old, reference, advantages, mask = (grid[..., None] if grid.ndim == 2 else grid for grid in grids)
    finished = torch.ones(7, dtype=torch.bool)
    share = cell_weights(
        mask, finished, StepTotals.of([mask], [finished]), aggregation=aggregation, fixed_length=LONGEST
    )
    loss = LOSSES[name](logprobs, old, advantages, mask, settings).loss
    if weights is not None:
        loss = loss * weights
    return (share * (loss + kl_coef * kl_k3(logprobs, reference, mask))).sum()


@pytest.mark.parametrize(
    ("name", "aggregation", "settings", "options"),
    [
        ("clipped", "sequence", LossSettings(), {"loss_type": "grpo"}),
        ("clipped", "token", LossSettings(), {"loss_type": "dapo"}),
        ("clipped", "token", LossSettings(), {"loss_type": "bnpo"}),  # in one micro-batch it is the same mean
        ("clipped", "fixed", LossSettings(), {"loss_type": "dr_grpo"}),
        ("clipped", "token", LossSettings(dual_clip=1.4), {"delta": 1.4}),
        ("gspo", "sequence", LossSettings(), {"loss_type": "grpo", "importance_sampling_level": "sequence"}),
        ("cispo", "token", LossSettings(clip_low=1.0, clip_high=0.28), {"loss_type": "cispo", "epsilon_high": 1.28}),
        ("sapo", "sequence", LossSettings(), {"loss_type": "sapo"}),
    ],
)
@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
def test_loss_and_gradient_are_trls(
    name: str, aggregation: Aggregation, settings: LossSettings, options: dict[str, Any], kl_coef: float
) -> None:
    logprobs, old, reference, advantages, mask = step_of()
    theirs, ours = logprobs.clone().requires_grad_(), logprobs.clone().requires_grad_()
    if name == "gspo":
        kl_coef = 0.0  # TRL adds a token's KL to a sequence's loss, which broadcasts
    wanted = trl_loss(theirs, old, reference, advantages, mask, beta=kl_coef, **options)
    found = our_loss(name, aggregation, (ours, old, reference, advantages, mask), settings, kl_coef=kl_coef)
    wanted.backward()
    found.backward()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert ours.grad is not None
    assert float(ours.grad.abs().max()) > 1e-3
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("correction", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_corrected_losses_are_trls(correction: Correction) -> None:
    logprobs, old, reference, advantages, mask = step_of()
    drawn_at = old + 0.5 * torch.randn(old.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    weights = importance_weights(
        old[..., None], drawn_at[..., None], mask[..., None], correction=correction, low=0.0, high=1.5
    )
    # TRL computes its ratios inside generation; their definition is written out here.
    difference = (old - drawn_at) * mask
    if correction.startswith("sequence"):
        difference = difference.sum(dim=1, keepdim=True)
    ratio = difference.exp()
    ratio = ratio.clamp(max=1.5) if correction.endswith("truncate") else ratio.masked_fill(ratio > 1.5, 0.0)
    wanted = trl_loss(logprobs, old, reference, advantages, mask, importance_sampling_ratio=ratio)
    found = our_loss("clipped", "token", (logprobs, old, reference, advantages, mask), LossSettings(), weights=weights)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
