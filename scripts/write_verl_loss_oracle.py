"""Writes veRL's losses, gradients and importance weights for fixed log-probs to tests/data/oracles/verl_losses.json.

Run by a Python that has veRL, in an environment of its own: veRL and this project need different transformers.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import ActorConfig

OUTPUT = Path(__file__).parent.parent / "tests" / "data" / "oracles" / "verl_losses.json"
ROWS, LENGTH = 6, 8
LOSSES = {
    "vanilla": ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"],
    "gspo": ["seq-mean-token-mean"],
    "cispo": ["token-mean"],
    "sapo": ["seq-mean-token-mean"],
}
LOW, HIGH = 0.6, 1.5
THRESHOLDS = {"truncate": HIGH, "mask": f"{LOW}_{HIGH}"}  # veRL masks where a threshold has two numbers


def draw_step() -> dict[str, torch.Tensor]:
    """Log-probs whose ratios lie on both sides of every bound, the dual clip's too."""
    generator = torch.Generator().manual_seed(7)

    def normal() -> torch.Tensor:
        return torch.randn(ROWS, LENGTH, dtype=torch.float64, generator=generator)

    old = -2 * normal().abs()
    lengths = torch.randint(1, LENGTH + 1, (ROWS,), generator=generator)
    return {
        "old": old,
        "logprobs": old + 0.6 * normal(),
        "reference": old + 0.6 * normal(),
        "advantages": torch.randn(ROWS, dtype=torch.float64, generator=generator),
        "mask": (torch.arange(LENGTH)[None] < lengths[:, None]).double(),
    }


def loss_case(name: str, mode: str, step: dict[str, torch.Tensor], config: ActorConfig) -> dict[str, Any]:
    logprobs = step["logprobs"].clone().requires_grad_()
    advantages = step["advantages"][:, None].expand(ROWS, LENGTH)
    loss, _ = get_policy_loss_fn(name)(step["old"], logprobs, advantages, step["mask"], mode, config, None)
    loss.backward()
    return {"name": name, "mode": mode, "loss": loss.item(), "gradient": logprobs.grad.tolist()}


def kl_case(kind: str, step: dict[str, torch.Tensor]) -> dict[str, Any]:
    logprobs = step["logprobs"].clone().requires_grad_()
    loss = agg_loss(kl_penalty(logprobs, step["reference"], kind), step["mask"], "token-mean")
    loss.backward()
    return {"kind": kind, "loss": loss.item(), "gradient": logprobs.grad.tolist()}


def correction_case(level: str, threshold: str, step: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The step's other log-probs stand for an engine's."""
    weights, _ = compute_rollout_correction_weights(
        step["old"] - step["logprobs"], step["mask"], level, THRESHOLDS[threshold]
    )
    return {"correction": f"{level}_{threshold}", "weights": weights.tolist()}


def main() -> None:
    step = draw_step()
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=1.5,
        tau_pos=1.0,
        tau_neg=1.05,
    )
    content = {
        "verl": version("verl"),
        "settings": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 1.5, "tau_positive": 1.0, "tau_negative": 1.05},
        "step": {key: value.tolist() for key, value in step.items()},
        "losses": [loss_case(name, mode, step, config) for name, modes in LOSSES.items() for mode in modes],
        "kl": [kl_case(kind, step) for kind in ("k1", "k2", "k3", "k3+")],
        "correction_bounds": {"low": LOW, "high": HIGH},
        "corrections": [correction_case(level, name, step) for level in ("token", "sequence") for name in THRESHOLDS],
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
