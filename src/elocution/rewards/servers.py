"""Reward servers that score alike: the least loaded is asked, another tries what one failed at, no failure is ever a number."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import httpx2

from elocution.config.rewards import RemoteRewardConfig
from elocution.config.secrets import read_secret
from elocution.errors import ConfigError, DataError, RewardError, RewardUnavailable
from elocution.kserve import InferResponse, Tensor, texts_of
from elocution.rewards.endpoints import Endpoints
from elocution.rewards.kserve_client import KServeClient, RequestRefused
from elocution.types import Score

__all__ = ["RewardServers"]

Clip = TypeVar("Clip")

_OUTPUTS = ("VALUES", "STATUS", "ERROR", "TRANSCRIPTS", "PARTS", "MEASURES")
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0


class RewardServers(Generic[Clip]):
    """The servers at `config.urls`, asked for scores by their `model`; `tensors` makes a request of clips and of the names of
    the inputs that every server takes, and may raise DataError.

    Between `open` and `close`, which may be called again, safe to use from several threads.

    Raises: ConfigError if a URL is none, or there are none.
    """

    def __init__(
        self,
        config: RemoteRewardConfig,
        *,
        model: str,
        tensors: Callable[[Sequence[Clip], frozenset[str]], Iterable[Tensor]],
    ) -> None:
        if not config.urls:
            raise ConfigError('the reward "remote" needs reward.remote.urls, for example ["http://127.0.0.1:8000"]')
        self.urls = tuple(dict.fromkeys(_checked_url(url) for url in config.urls))
        self._config, self._model, self._tensors = config, model, tensors
        self._token = read_secret(config.token_env, "reward.remote.token_env")
        self._endpoints = Endpoints(self.urls)
        self._client: KServeClient | None = None
        self._closing = threading.Event()
        self._numbers = itertools.count()
        self._inputs: frozenset[str] = frozenset()

    def open(self) -> str:
        """Connects, and returns the reward version that all servers have.

        Raises: RewardUnavailable if one cannot be reached; RewardError if one has no such model, or they differ.
        """
        self._closing.clear()
        self._client = KServeClient(model=self._model, token=self._token, connections=self._config.concurrency)
        served = {url: self._client.describe(url, timeout_s=self._config.deadline_s) for url in self.urls}
        versions = {url: reward.version for url, reward in served.items()}
        self._inputs = frozenset.intersection(*(reward.inputs for reward in served.values()))
        if len(set(versions.values())) > 1:
            raise RewardError(
                "the reward servers score differently: "
                + ", ".join(f"{url} has reward version {version}" for url, version in versions.items())
            )
        return versions[self.urls[0]]

    def close(self) -> None:
        """Gives up what is under way and ends the connections; may be called twice."""
        self._closing.set()
        if self._client is not None:
            self._client.close()
            self._client = None

    def score(self, clips: Sequence[Clip]) -> list[Score]:
        """The scores of the clips of one request, in order. What a server leaves unscored is asked of another.

        A request that fails is sent again until its retries or its deadline run out; then its clips have no score. While no
        server answers, the time that other requests have waited counts, or a step would wait for each anew.
        """
        deadline = time.monotonic() + self._config.deadline_s
        scores: dict[int, Score] = {}
        tried: set[str] = set()
        for attempt in range(1 + self._config.retries):
            pending = [index for index in range(len(clips)) if index not in scores or scores[index].value is None]
            if not pending or (attempt and not self._pause(attempt, deadline)):
                break
            try:
                url, answers = self._ask([clips[index] for index in pending], tried, deadline)
            except (RequestRefused, DataError) as error:
                if len(pending) > 1:  # one clip may be to blame; the others must not share its fate
                    return [scores.get(i) or self.score([clip])[0] for i, clip in enumerate(clips)]
                return [scores.get(i) or _unscored(error) for i in range(len(clips))]
            except RewardUnavailable as error:
                answers = [_unscored(error)] * len(pending)
            else:
                tried.add(url)
            scores |= dict(zip(pending, answers, strict=True))
        return [scores[index] for index in range(len(clips))]

    def ask(self, url: str, clip: Clip) -> Score:
        """What the server at `url` says of `clip`, asked once.

        Raises: RewardUnavailable, RequestRefused; DataError as `tensors`.
        """
        deadline = time.monotonic() + self._config.deadline_s
        return self._ask_at(url, list(self._tensors([clip], self._inputs)), 1, deadline)[0]

    def _ask(self, clips: Sequence[Clip], tried: set[str], deadline: float) -> tuple[str, list[Score]]:
        """The server that answered, and its scores.

        Raises: RewardUnavailable, RequestRefused; DataError as `tensors`.
        """
        tensors = list(self._tensors(clips, self._inputs))
        url = self._take(tried, deadline)
        try:
            answers = self._ask_at(url, tensors, len(clips), deadline)
        except RequestRefused:
            self._endpoints.succeeded(url)  # it is well, and says no
            raise
        except BaseException:
            tried.add(url)
            self._endpoints.failed(url)
            raise
        self._endpoints.succeeded(url)
        return url, answers

    def _take(self, tried: set[str], deadline: float) -> str:
        """A server to ask; waits while all are shut out."""
        while True:
            url = self._endpoints.take(tried)
            if url is not None:
                return url
            if time.monotonic() >= self._give_up_at(deadline) or self._closing.wait(0.05):
                raise RewardUnavailable(f"every reward server is shut out after failures: {', '.join(self.urls)}")

    def _pause(self, attempt: int, deadline: float) -> bool:
        """Waits before another try; False if there is no time for one."""
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (attempt - 1))
        return time.monotonic() + pause < self._give_up_at(deadline) and not self._closing.wait(pause)

    def _give_up_at(self, deadline: float) -> float:
        return min(deadline, time.monotonic() + self._config.deadline_s - self._endpoints.failing_for_s())

    def _ask_at(self, url: str, tensors: Sequence[Tensor], count: int, deadline: float) -> list[Score]:
        if self._client is None:
            raise RewardUnavailable("the reward has been closed")
        response = self._client.infer(
            url, tensors, outputs=_OUTPUTS, request_id=f"clips-{next(self._numbers)}", deadline=deadline
        )
        return _scores(response, count, url)


def _unscored(error: RewardError | DataError) -> Score:
    return Score(value=None, error=f"{type(error).__name__}: {error}")


def _checked_url(url: str) -> str:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"reward.remote.urls: {url!r} is no URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.userinfo:
        raise ConfigError(f"reward.remote.urls: {url!r} must look like http://HOST:PORT")
    return url.rstrip("/")


def _scores(response: InferResponse, count: int, url: str) -> list[Score]:
    """The scores in an answer.

    Raises: RewardUnavailable if it is not what was asked for.
    """
    try:
        if any(response.outputs[name].values.shape != (count, 1) for name in _OUTPUTS):
            shapes = {name: response.outputs[name].values.shape for name in _OUTPUTS}
            raise ValueError(f"expected outputs of shape [{count}, 1], got {shapes}")
        if response.outputs["VALUES"].datatype != "FP64":
            raise ValueError(f"VALUES has datatype {response.outputs['VALUES'].datatype}, expected FP64")
        values = response.outputs["VALUES"].values[:, 0].tolist()
        texts = [texts_of(response.outputs[name]) for name in _OUTPUTS[1:]]
        return [_score(value, *one) for value, *one in zip(values, *texts, strict=True)]
    except (ValueError, TypeError, AttributeError) as error:
        raise RewardUnavailable(f"{url} gave a broken answer: {error}") from error


def _score(value: float, status: str, reason: str, transcript: str, parts: str, measures: str) -> Score:
    if status == "unscored":
        return Score(value=None, error=reason or "the server gave no reason")
    if status not in ("scored", "unscorable"):
        raise ValueError(f"unknown status {status!r:.40}")
    raw: Any = json.loads(measures)
    return Score(value, raw, transcript, parts=json.loads(parts))
