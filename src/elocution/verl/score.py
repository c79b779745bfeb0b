"""The reward that veRL calls for one completion: the codes in its text go to the reward servers of a run's config.

veRL wants a number for every completion. One that could not be scored gets the floor, but says so (`is_unscored`, `error`), and
past `reward.max_unscored_share` of the latest completions the run stops.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.errors import RewardUnavailable
from elocution.kserve import Tensor, text_tensor
from elocution.rewards.base import FLOOR
from elocution.rewards.servers import RewardServers
from elocution.types import Score

__all__ = ["CODE", "CodeScorer", "Completion", "FailureWatch", "compute_score"]

CODE = re.compile(r"<\|s_(\d+)\|>")
"""A speech code in the text of a completion."""

_WINDOW = 64  # completions over which the share of failures is taken, in each of veRL's reward workers
_LOADING = threading.Lock()


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    config: str,
    **others: Any,
) -> dict[str, float | str]:
    """What veRL keeps of the completion `solution_str` of the text `ground_truth`: `score`, and why.

    Its arguments come in order or by name, depending on veRL's version; `config` is the run's config.toml, from `reward_kwargs`,
    and `others` that veRL gives are not needed. Codes of `extra_info.prefix_speech_str`, with which the answer began, are heard
    too; `extra_info.is_truncated` is set by our reward manager.

    Raises: RewardUnavailable if no server answers at first, or too many completions could not be scored.
    """
    extra = extra_info or {}
    spoken = f"{extra.get('prefix_speech_str') or ''}{solution_str}"
    codes = tuple(int(code) for code in CODE.findall(spoken))
    with _LOADING:
        scorer = _scorer(config)
    return scorer(
        Completion(ground_truth, codes, is_truncated=bool(extra.get("is_truncated"))),
    )


@cache
def _scorer(config: str) -> "CodeScorer":
    """One for each process of veRL, which has no place to keep it."""
    return CodeScorer(load_config(Path(config)))


@dataclass(frozen=True)
class Completion:
    """What was spoken for `text`; `is_truncated` if it used up its budget without a stop."""

    text: str
    codes: tuple[int, ...]
    is_truncated: bool = False


class CodeScorer:
    """Scores completions by the model of the run's servers that takes codes; safe to use from several threads."""

    def __init__(self, config: RunConfig) -> None:
        """Raises: ConfigError if the config names no server; RewardUnavailable, RewardError as `RewardServers.open`."""
        remote, language = config.reward.remote, config.data.languages[0]

        def tensors(completions: Sequence[Completion], taken: frozenset[str]) -> Iterator[Tensor]:
            return _tensors(completions, language)

        # The model for waveforms is called like the one for codes, with `_wav` behind it.
        self._servers = RewardServers(remote, model=remote.model.removesuffix("_wav"), tensors=tensors)
        self._servers.open()
        self._floors_truncated = config.algorithm.truncated == "floor"
        self._watch = FailureWatch(config.reward.max_unscored_share, _WINDOW)

    def __call__(self, completion: Completion) -> dict[str, float | str]:
        """Raises: RewardUnavailable if too many could not be scored."""
        if completion.is_truncated and self._floors_truncated:
            return _row(FLOOR, "unscorable", "it used up its budget without an end of speech")
        if not completion.codes:
            return _row(FLOOR, "unscorable", "it holds no speech code")
        (score,) = self._servers.score([completion])
        self._watch.record(score.error)
        if score.value is None:
            return _row(FLOOR, "unscored", score.error or "")
        return _row(score.value, "scored", "", score)

    def close(self) -> None:
        """Ends the connections."""
        self._servers.close()


class FailureWatch:
    """Stops a run whose scorer is down: too large a share of failures among the last `window` results. Thread-safe."""

    def __init__(self, max_share: float, window: int) -> None:
        self._max_share, self._window = max_share, window
        self._failed: deque[bool] = deque(maxlen=window)
        self._lock = threading.Lock()

    def record(self, error: str | None) -> None:
        """Counts a result and why it has no score, None if it has one.

        Raises: RewardUnavailable once the failures exceed their share of a whole window.
        """
        with self._lock:
            self._failed.append(error is not None)
            count = sum(self._failed)
        if error is not None and count > self._max_share * self._window:
            raise RewardUnavailable(
                f"{count} of the last {self._window} completions could not be scored, more than "
                f"reward.max_unscored_share = {self._max_share}; the last: {error}"
            )


def _row(value: float, status: str, reason: str, score: Score | None = None) -> dict[str, float | str]:
    """The same keys for every completion: veRL makes columns of them."""
    return {
        "score": value,
        "status": status,
        "is_unscored": float(status == "unscored"),
        "error": reason,
        "transcript": (score and score.transcript) or "",
        "measures": json.dumps(dict(score.raw) if score else {}),
    }


def _tensors(completions: Sequence[Completion], language: str) -> Iterator[Tensor]:
    tokens = np.zeros((len(completions), max(len(one.codes) for one in completions)), np.int32)
    for row, one in zip(tokens, completions, strict=True):
        row[: len(one.codes)] = one.codes
    yield Tensor("TOKENS", "INT32", tokens)
    yield Tensor("TOKEN_LENS", "INT32", np.array([[len(one.codes)] for one in completions], np.int32))
    yield text_tensor("GT_TEXT", [one.text for one in completions])
    yield text_tensor("LANGUAGE", [language] * len(completions))
