"""Between request and reward: what is decoded, what is remembered, what a broken codec costs."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.config.tree import CodecConfig, RewardConfig, RewardServerConfig
from elocution.errors import CodecError, RewardUnavailable
from elocution.rewards.base import Pending
from elocution.serve.metrics import RewardMetrics
from elocution.serve.scoring import Clip, ClipScorer, ScoringQueue, Status, describe_version
from elocution.types import Audio, Outcome, Rollout, Score

TINY = load_codec("tiny", resolve_path("builtin:tiny-codec"))


class WatchedCodec:
    """The tiny codec; counts the clips it decodes, and breaks on codes that begin with 13 (raises) or 14 (NaN)."""

    sample_rate, frame_rate, num_codebooks, codebook_size = 16_000, 25.0, 1, 2048

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        return TINY.encode(audio)

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        self.decoded += len(codes)
        if any(clip[0, 0] == 13 for clip in codes):
            raise CodecError("thirteen")
        sounds = TINY.decode(codes)
        return [
            Audio(np.full_like(sound.samples, np.nan), 16_000) if clip[0, 0] == 14 else sound
            for clip, sound in zip(codes, sounds, strict=True)
        ]


class Listener:
    """A reward of 1 for each clip that has sound, 0 for one without; keeps what it was asked."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.asked: list[Rollout] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        assert self.may_answer.wait(10)
        if self.fails:
            raise RewardUnavailable("the recogniser is down")
        self.asked += rollouts
        return [Score(float(rollout.outcome is Outcome.SPEECH)) for rollout in rollouts]


def _clip(*codes: int, text: str = "one", language: str = "en") -> Clip:
    return Clip(text, language, np.array(codes, np.int64).reshape(-1, 1), len(codes) / 25)


def _queue(listener: Listener, codec: WatchedCodec, **settings: Any) -> ScoringQueue:
    metrics = RewardMetrics()
    config = RewardServerConfig(max_delay_ms=1.0, **settings)
    return ScoringQueue(ClipScorer(listener, codec, metrics), config, metrics, "v")


def test_s14_the_codec_runs_once_for_a_clip_that_comes_again_while_it_is_scored_or_after() -> None:
    listener, codec = Listener(), WatchedCodec()

    async def check() -> None:
        queue = _queue(listener, codec)
        listener.may_answer.clear()
        clips = [_clip(500, 600, 700) for _ in range(8)]
        asked = [asyncio.ensure_future(queue.score([clip, clip])) for clip in clips]
        await asyncio.sleep(0.05)
        listener.may_answer.set()
        verdicts = [verdict for both in await asyncio.gather(*asked) for verdict in both]
        verdicts += await queue.score(clips)
        assert [verdict.score.value for verdict in verdicts] == [verdicts[0].score.value] * 24

    asyncio.run(check())
    assert (codec.decoded, len(listener.asked)) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        _clip(500, 600, 701),
        _clip(500, 600),
        _clip(500, 600, 700, text="two"),
        _clip(500, 600, 700, language="zh"),
        Clip("one", "en", Audio(np.array([500, 600, 700], np.float32), 16_000), 1.0),
    ],
)
def test_whatever_may_change_a_score_is_in_the_key(other: Clip) -> None:
    assert _clip(500, 600, 700).key() == _clip(500, 600, 700).key()
    assert _clip(500, 600, 700).key() != other.key()


def test_the_sample_rate_is_in_the_key() -> None:
    samples = np.zeros(3, np.float32)
    assert Clip("a", "en", Audio(samples, 8_000), 1.0).key() != Clip("a", "en", Audio(samples, 16_000), 1.0).key()


def test_whatever_a_clip_comes_to_hold_is_in_the_key() -> None:
    """A voice, for example: codes alone do not say what a clip sounds like where the codec takes one."""

    @dataclass(frozen=True, eq=False)
    class ClipWithVoice(Clip):
        voice: Audio | None = None

    voices = [None, *(Audio(np.full(3, level, np.float32), 16_000) for level in (0.1, 0.2))]
    keys = [ClipWithVoice("a", "en", np.zeros((2, 1), np.int64), 1.0, voice).key() for voice in (*voices, *voices)]
    assert len(set(keys)) == 3
    assert keys[:3] == keys[3:]


