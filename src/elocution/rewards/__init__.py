"""Rewards by name."""

from elocution.config.tree import RewardConfig
from elocution.registry import import_part
from elocution.rewards.base import Reward

__all__ = ["REWARDS", "Reward", "load_reward"]

REWARDS = {"wer_nll": "elocution.rewards.wer_nll:WerNllReward"}


def load_reward(config: RewardConfig) -> Reward:
    """The reward that `config.type` names: a row of the table or `module:Class`, built with the whole section."""
    reward: Reward = import_part("reward", config.type, REWARDS)(config)
    return reward
