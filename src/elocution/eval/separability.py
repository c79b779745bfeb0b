"""Does a reward tell good speech from bad? The same clips, spoiled in known ways, and how often the better one wins."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.signal import resample_poly
from scipy.stats import spearmanr

from elocution.errors import DataError
from elocution.measures.error_rates import EditCounts, corpus_error_rate, edits_from_row
from elocution.rewards import Reward, score_all
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Score, Utterance

__all__ = ["CONTROLS", "ScoredClip", "area_under_curve", "score_clips", "score_labelled", "summarize"]

_NOISE_DB = -5.0


def _noisy(audio: Audio) -> Audio:
    """White noise 5 dB above the clip's own level."""
    level = float(np.sqrt(np.square(audio.samples, dtype=np.float64).mean())) * 10 ** (-_NOISE_DB / 20)
    noise = np.random.default_rng(0).normal(0.0, level, len(audio.samples))
    return Audio((audio.samples + noise).astype(np.float32), audio.sample_rate)


def _silent(audio: Audio) -> Audio:
    return Audio(np.zeros_like(audio.samples), audio.sample_rate)


def _reversed(audio: Audio) -> Audio:
    return Audio(np.ascontiguousarray(audio.samples[::-1]), audio.sample_rate)


def _cut(audio: Audio) -> Audio:
    """The first half."""
    return Audio(audio.samples[: max(1, len(audio.samples) // 2)], audio.sample_rate)


def _higher(audio: Audio) -> Audio:
    """The same words a quarter faster and higher, as if another voice said them."""
    return Audio(np.asarray(resample_poly(audio.samples, 4, 5), dtype=np.float32), audio.sample_rate)


CONTROLS: Mapping[str, Callable[[Audio], Audio] | None] = {
    "clean": lambda audio: audio,
    "noisy": _noisy,
    "silent": _silent,
    "reversed": _reversed,
    "half": _cut,
    "higher voice": _higher,
    "wrong words": None,  # the next clip's sound
    "wrong voice": None,  # the sound as it is, asked for in the voice of the next clip; only where clips name voices
}


@dataclass(frozen=True, slots=True)
class ScoredClip:
    """One clip under one control, and what the reward gave it."""

    id: str
    control: str
    text: str
    duration_s: float
    score: Score


def score_clips(
    reward: Reward, clips: Sequence[tuple[Utterance, Audio]], *, controls: Sequence[str] = tuple(CONTROLS)
) -> tuple[list[ScoredClip], float]:
    """The scores of `clips`, each under each control, and the seconds that listening to all of them once took.

    These are the shorter of two: the sounds under wrong words are the clean ones, and the first scoring also starts processes.

    Silence is handed to the reward as speech: what it does with it is what is asked.

    Raises: RewardError if the reward breaks its contract.
    """
    scored: list[ScoredClip] = []
    listening_s = math.inf
    for control in controls:
        if control == "wrong voice" and not any(utterance.voice for utterance, _ in clips):
            continue
        spoiled = [_spoiled(clip, clips[(index + 1) % len(clips)], control) for index, clip in enumerate(clips)]
        sounds = [sound for _, sound in spoiled]
        rollouts = [_rollout(utterance, sound) for utterance, sound in spoiled]
        started = time.perf_counter()
        scores = score_all(reward, rollouts)
        if control in ("clean", "wrong words"):
            listening_s = min(listening_s, time.perf_counter() - started)
        scored += [
            ScoredClip(utterance.id, control, utterance.text, sound.duration_s, score)
            for (utterance, _), sound, score in zip(clips, sounds, scores, strict=True)
        ]
    return scored, listening_s


def score_labelled(
    reward: Reward, clips: Sequence[tuple[Utterance, Audio]], labels: Sequence[str]
) -> tuple[list[ScoredClip], float]:
    """The scores of recordings of which `labels` say what is wrong, empty for a clean one, and the seconds that the clean took.

    Raises: DataError if none is clean; RewardError if the reward breaks its contract.
    """
    if "" not in labels:
        raise DataError("every clip has a control; leave it out where nothing is wrong with the clip")
    scored: list[ScoredClip] = []
    listening_s = 0.0
    for control in (*sorted({*labels} - {""}), ""):  # the clean ones last: by then every process has started
        own = [clip for clip, label in zip(clips, labels, strict=True) if label == control]
        rollouts = [_rollout(utterance, sound) for utterance, sound in own]
        started = time.perf_counter()
        scores = score_all(reward, rollouts)
        listening_s = time.perf_counter() - started
        found = [
            ScoredClip(utterance.id, control or "clean", utterance.text, sound.duration_s, score)
            for (utterance, sound), score in zip(own, scores, strict=True)
        ]
        scored = scored + found if control else found + scored
    return scored, listening_s


def _spoiled(
    clip: tuple[Utterance, Audio], following: tuple[Utterance, Audio], control: str
) -> tuple[Utterance, Audio]:
    utterance, audio = clip
    if control == "wrong voice":
        return replace(utterance, voice=following[0].voice), audio
    spoil = CONTROLS[control]
    return utterance, following[1] if spoil is None else spoil(audio)


def _rollout(utterance: Utterance, audio: Audio) -> Rollout:
    completion = Completion(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.float32), FinishReason.STOP, 0)
    return Rollout(utterance, completion, np.zeros((0, 1), np.int64), audio, Outcome.SPEECH)


def area_under_curve(better: Sequence[float], worse: Sequence[float]) -> float:
    """The chance that one of `better` is above one of `worse`, ties counting half: 1 separates, 0.5 does not.

    Raises: ValueError if one of the two is empty.
    """
    if not better or not worse:
        raise ValueError("nothing to compare")
    difference = np.asarray(better)[:, None] - np.asarray(worse)[None, :]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def summarize(scored: Sequence[ScoredClip], listening_s: float) -> dict[str, Any]:
    """Separability and corpus error rates by control, spread and saturation of the clean clips, correlation of the parts, and cost.

    `saturated_share` counts clean clips within 0.001 of the best value given; parts that do not vary have no correlation.
    """
    clean = [clip for clip in scored if clip.control == "clean" and clip.score.value is not None]
    values = [float(clip.score.value) for clip in clean if clip.score.value is not None]
    controls: dict[str, dict[str, Any]] = {}
    for control in dict.fromkeys(clip.control for clip in scored):
        all_of = [clip for clip in scored if clip.control == control]
        own = [clip.score.value for clip in all_of if clip.score.value is not None]
        controls[control] = {
            "clips": len(all_of),
            "unscored": len(all_of) - len(own),
            "mean": float(np.mean(own)) if own else None,
            "std": float(np.std(own)) if own else None,
            "error_rates": _corpus_error_rates(all_of),
            "auc_of_clean": area_under_curve(values, own) if own and values and control != "clean" else None,
        }
    seconds = sum(clip.duration_s for clip in scored if clip.control == "clean")
    return {
        "controls": controls,
        "saturated_share": float((np.asarray(values) > max(values) - 1e-3).mean()) if values else None,
        "correlations": _correlations(clean),
        "seconds_per_clip": listening_s / len(clean) if clean else None,
        "times_real_time": seconds / listening_s if listening_s > 0 else None,
    }


def _corpus_error_rates(clips: Sequence[ScoredClip]) -> dict[str, float]:
    """Corpus error rates of what was heard, by the measures whose edits the scores keep."""
    counts: dict[str, list[EditCounts]] = {}
    for clip in clips:
        for name, edits in edits_from_row(clip.score.raw).items():
            counts.setdefault(name, []).append(edits)
    return {name: corpus_error_rate(own) for name, own in counts.items()}


def _correlations(clean: Sequence[ScoredClip]) -> dict[str, float]:
    """Spearman's rank correlation of each pair of parts, over the clips that have both."""
    names = list(dict.fromkeys(name for clip in clean for name in clip.score.parts))
    found: dict[str, float] = {}
    for one, other in combinations(names, 2):
        pairs = [
            (parts[one], parts[other]) for parts in (clip.score.parts for clip in clean) if {one, other} <= parts.keys()
        ]
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        if len(set(ours)) > 1 and len(set(theirs)) > 1:
            found[f"{one} ~ {other}"] = float(spearmanr(ours, theirs).statistic)
    return found
