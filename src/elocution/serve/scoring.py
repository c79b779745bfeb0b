"""Clips -> verdicts: each distinct one decoded and listened to once, in batches, its score remembered.

Knows no HTTP.
"""

import asyncio
import hashlib
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from elocution import __version__
from elocution.audio import encode_wav
from elocution.codecs.base import Codec
from elocution.config.tree import CodecConfig, RewardConfig, RewardServerConfig
from elocution.errors import CodecError, ElocutionError
from elocution.rewards.base import Pending, Reward, StreamingReward, score_all, start_scoring
from elocution.rollout.outcomes import classify_outcome
from elocution.serve.batching import Batcher
from elocution.serve.metrics import RewardMetrics
from elocution.text.normalize import NORMALIZER_VERSION
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Score, Utterance, Voice

__all__ = ["Clip", "ClipScorer", "ScoringQueue", "Status", "Verdict", "describe_version"]

logger = logging.getLogger(__name__)

# Of `[reward]`: where and how fast clips are heard, not what they score.
_NO_MATTER = {
    *("workers", "devices", "batch_size", "timeout_s", "call_timeout_s", "max_unscored_share", "self_test", "remote"),
}


class Status(StrEnum):
    """Whether there is a score: of what was heard; the lowest, for no speech; or none, because the scorer failed."""

    SCORED = "scored"
    UNSCORABLE = "unscorable"
    UNSCORED = "unscored"


@dataclass(frozen=True, eq=False)
class Clip:
    """A text and what is meant to say it, in whose voice (of which `voice_text` are the words) and how.

    Shapes: codes [F, Q] int64; both sounds may be empty.
    """

    text: str
    language: str
    sound: NDArray[np.int64] | Audio
    duration_s: float
    voice: Audio | None = None
    voice_text: str = ""
    description: str = ""
    emotion: str = ""

    def key(self) -> bytes:
        """Equal for clips that must score the same."""
        digest = hashlib.blake2b(digest_size=16)
        for field in fields(self):  # all of them, so that none can be forgotten here
            value = getattr(self, field.name)
            samples = value.samples if isinstance(value, Audio) else value
            if isinstance(samples, np.ndarray):
                rate = value.sample_rate if isinstance(value, Audio) else 0
                digest.update(repr((field.name, rate, samples.shape, samples.dtype.str)).encode())
                digest.update(np.ascontiguousarray(samples).tobytes())
            else:
                digest.update(repr((field.name, value)).encode())
        return digest.digest()


@dataclass(frozen=True)
class Verdict:
    """The score of a clip, and what the clip turned out to be."""

    score: Score
    outcome: Outcome

    @property
    def status(self) -> Status:
        if self.score.value is None:
            return Status.UNSCORED
        return Status.SCORED if self.outcome is Outcome.SPEECH else Status.UNSCORABLE

    @property
    def reason(self) -> str:
        """Why there is no score, or only the lowest; empty where the clip was scored."""
        if self.score.error is not None:
            return self.score.error
        return "" if self.outcome is Outcome.SPEECH else f"no speech: the clip is {self.outcome}"


