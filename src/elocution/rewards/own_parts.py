"""Rewards of a user's own as parts of a composite: each judges one clip at a time, in the process that listens to it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from elocution.config.tree import RewardConfig
from elocution.errors import ElocutionError
from elocution.measures.facts import Findings, SpokenText
from elocution.measures.listener import Listener, build_listener
from elocution.registry import build_part, import_part
from elocution.rewards.base import Reward, score_all
from elocution.types import Completion, FinishReason, Outcome, Rollout, Utterance

__all__ = ["PartsListener", "build_parts_listener", "check_own_part", "is_own_part"]


def is_own_part(fact: str) -> bool:
    """Whether a component's `fact` is no measure of this package but `module:Class`, a reward."""
    return ":" in fact


def check_own_part(fact: str) -> None:
    """Imports the class without building it.

    Raises: ConfigError if there is no such class, or it is no reward.
    """
    _reward_class(fact)


def build_parts_listener(wanted: Sequence[str], config: RewardConfig, device: str = "cpu") -> "PartsListener":
    """A listener for measures and rewards of a user's own alike; the value of such a reward is its fact.

    Such a reward is built with the whole section, of whose devices it sees the one of its process, and entered once for
    each scoring process, and ends with it.

    Raises: ConfigError if there is no such measure, or a reward cannot be built.
    """
    listener = build_listener([name for name in wanted if not is_own_part(name)], config, device)
    own = config.model_copy(update={"devices": (device,)})
    return PartsListener(listener, {name: _entered(name, own) for name in wanted if is_own_part(name)})


class PartsListener:
    """Measures clips and asks the rewards, together or one by one."""

    def __init__(self, listener: Listener, own: Mapping[str, Reward]) -> None:
        self._listener, self._own = listener, own

    def __call__(self, clip: SpokenText) -> Findings:
        """The findings of one clip."""
        return self.together([clip])[0]

    def together(self, clips: Sequence[SpokenText]) -> list[Findings]:
        """The findings of each clip; the rewards get them one by one, so that one clip spoils no other."""
        return [self._with_own(clip, found) for clip, found in zip(clips, self._listener.together(clips), strict=True)]

    def _with_own(self, clip: SpokenText, found: Findings) -> Findings:
        facts, failures = dict(found.facts), dict(found.failures)
        rollout = _rollout(clip)
        for name, reward in self._own.items():
            try:
                (score,) = score_all(reward, [rollout])
            except ElocutionError as error:
                failures[name] = str(error)
                continue
            if score.value is None:
                failures[name] = score.error or ""
            else:
                facts[name] = score.value
        return replace(found, facts=facts, failures=failures)


def _entered(name: str, config: RewardConfig) -> Reward:
    reward: Reward = build_part("reward", name, lambda: _reward_class(name)(config).__enter__())
    return reward


def _reward_class(name: str) -> type:
    part: type = import_part("reward", name, {}, methods=["__call__", "__enter__", "__exit__"])
    return part


def _rollout(clip: SpokenText) -> Rollout:
    """The clip as a reward sees it; ids and log-probs stay where the policy is."""
    completion = Completion(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.float32), FinishReason.STOP, 0)
    asked = Utterance("", clip.text, clip.language, clip.voice, clip.description, emotion=clip.emotion)
    return Rollout(asked, completion, clip.codes, clip.audio, Outcome.SPEECH)
