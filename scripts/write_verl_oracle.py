"""Writes veRL's advantages for fixed rewards to tests/data/oracles/verl_advantages.json.

Run by a Python that has veRL, in an environment of its own: veRL and this project need different transformers.
Rewards and weights are multiples of 16, so that veRL's epsilons (1e-6 on a deviation, 1e-8 on a variance) are too
small against the deviations to be seen.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from verl.trainer.ppo.core_algos import (
    compute_gdpo_outcome_advantage,
    compute_grpo_outcome_advantage,
    compute_reinforce_plus_plus_baseline_outcome_advantage,
    compute_rloo_outcome_advantage,
)

OUTPUT = Path(__file__).parent.parent / "tests" / "data" / "oracles" / "verl_advantages.json"
UNIT = 16.0
SHAPES = {"even": (4, 6), "pairs": (5, 2), "wide": (2, 16), "flat_group": (4, 5), "lone": (3, 1), "lengths": (3, 4)}


def draw_rewards(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Different integers inside each group, along axis 1, in multiples of `UNIT`."""
    integers = np.tile(np.arange(1, 65), (shape[0], *shape[2:], 1))
    ranks = np.moveaxis(generator.permuted(integers, axis=-1), -1, 1)
    return UNIT * ranks[:, : shape[1]].astype(np.float64)


def on_tokens(values: np.ndarray, lengths: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """[P, G] -> rewards on the last token and mask, both [P * G, T]."""
    flat, ends = torch.tensor(values.reshape(-1)), torch.tensor(lengths.reshape(-1))
    mask = torch.arange(int(ends.max()))[None] < ends[:, None]
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    rewards[torch.arange(len(ends)), ends - 1] = flat
    return rewards, mask.double()


def by_completion(advantages: torch.Tensor, mask: torch.Tensor, shape: tuple[int, int]) -> list[list[float]]:
    """Every token of a completion has the same advantage: the first one's, [P][G]."""
    if not bool(((advantages == advantages[:, :1]) | (mask == 0)).all()):
        raise RuntimeError("the tokens of a completion have different advantages")
    return advantages[:, 0].double().reshape(shape).tolist()


def single_reward_case(rewards: np.ndarray, lengths: np.ndarray) -> dict[str, object]:
    shape = rewards.shape
    tokens, mask = on_tokens(rewards, lengths)
    group = np.repeat(np.arange(shape[0]), shape[1])
    outputs = {
        "grpo": compute_grpo_outcome_advantage(tokens, mask, group),
        "dr_grpo": compute_grpo_outcome_advantage(tokens, mask, group, norm_adv_by_std_in_grpo=False),
        "rloo": compute_rloo_outcome_advantage(tokens, mask, group),
        "reinforce_pp": compute_reinforce_plus_plus_baseline_outcome_advantage(tokens, mask, group),
        "gdpo": compute_gdpo_outcome_advantage(tokens, mask, group),
    }
    return {
        "rewards": rewards.tolist(),
        "lengths": lengths.tolist(),
        "advantages": {name: by_completion(result, mask, shape) for name, (result, _) in outputs.items()},
    }


def several_rewards_case(rewards: np.ndarray, weights: list[float]) -> dict[str, object]:
    """One token a completion. veRL computes this one in float32 whatever it is given."""
    groups, siblings, num_rewards = rewards.shape
    names = [f"reward_{index}" for index in range(num_rewards)]
    mask = torch.ones(groups * siblings, 1)
    result, _ = compute_gdpo_outcome_advantage(
        torch.zeros(groups * siblings, 1),
        mask,
        np.repeat(np.arange(groups), siblings),
        config={"gdpo_reward_keys": names, "gdpo_reward_weights": weights},
        non_tensor_batch={name: rewards[..., index].reshape(-1) for index, name in enumerate(names)},
        batch={
            "prompts": torch.zeros(groups * siblings, 1),
            "attention_mask": torch.ones(groups * siblings, 2, dtype=torch.long),
        },
    )
    return {
        "rewards": rewards.tolist(),
        "weights": weights,
        "advantages": by_completion(result, mask, (groups, siblings)),
    }


def main() -> None:
    generator = np.random.default_rng(0)
    single = {}
    for name, shape in SHAPES.items():
        rewards = draw_rewards(generator, shape)
        lengths = np.ones(shape, dtype=np.int64)
        if name == "flat_group":
            rewards[1] = 5 * UNIT
        if name == "lengths":
            lengths = generator.integers(1, 9, size=shape)
        single[name] = single_reward_case(rewards, lengths)
    components = draw_rewards(generator, (4, 5, 3)) * np.array([1.0, 64.0, 0.25])
    flat_component = components.copy()
    flat_component[2, :, 1] = 7 * UNIT
    weights = [1 * UNIT, 0.5 * UNIT, 2 * UNIT]
    several = {
        "even": several_rewards_case(components, weights),
        "flat_component": several_rewards_case(flat_component, weights),
    }
    content = {"verl": version("verl"), "torch": version("torch"), "single": single, "several": several}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
