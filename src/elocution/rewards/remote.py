"""A reward that asks reward servers: waveforms out, typed scores back, no failure ever a number."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from elocution.audio import read_audio
from elocution.config.tree import RewardConfig
from elocution.errors import RewardError
from elocution.kserve import Tensor, text_tensor
from elocution.rewards.base import Known, Pending
from elocution.rewards.coalesce import Coalescer
from elocution.rewards.listening import distinct_clips
from elocution.rewards.running import RunningValues
from elocution.rewards.self_test import SelfTest, check_scores, load_self_test
from elocution.rewards.servers import RewardServers
from elocution.types import Audio, Outcome, Rollout, Score

__all__ = ["RemoteReward"]

logger = logging.getLogger(__name__)

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
        self._remote, self._test = config.remote, load_self_test(config.self_test)
        self._servers = RewardServers(config.remote, model=config.remote.model, tensors=_tensors)
        self._threads: ThreadPoolExecutor | None = None
        self._coalescer: Coalescer[_Spoken, Score] | None = None
        self._floor: Score | None = None
        self.state = RunningValues(config)

    def __enter__(self) -> Self:
        try:
            self._floor = self._test_servers()
        except BaseException:
            self._close()
            raise
        self._threads = ThreadPoolExecutor(self._remote.concurrency, thread_name_prefix="reward")
        self._coalescer = Coalescer(
            self._servers.score,
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
        answers = itertools.chain.from_iterable(self._threads.map(self._servers.score, requests))
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

    def _test_servers(self) -> Score:
        """What the servers give silence, once each of them has passed the test.

        Raises: RewardUnavailable if one cannot be reached; RewardError if one fails, or they differ.
        """
        version = self._servers.open()
        floors = [self._test_server(url, self._test) for url in self._servers.urls]
        logger.info("reward servers tested: %s (reward version %s)", ", ".join(self._servers.urls), version)
        return floors[0]

    def _test_server(self, url: str, test: SelfTest) -> Score:
        clips = [
            _Spoken(test.text, test.language, clip, test.known, test.text, test.description) for clip in test.clips
        ]
        scores = [self._servers.ask(url, clip) for clip in clips]
        return check_scores(test, scores, subject=f"the reward server {url}")

    def _close(self) -> None:
        self._floor = None
        if self._coalescer is not None:
            self._coalescer.close()
            self._coalescer = None
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)  # a server that hangs must not hold up the end
            self._threads = None
        self._servers.close()


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
