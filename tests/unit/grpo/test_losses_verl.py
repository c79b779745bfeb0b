"""Losses, gradients and importance weights against veRL's, which `scripts/write_verl_loss_oracle.py` wrote down."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from elocution.grpo.correction import importance_weights
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


@pytest.mark.parametrize("case", ORACLE["kl"], ids=lambda case: case["kind"])
def test_kl_estimates_and_their_gradients_are_verls(case: dict[str, Any]) -> None:
    logprobs = STEP["logprobs"][..., None].clone().requires_grad_()
    # "k3+" reports k3 and learns from k2.
    value = KL_ESTIMATES[case["kind"].rstrip("+")](logprobs, STEP["reference"][..., None], MASK).sum() / MASK.sum()
    learned = KL_ESTIMATES["k2" if case["kind"] == "k3+" else case["kind"]](
        logprobs, STEP["reference"][..., None], MASK
    )
    (learned.sum() / MASK.sum()).backward()
    assert value.item() == pytest.approx(case["loss"], abs=1e-9)
    assert logprobs.grad is not None
    torch.testing.assert_close(
        logprobs.grad[..., 0], torch.tensor(case["gradient"], dtype=torch.float64), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("case", ORACLE["corrections"], ids=lambda case: case["correction"])
def test_importance_weights_are_verls(case: dict[str, Any]) -> None:
    weights = importance_weights(
        STEP["old"][..., None],
        STEP["logprobs"][..., None],
        MASK,
        correction=case["correction"],
        **ORACLE["correction_bounds"],
    )
    wanted = torch.tensor(case["weights"], dtype=torch.float64)
    torch.testing.assert_close(weights[..., 0], wanted, rtol=0, atol=1e-9)
    assert len(wanted[MASK[..., 0]].unique()) > 2  # bounds bind here and there, not everywhere
