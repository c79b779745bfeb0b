"""A reward that asks reward servers: waveforms out, typed scores back, no failure ever a number."""

import itertools
import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import numpy as np

from elocution.audio import read_audio
from elocution.config.secrets import read_secret
from elocution.config.tree import RewardConfig
from elocution.errors import ConfigError, DataError, RewardError, RewardUnavailable
from elocution.kserve import InferResponse, Tensor, text_tensor, texts_of
from elocution.rewards.base import Known, Pending
from elocution.rewards.coalesce import Coalescer
from elocution.rewards.endpoints import Endpoints
from elocution.rewards.kserve_client import KServeClient, RequestRefused
from elocution.rewards.listening import distinct_clips
from elocution.rewards.running import RunningValues
from elocution.rewards.self_test import SelfTest, check_scores, load_self_test
from elocution.types import Audio, Outcome, Rollout, Score

__all__ = ["RemoteReward"]

logger = logging.getLogger(__name__)

_OUTPUTS = ("VALUES", "STATUS", "ERROR", "TRANSCRIPTS", "PARTS", "MEASURES")
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0
_NO_VOICE = Audio(np.zeros(0, np.float32), 16_000)


@dataclass(frozen=True, eq=False)
class _Spoken:
    """A sound, and all that was asked of it: what a server needs to score.

    `voice` is a recording, a file or its bytes, and `voice_text` are its words.
    """

    text: str
    language: str
    audio: Audio
    voice: Path | bytes | Audio | None = None
    voice_text: str = ""
    description: str = ""
    emotion: str = ""


class RemoteReward:
    """The scores of the servers at `reward.remote.urls`, as they give them; range and direction are theirs.

    Entering it tests every server with `reward.self_test`. A completion without speech takes what the servers give
    silence, and is not sent. A request that fails is sent again, to another server if there is one, until its retries
    or its deadline run out; then its clips have no score. Completions that come one by one share requests with those
    that come within `reward.remote.max_delay_ms`. `state` is that of a `composite` whose parts the servers measure.
    """

    def __init__(self, config: RewardConfig) -> None:
        remote = config.remote
        if not remote.urls:
            raise ConfigError('the reward "remote" needs reward.remote.urls, for example ["http://127.0.0.1:8000"]')
        self._urls = tuple(dict.fromkeys(_checked_url(url) for url in remote.urls))
        self._remote, self._test = remote, load_self_test(config.self_test)
        self._token = read_secret(remote.token_env, "reward.remote.token_env")
        self._endpoints = Endpoints(self._urls)
        self._client: KServeClient | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._coalescer: Coalescer[_Spoken, Score] | None = None
        self._closing = threading.Event()
        self._numbers = itertools.count()
        self._floor: Score | None = None
        self._inputs: frozenset[str] = frozenset()
        self.state = RunningValues(config)

    def __enter__(self) -> Self:
        self._closing.clear()
        self._client = KServeClient(model=self._remote.model, token=self._token, connections=self._remote.concurrency)
        try:
            self._floor = self._test_servers()
        except BaseException:
            self._close()
            raise
        self._threads = ThreadPoolExecutor(self._remote.concurrency, thread_name_prefix="reward")
        self._coalescer = Coalescer(
            self._score_request,
            self._threads,
            size=self._remote.clips_per_request,
            wait_s=self._remote.max_delay_ms / 1000,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """One score for each rollout, in order. Clips that are the same are sent once.

        Raises: RewardError if the servers have not been tested, because the reward was not entered.
        """
        if self._threads is None:
            raise _not_entered()
        order, first_of = distinct_clips(rollouts)
        clips = [_spoken(rollouts[index], audio) for index, audio in order.items()]
        size = self._remote.clips_per_request
        requests = [clips[start : start + size] for start in range(0, len(clips), size)]
        answers = itertools.chain.from_iterable(self._threads.map(self._score_request, requests))
        found = dict(zip(order, answers, strict=True))
        return [
            found[first_of[index]] if index in first_of else self._without_speech(rollout)
            for index, rollout in enumerate(rollouts)
        ]

    def start(self, rollout: Rollout) -> Pending[Score]:
        """Begins to score `rollout`, as soon as a request is full or it has waited long enough for others.

        Raises: RewardError if the servers have not been tested, because the reward was not entered.
        """
        if self._coalescer is None:
            raise _not_entered()
        if rollout.outcome is not Outcome.SPEECH or rollout.audio is None:
            return Known(self._without_speech(rollout))
        return _Answer(self._coalescer.submit(_spoken(rollout, rollout.audio)))

    def _without_speech(self, rollout: Rollout) -> Score:
        if rollout.outcome is Outcome.SPEECH or self._floor is None:
            return Score(value=None, error="the completion is marked as speech but has no audio")
        return self._floor

    def _score_request(self, clips: Sequence[_Spoken]) -> list[Score]:
        """The scores of the clips of one request. What a server leaves unscored is asked of another.

        While no server answers, the time that other requests have waited counts, or a step would wait for each anew.
        """
        deadline = time.monotonic() + self._remote.deadline_s
        scores: dict[int, Score] = {}
        tried: set[str] = set()
        for attempt in range(1 + self._remote.retries):
            pending = [index for index in range(len(clips)) if index not in scores or scores[index].value is None]
            if not pending or (attempt and not self._pause(attempt, deadline)):
                break
            try:
                url, answers = self._ask([clips[index] for index in pending], tried, deadline)
            except (RequestRefused, DataError) as error:
                if len(pending) > 1:  # one clip may be to blame; the others must not share its fate
                    return [scores.get(i) or self._score_request([clip])[0] for i, clip in enumerate(clips)]
                return [scores.get(i) or _unscored(error) for i in range(len(clips))]
            except RewardUnavailable as error:
                answers = [_unscored(error)] * len(pending)
            else:
                tried.add(url)
            scores |= dict(zip(pending, answers, strict=True))
        return [scores[index] for index in range(len(clips))]

    def _ask(self, clips: Sequence[_Spoken], tried: set[str], deadline: float) -> tuple[str, list[Score]]:
        """The server that answered, and its scores.

        Raises: RewardUnavailable, RequestRefused; DataError if a voice cannot be read.
        """
        tensors = list(_tensors(clips, self._inputs))
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
                raise RewardUnavailable(f"every reward server is shut out after failures: {', '.join(self._urls)}")

    def _pause(self, attempt: int, deadline: float) -> bool:
        """Waits before another try; False if there is no time for one."""
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (attempt - 1))
        return time.monotonic() + pause < self._give_up_at(deadline) and not self._closing.wait(pause)

    def _give_up_at(self, deadline: float) -> float:
        return min(deadline, time.monotonic() + self._remote.deadline_s - self._endpoints.failing_for_s())

    def _ask_at(self, url: str, tensors: Sequence[Tensor], count: int, deadline: float) -> list[Score]:
        if self._client is None:
            raise RewardUnavailable("the reward has been closed")
        response = self._client.infer(
            url, tensors, outputs=_OUTPUTS, request_id=f"clips-{next(self._numbers)}", deadline=deadline
        )
        return _scores(response, count, url)

    def _test_servers(self) -> Score:
        """What the servers give silence, once each of them has passed the test.

        Raises: RewardUnavailable if one cannot be reached; RewardError if one fails, or they differ.
        """
        assert self._client is not None
        served = {url: self._client.describe(url, timeout_s=self._remote.deadline_s) for url in self._urls}
        versions = {url: reward.version for url, reward in served.items()}
        self._inputs = frozenset.intersection(*(reward.inputs for reward in served.values()))
        if len(set(versions.values())) > 1:
            raise RewardError(
                "the reward servers score differently: "
                + ", ".join(f"{url} has reward version {version}" for url, version in versions.items())
            )
        floors = [self._test_server(url, self._test) for url in self._urls]
        logger.info("reward servers tested: %s (reward version %s)", ", ".join(self._urls), versions[self._urls[0]])
        return floors[0]

    def _test_server(self, url: str, test: SelfTest) -> Score:
        clips = [
            _Spoken(test.text, test.language, clip, test.known, test.text, test.description) for clip in test.clips
        ]
        deadline = time.monotonic() + self._remote.deadline_s
        scores = [self._ask_at(url, list(_tensors([clip], self._inputs)), 1, deadline)[0] for clip in clips]
        return check_scores(test, scores, subject=f"the reward server {url}")

    def _close(self) -> None:
        self._closing.set()
        self._floor = None
        if self._coalescer is not None:
            self._coalescer.close()
            self._coalescer = None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)  # a server that hangs must not hold up the end
            self._threads = None
        if self._client is not None:
            self._client.close()
            self._client = None