@pytest.mark.parametrize(("entries", "asked"), [(0, 4), (1, 4), (2, 2)])
def test_no_more_scores_are_remembered_than_allowed(entries: int, asked: int) -> None:
    listener = Listener()

    async def check() -> None:
        queue = _queue(listener, WatchedCodec(), cache_entries=entries)
        for clip in (_clip(500), _clip(600)) * 2:
            await queue.score([clip])

    asyncio.run(check())
    assert len(listener.asked) == asked


def test_a_caller_that_goes_away_does_not_take_the_score_from_another() -> None:
    listener = Listener()

    async def check() -> None:
        queue = _queue(listener, WatchedCodec())
        listener.may_answer.clear()
        gone, stays = (asyncio.ensure_future(queue.score([_clip(500, 600)])) for _ in range(2))
        await asyncio.sleep(0.02)
        gone.cancel()
        await asyncio.sleep(0)
        listener.may_answer.set()
        (verdict,) = await stays
        assert verdict.score.error is None

    asyncio.run(check())


def test_samples_that_are_not_finite_are_the_codecs_fault_and_of_one_clip_only() -> None:
    """A decoder in half precision can give NaN; that is no bad speech."""
    scorer = ClipScorer(Listener(), WatchedCodec(), RewardMetrics())
    good, bad, empty = scorer([_clip(500, 600, 700), _clip(14, 600), _clip()])
    assert good.status in (Status.SCORED, Status.UNSCORABLE)
    assert bad.status is Status.UNSCORED
    assert bad.reason == "the codec gave samples that are not finite"
    assert (empty.status, empty.score.value) == (Status.UNSCORABLE, 0.0)


def test_a_codec_that_fails_gives_reasons_and_no_numbers() -> None:
    scorer = ClipScorer(Listener(), WatchedCodec(), RewardMetrics())
    verdicts = scorer([_clip(13), _clip(500)])
    assert [(verdict.status, verdict.reason) for verdict in verdicts] == [(Status.UNSCORED, "thirteen")] * 2


def test_a_reward_that_fails_gives_reasons_and_no_numbers() -> None:
    scorer = ClipScorer(Listener(fails=True), WatchedCodec(), RewardMetrics())
    (verdict,) = scorer([_clip(500)])
    assert (verdict.status, verdict.reason) == (Status.UNSCORED, "RewardUnavailable: the recogniser is down")


class OneByOne(Listener):
    """Begins with each clip by itself and answers once `company` of them have begun; text `fail` cannot begin."""

    def __init__(self, company: int) -> None:
        super().__init__()
        self.company, self.begun = company, 0
        self.all_begun = threading.Event()

    def start(self, rollout: Rollout) -> Pending[Score]:
        if rollout.utterance.text == "fail":
            raise RewardUnavailable("the recogniser is down")
        self.begun += 1
        if self.begun == self.company:
            self.all_begun.set()
        return Awaited(self.all_begun, Score(float(self.begun)))


@dataclass
class Awaited:
    ready: threading.Event
    score: Score

    def wait(self, wait_s: float | None) -> bool:
        return self.ready.wait(10 if wait_s is None else wait_s)

    def result(self) -> Score:
        return self.score if self.ready.is_set() else Score(None, error="the other batch has not begun")


def test_batches_share_a_reward_that_scores_one_by_one() -> None:
    """Neither batch can end before the other has begun."""
    queue = _queue(OneByOne(company=4), WatchedCodec(), max_batch_size=2, concurrent_batches=2)

    async def ask() -> list[Status]:
        return [verdict.status for verdict in await queue.score([_clip(500 + i, 600) for i in range(4)])]

    assert asyncio.run(ask()) == [Status.SCORED] * 4


def test_a_clip_that_cannot_begin_fails_alone_and_the_longest_begins_first() -> None:
    scorer = ClipScorer(OneByOne(company=2), WatchedCodec(), RewardMetrics())
    short, failed, long = scorer([_clip(500), _clip(500, text="fail"), _clip(500, 600, 700)])
    assert (failed.status, failed.reason) == (Status.UNSCORED, "RewardUnavailable: the recogniser is down")
    assert (long.score.value, short.score.value) == (1.0, 2.0)


def test_the_version_changes_with_what_changes_scores_only() -> None:
    base = describe_version(RewardConfig(), CodecConfig())
    assert describe_version(RewardConfig(workers=7, timeout_s=1.0), CodecConfig()) == base
    assert describe_version(RewardConfig(alpha_wer=2.0), CodecConfig()) != base
    assert describe_version(RewardConfig(), CodecConfig(path="elsewhere")) != base
