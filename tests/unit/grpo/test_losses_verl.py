"""Losses and gradients against veRL's, which `scripts/write_verl_loss_oracle.py` wrote down."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from elocution.grpo.kl import KL_ESTIMATES
from elocution.grpo.losses import LOSSES, LossSettings
from elocution.grpo.weights import Aggregation, StepTotals, cell_weights

ORACLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "oracles" / "verl_losses.json").read_text(encoding="utf-8")
)
OUR_NAMES = {"vanilla": "clipped", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo"}
OUR_MODES: dict[str, Aggregation] = {
    "token-mean": "token",
    "seq-mean-token-mean": "sequence",
    "seq-mean-token-sum-norm": "fixed",
}
STEP = {key: torch.tensor(values, dtype=torch.float64) for key, values in ORACLE["step"].items()}
MASK = STEP["mask"].bool()[..., None]
FINISHED = torch.ones(len(MASK), dtype=torch.bool)


@pytest.mark.parametrize("case", ORACLE["losses"], ids=lambda case: f"{case['name']}-{case['mode']}")
def test_loss_and_gradient_are_verls(case: dict[str, Any]) -> None:
    logprobs = STEP["logprobs"][..., None].clone().requires_grad_()
    settings = LossSettings(**ORACLE["settings"])
    if case["name"] == "gspo":  # veRL's has no dual clip
        settings = replace(settings, dual_clip=None)
    cells = LOSSES[OUR_NAMES[case["name"]]](logprobs, STEP["old"][..., None], STEP["advantages"], MASK, settings)
    weights = cell_weights(
        MASK,
        FINISHED,
        StepTotals.of([MASK], [FINISHED]),
        aggregation=OUR_MODES[case["mode"]],
        fixed_length=MASK.shape[1],
    )
    loss = (weights * cells.loss).sum()
    loss.backward()
    assert logprobs.grad is not None
    # veRL adds 1e-8 to the length of a completion.
    torch.testing.assert_close(loss.item(), case["loss"], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        logprobs.grad[..., 0], torch.tensor(case["gradient"], dtype=torch.float64), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_estimates_are_verls(kind: str) -> None:
    cells = KL_ESTIMATES[kind](STEP["logprobs"][..., None], STEP["reference"][..., None], MASK)
    assert cells.sum().item() / int(MASK.sum()) == pytest.approx(ORACLE["kl"][kind], abs=1e-9)
