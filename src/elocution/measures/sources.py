"""Where facts come from: each source is built from the config and measures several clips at once.

What a source needs is imported when it is built, so that a scoring process loads nothing that it does not use.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elocution.audio import read_audio
from elocution.config.rewards import RewardConfig
from elocution.errors import DataError
from elocution.measures import load_description_scorer, load_speaker_encoder
from elocution.measures.facts import SpokenText
from elocution.text.normalize import normalize

__all__ = ["Measure", "build_source"]

Measure = Callable[[Sequence[SpokenText]], Sequence[Mapping[str, float | None]]]
"""Facts of each clip, None where it has nothing to take one from; the other clips do not change them."""


def build_source(name: str, config: RewardConfig, device: str = "cpu") -> Measure:
    """The source `name` of `elocution.measures.facts.FACTS`; loads its model, on `device` if it has a path.

    Raises: ConfigError if a path is missing or wrong; MissingDependency if a package is; CheckpointError if a folder does not
    hold the model.
    """
    match name:
        case "speaker":
            return _speaker(config, device)
        case "clap":
            return _clap(config, device)
        case "voice":
            from elocution.measures.voice_activity import SileroDetector

            detector = SileroDetector()
            return _one_by_one(lambda clip: asdict(detector.detect(clip.audio)))
        case "distillmos":
            from elocution.measures.quality import DistillMos

            distilled = DistillMos()
            return _one_by_one(lambda clip: distilled.rate(clip.audio))
        case "dnsmos":
            from elocution.measures.quality import Dnsmos

            rater = Dnsmos()
            return _one_by_one(lambda clip: rater.rate(clip.audio))
        case "utmos":
            from elocution.measures.quality import Utmos

            learner = Utmos(config.utmos_path, device=device)
            return _one_by_one(lambda clip: learner.rate(clip.audio))
        case "emotion":
            from elocution.measures.emotion import Emotion2vec

            feeling = Emotion2vec(config.emotion_path, device=device)
            return _one_by_one(lambda clip: {"emotion_probability": feeling.probability(clip.audio, clip.emotion)})
        case "prosody":
            from elocution.measures.prosody import measure_prosody

            return _one_by_one(lambda clip: asdict(measure_prosody(clip.audio, normalize(clip.text, clip.language))))
        case "codes":
            from elocution.measures.prosody import repeated_share

            return _one_by_one(lambda clip: {"repeated_share": repeated_share(clip.codes)})
        case "pace":
            return _pace(config)
        case "clip":
            return _one_by_one(lambda clip: {"duration_s": clip.audio.duration_s})
    raise ValueError(f"there is no source {name!r} of facts")


def _one_by_one(measure: Callable[[SpokenText], Mapping[str, float | None]]) -> Measure:
    return lambda clips: [measure(clip) for clip in clips]


def _speaker(config: RewardConfig, device: str) -> Measure:
    encoder = load_speaker_encoder(config.speaker, path=config.speaker_path, device=device)
    references: dict[Path | bytes, NDArray[np.float32]] = {}  # by file, or by digest of what it holds

    def measure(clips: Sequence[SpokenText]) -> list[dict[str, float | None]]:
        from elocution.measures.speakers import cosine_similarity

        recordings = {_key(recording): recording for recording in map(_recording, clips)}
        for key in recordings.keys() - references.keys():
            references[key] = encoder.embed([read_audio(recordings[key])])
        wanted = np.concatenate([references[_key(_recording(clip))] for clip in clips])
        found = cosine_similarity(encoder.embed([clip.audio for clip in clips]), wanted)
        return [{"speaker_similarity": float(value)} for value in found]

    return measure


def _pace(config: RewardConfig) -> Measure:
    """Seconds spoken against seconds expected, by the rate of the config for the language, else by the pace of the voice."""
    from elocution.measures.prosody import count_letters, spoken_s

    paces: dict[tuple[Path | bytes, str], float] = {}

    def pace_of_voice(clip: SpokenText) -> float:
        letters = count_letters(normalize(clip.voice.text, clip.language)) if clip.voice else 0
        if clip.voice is None or clip.voice.audio is None or not letters:
            raise DataError(
                f"reward.expected_rate has no {clip.language!r}, and the prompt has no voice with recording and words"
            )
        key = (_key(clip.voice.audio), clip.voice.text)
        if key not in paces:
            seconds = spoken_s(read_audio(clip.voice.audio))
            if not seconds:
                raise DataError("the recording of the prompt's voice is silent, and has no pace")
            paces[key] = letters / seconds
        return paces[key]

    def measure(clip: SpokenText) -> dict[str, float | None]:
        rate = config.expected_rate.get(clip.language) or pace_of_voice(clip)
        expected = count_letters(normalize(clip.text, clip.language)) / rate
        return {
            "expected_duration_s": expected or None,
            "duration_ratio": spoken_s(clip.audio) / expected if expected else None,
        }

    return _one_by_one(measure)


def _recording(clip: SpokenText) -> Path | bytes:
    if clip.voice is None or clip.voice.audio is None:
        raise DataError("the prompt has no prompt_audio to compare the voice with")
    return clip.voice.audio


def _key(recording: Path | bytes) -> Path | bytes:
    return hashlib.blake2b(recording, digest_size=16).digest() if isinstance(recording, bytes) else recording


def _clap(config: RewardConfig, device: str) -> Measure:
    scorer = load_description_scorer(config.clap, path=config.clap_path, device=device)

    def measure(clips: Sequence[SpokenText]) -> list[dict[str, float | None]]:
        own = [clip.description or config.clap_text for clip in clips]
        texts = [[config.clap_quality_text, *([description] if description else [])] for description in own]
        found = scorer.similarities([clip.audio for clip in clips], texts)
        return [{"clap_quality": quality, "clap_similarity": fit[0] if fit else None} for quality, *fit in found]

    return measure