class _Answer:
    """The score of a clip in a request that is under way, or waits for others to share it."""

    def __init__(self, future: "Future[Score]") -> None:
        self._future = future

    def wait(self, wait_s: float | None) -> bool:
        wait([self._future], wait_s)
        return self._future.done()

    def result(self) -> Score:
        if self._future.cancelled():
            return Score(value=None, error="the reward was closed before the clip was sent")
        return self._future.result()


def _spoken(rollout: Rollout, audio: Audio) -> _Spoken:
    asked = rollout.utterance
    recording, words = (asked.voice.audio, asked.voice.text) if asked.voice else (None, "")
    return _Spoken(asked.text, asked.language, audio, recording, words, asked.description, asked.emotion)


def _not_entered() -> RewardError:
    return RewardError("the reward 'remote' must be entered before it scores")


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


def _tensors(clips: Sequence[_Spoken], taken: frozenset[str]) -> Iterator[Tensor]:
    """The inputs of a request; voices and what describes them where there are any, and a server takes them.

    Raises: DataError if a voice cannot be read.
    """
    yield from _waves("WAV", "SAMPLE_RATE", [clip.audio for clip in clips])
    yield text_tensor("GT_TEXT", [clip.text for clip in clips])
    yield text_tensor("LANGUAGE", [clip.language for clip in clips])
    if "PROMPT_WAV" in taken and any(clip.voice is not None for clip in clips):
        yield from _waves("PROMPT_WAV", "PROMPT_SAMPLE_RATE", [_recording(clip.voice) for clip in clips])
    texts = {
        "PROMPT_TEXT": [clip.voice_text for clip in clips],
        "DESCRIPTION": [clip.description for clip in clips],
        "EMOTION": [clip.emotion for clip in clips],
    }
    for name, column in texts.items():
        if name in taken and any(column):
            yield text_tensor(name, column)


def _waves(name: str, rate_name: str, sounds: Sequence[Audio]) -> Iterator[Tensor]:
    waves = np.zeros((len(sounds), max(len(sound.samples) for sound in sounds)), np.float32)
    for row, sound in zip(waves, sounds, strict=True):
        row[: len(sound.samples)] = sound.samples
    yield Tensor(name, "FP32", waves)
    yield Tensor(f"{name}_LENS", "INT32", np.array([[len(sound.samples)] for sound in sounds], np.int32))
    yield Tensor(rate_name, "INT32", np.array([[sound.sample_rate] for sound in sounds], np.int32))


def _recording(voice: Path | bytes | Audio | None) -> Audio:
    """The sound of a voice; nothing where there is none."""
    if voice is None:
        return _NO_VOICE
    return voice if isinstance(voice, Audio) else read_audio(voice)


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