def describe_version(reward: RewardConfig, codec: CodecConfig) -> str:
    """Equal for servers that give the same clip the same score: a digest of reward, codec, normaliser and release."""
    settings = reward.model_dump_json(exclude=_NO_MATTER)
    text = "\n".join([__version__, NORMALIZER_VERSION, settings, codec.model_dump_json()])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class ClipScorer:
    """Decodes codes and asks the reward; blocking, and safe to call from several threads if the reward is."""

    def __init__(self, reward: Reward, codec: Codec, metrics: RewardMetrics) -> None:
        self._reward, self._codec, self._metrics = reward, codec, metrics
        self._decoding = threading.Lock()

    def __call__(self, clips: Sequence[Clip]) -> list[Verdict]:
        """One verdict for each clip, in order. A failure of the codec or the reward is a verdict too."""
        self._metrics.batch_size.observe(len(clips))
        started = time.perf_counter()
        try:
            sounds = self._sounds(clips)
        except CodecError as error:
            return [_failed(str(error)) for _ in clips]
        decoded = time.perf_counter()
        self._metrics.decode_seconds.observe(decoded - started)
        finite = [index for index, sound in enumerate(sounds) if sound is None or np.isfinite(sound.samples).all()]
        rollouts = [_rollout(clips[index], sounds[index]) for index in finite]
        verdicts = [_failed("the codec gave samples that are not finite") for _ in clips]
        for index, verdict in zip(finite, self._listen(rollouts), strict=True):
            verdicts[index] = verdict
        self._metrics.score_seconds.observe(time.perf_counter() - decoded)
        return verdicts

    def _sounds(self, clips: Sequence[Clip]) -> list[Audio | None]:
        """What each clip sounds like; None for one without codes or samples."""
        coded = [clip.sound for clip in clips if not isinstance(clip.sound, Audio) and len(clip.sound)]
        with self._decoding:
            decoded = iter(self._codec.decode(coded) if coded else [])
        sounds: list[Audio | None] = []
        for clip in clips:
            if isinstance(clip.sound, Audio):
                sounds.append(clip.sound if len(clip.sound.samples) else None)
            else:
                sounds.append(next(decoded) if len(clip.sound) else None)
        return sounds

    def _listen(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        # One by one where the reward can, so that batches share its workers instead of waiting for each other.
        streaming = self._reward if isinstance(self._reward, StreamingReward) else None
        scores = self._score_together(rollouts) if streaming is None else _score_each(streaming, rollouts)
        self._metrics.gated.inc(
            sum(_cost_nothing(score, rollout) for score, rollout in zip(scores, rollouts, strict=True))
        )
        return [Verdict(score, rollout.outcome) for score, rollout in zip(scores, rollouts, strict=True)]

    def _score_together(self, rollouts: Sequence[Rollout]) -> list[Score]:
        try:
            return score_all(self._reward, rollouts)
        except ElocutionError as error:
            return [_unscored(error)] * len(rollouts)


def _score_each(reward: StreamingReward, rollouts: Sequence[Rollout]) -> list[Score]:
    """The scores of `rollouts`, the longest begun with first; what fails for one fails for it alone."""
    begun: dict[int, Pending[Score]] = {}
    scores: dict[int, Score] = {}
    for index in sorted(range(len(rollouts)), key=lambda index: -_duration_s(rollouts[index])):
        try:
            begun[index] = start_scoring(reward, rollouts[index])
        except ElocutionError as error:
            scores[index] = _unscored(error)
    for index, pending in begun.items():
        try:
            pending.wait(None)
            scores[index] = pending.result()
        except ElocutionError as error:
            scores[index] = _unscored(error)
    return [scores[index] for index in range(len(rollouts))]


def _duration_s(rollout: Rollout) -> float:
    return rollout.audio.duration_s if rollout.audio is not None else 0.0


def _unscored(error: ElocutionError) -> Score:
    logger.error("%s", error)
    return Score(value=None, error=f"{type(error).__name__}: {error}")


def _cost_nothing(score: Score, rollout: Rollout) -> bool:
    """Whether no recogniser listened: there was no sound, or the reward's gate found no speech in it."""
    return rollout.outcome is not Outcome.SPEECH or bool(score.raw.get("gated"))


def _failed(reason: str) -> Verdict:
    return Verdict(Score(value=None, error=reason), Outcome.SPEECH)


def _rollout(clip: Clip, audio: Audio | None) -> Rollout:
    """The clip as a reward sees it; ids and log-probs stay where the policy is."""
    codes = np.zeros((1, 0), np.int64) if isinstance(clip.sound, Audio) else clip.sound
    completion = Completion(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.float32), FinishReason.STOP, 0)
    # A waveform has no codes to count; whether there is any sound decides.
    outcome = classify_outcome(codes, audio, FinishReason.STOP)
    voice = _voice(clip.voice, clip.voice_text) if clip.voice else None
    asked = Utterance("", clip.text, clip.language, voice, clip.description, emotion=clip.emotion)
    return Rollout(asked, completion, codes, audio, outcome)


def _voice(recording: Audio, text: str) -> Voice:
    """The voice that measures compare with; it has no codes, because nothing speaks in it here."""
    sound = encode_wav(recording, exact=True)
    name = hashlib.blake2b(sound, digest_size=8).hexdigest()
    return Voice(name, text, np.zeros((0, 1), np.int64), sound)


class ScoringQueue:
    """Verdicts of single clips from a `ClipScorer`: queued, batched by length, remembered.

    A clip that is under way already is waited for, not scored again. Only scores are remembered, never failures.
    All methods belong to the thread of one event loop.
    """

    def __init__(self, scorer: ClipScorer, config: RewardServerConfig, metrics: RewardMetrics, version: str) -> None:
        self._metrics, self._version = metrics, version.encode()
        self._max_entries = config.cache_entries
        self._known: OrderedDict[bytes, Verdict] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Future[Verdict]] = {}
        self._batcher = Batcher[Clip, Verdict](
            scorer,
            bucket=_length_bucket,
            max_batch_size=config.max_batch_size,
            max_delay_s=config.max_delay_ms / 1000,
            max_waiting=config.max_waiting,
            concurrency=config.concurrent_batches,
        )
        metrics.waiting.set_function(lambda: self._batcher.num_waiting)

    async def score(self, clips: Sequence[Clip]) -> list[Verdict]:
        """One verdict for each clip, in order.

        Raises: Busy if too many clips wait already.
        """
        pending = [self._start(clip) for clip in clips]
        # Shielded: a caller that goes away must not take the result from others who wait for the same clip.
        verdicts = [one if isinstance(one, Verdict) else await asyncio.shield(one) for one in pending]
        for verdict in verdicts:
            self._metrics.clips.labels(status=verdict.status).inc()
        return verdicts

    def close(self) -> None:
        """Takes no further clip."""
        self._batcher.close()

    def _start(self, clip: Clip) -> Verdict | asyncio.Future[Verdict]:
        key = self._version + clip.key()
        if key in self._known:
            self._known.move_to_end(key)
            self._metrics.remembered.inc()
            return self._known[key]
        if key in self._under_way:
            self._metrics.remembered.inc()
            return self._under_way[key]
        future = self._batcher.submit(clip)
        self._under_way[key] = future
        future.add_done_callback(lambda done: self._finish(key, done))
        return future

    def _finish(self, key: bytes, done: asyncio.Future[Verdict]) -> None:
        del self._under_way[key]
        if done.cancelled() or done.exception() is not None or done.result().score.value is None:
            return
        self._known[key] = done.result()
        while len(self._known) > self._max_entries:
            self._known.popitem(last=False)


def _length_bucket(clip: Clip) -> int:
    """Lengths in one bucket differ by less than a factor of the square root of two."""
    return math.floor(2 * math.log2(max(clip.duration_s, 0.1)))
