"""Rewards by name."""

from typing import Any

from elocution.config.tree import RewardConfig
from elocution.registry import import_part
from elocution.rewards.base import Reward, score_all
from elocution.rewards.watched import WatchedReward, WatchedStreamingReward

__all__ = ["REWARDS", "Reward", "check_reward", "load_reward", "score_all"]

REWARDS = {
    "wer_nll": "elocution.rewards.wer_nll:WerNllReward",
    "composite": "elocution.rewards.composite:CompositeReward",
    "remote": "elocution.rewards.remote:RemoteReward",
}


def check_reward(config: RewardConfig) -> None:
    """Looks up the reward that `config` names, and the parts that one of the table names; no recogniser is loaded.

    Raises: ConfigError if there is no such reward or part, or they do not fit together.
    """
    part = _find(config)
    if config.type in REWARDS:
        part(config)


def load_reward(config: RewardConfig) -> WatchedReward:
    """The reward that `config.type` names: a row of the table or `module:Class`, built with the whole section.

    It runs in a thread of its own, and may take `config.call_timeout_s` for building, starting and each scoring.

    Raises: ConfigError if there is no such class, or it cannot be built; RewardUnavailable if that takes too long.
    """
    part = _find(config)
    watched = WatchedStreamingReward if hasattr(part, "start") else WatchedReward
    return watched(config.type, lambda: part(config), limit_s=config.call_timeout_s)


def _find(config: RewardConfig) -> Any:
    return import_part("reward", config.type, REWARDS, methods=["__call__", "__enter__", "__exit__"])
