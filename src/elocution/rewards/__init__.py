"""Rewards by name."""

from elocution.config.tree import RewardConfig
from elocution.errors import ConfigError, ElocutionError
from elocution.registry import import_part
from elocution.rewards.base import Reward, describe_failure, score_all

__all__ = ["REWARDS", "Reward", "load_reward", "score_all"]

REWARDS = {
    "remote": "elocution.rewards.remote:RemoteReward",
    "wer_nll": "elocution.rewards.wer_nll:WerNllReward",
}


def load_reward(config: RewardConfig) -> Reward:
    """The reward that `config.type` names: a row of the table or `module:Class`, built with the whole section.

    Raises: ConfigError if there is no such class, or it cannot be built.
    """
    part = import_part("reward", config.type, REWARDS, methods=["__call__", "__enter__", "__exit__"])
    try:
        reward: Reward = part(config)
    except ElocutionError:
        raise
    except Exception as error:  # the user's class may fail in any way
        raise ConfigError(f"cannot build the reward {config.type!r}: {describe_failure(error)}") from error
    return reward
