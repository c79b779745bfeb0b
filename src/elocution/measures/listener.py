"""One listener that measures the facts that are asked for, and loads no more models than they need.

What cannot be measured is absent with its reason; one measure that fails leaves the others standing.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from elocution.config.rewards import RewardConfig
from elocution.errors import ConfigError, Unverbalizable
from elocution.measures.compare import Unit, compare
from elocution.measures.error_rates import EditCounts
from elocution.measures.facts import FACTS, Findings, SpokenText
from elocution.measures.hallucination import is_hallucination
from elocution.measures.hearing import Hear, HeardClip, build_hearing, describe, each, hear_speech
from elocution.measures.sources import Measure, build_source

__all__ = ["Listener", "build_listener"]

_UNITS = {
    "wer": Unit.NATIVE,
    "cer": Unit.CHARACTER,
    "pinyin_error_rate": Unit.PINYIN,
    "toned_pinyin_error_rate": Unit.TONED_PINYIN,
}


def build_listener(wanted: Collection[str], config: RewardConfig, device: str = "cpu") -> "Listener":
    """A listener for the facts `wanted`, and for speech if the config requires it; models that have a path are on `device`.

    Raises: ConfigError if there is no such fact, or a path is missing; MissingDependency if a package is absent.
    """
    if unknown := sorted(set(wanted) - FACTS.keys()):
        raise ConfigError(f"there is no measure {', '.join(unknown)}; known are {', '.join(FACTS)}")
    by = {FACTS[name].by for name in wanted} | ({"voice"} if config.require_speech else set())
    hear = build_hearing(config, words="recogniser" in by, likelihood="phonemes" in by, device=device)
    rest = sorted(by - {"recogniser", "phonemes"})
    measures = {name: build_source(name, config, device) for name in rest}
    return Listener(tuple(wanted), hear, measures, polyphones=config.polyphones)


class Listener:
    """Measures clips, together or one by one."""

    def __init__(
        self, wanted: tuple[str, ...], hear: Hear, measures: Mapping[str, Measure], *, polyphones: bool = False
    ) -> None:
        self._wanted, self._hear, self._measures, self._polyphones = wanted, hear, measures, polyphones

    def __call__(self, clip: SpokenText) -> Findings:
        """The findings of one clip."""
        return self.together([clip])[0]

    def together(self, clips: Sequence[SpokenText]) -> list[Findings]:
        """The findings of each clip; a clip on which a measure fails keeps none from the others."""
        measured: list[dict[str, float | None]] = [{} for _ in clips]
        failed: list[dict[str, str]] = [{} for _ in clips]
        for name, measure in self._measures.items():
            for row, one in enumerate(each(measure, clips)):
                if isinstance(one, Exception):
                    failed[row][name] = describe(one)
                else:
                    measured[row] |= one
        heard = hear_speech(self._hear, clips, [facts.get("speech_share") for facts in measured])
        return [
            self._findings(clip, facts, {**failures, **one.failures}, one)
            for clip, facts, failures, one in zip(clips, measured, failed, heard, strict=True)
        ]

    def _findings(
        self, clip: SpokenText, facts: dict[str, float | None], failures: dict[str, str], heard: HeardClip
    ) -> Findings:
        transcript, likelihood = heard.transcript, heard.likelihood
        edits: dict[str, EditCounts] = {}
        if transcript is not None:
            transcript = transcript.strip()
            facts["hallucination"] = float(is_hallucination(transcript, clip.text, clip.language))
        if likelihood is not None:
            facts["nll"] = likelihood.nll if np.isfinite(likelihood.nll) else None
            facts["no_speech_probability"] = likelihood.no_speech
            if heard.is_gated:
                facts["phoneme_error_rate"] = 1.0  # all deleted, however many there are
            elif likelihood.phonemes is not None:
                edits["phoneme_error_rate"] = likelihood.phonemes
            failures.setdefault("phonemes", _why_no_likelihood(heard))
            # A word recogniser finds words in noise; where no phoneme was heard, nothing was said.
            if transcript is not None and not likelihood.is_speech:
                transcript = ""
        if transcript is not None and "recogniser" not in failures:
            try:
                edits |= self._compared(clip, transcript)
            except Unverbalizable as error:
                failures["recogniser"] = describe(error)
        facts |= {name: counts.rate for name, counts in edits.items()}
        found = {name: value for name in self._wanted if (value := facts.get(name)) is not None}
        return Findings(
            found,
            {
                name: failures.get(FACTS[name].by, "the clip, or its prompt, has nothing to take it from")
                for name in self._wanted
                if name not in found
            },
            transcript,
            edits={name: counts for name, counts in edits.items() if name in found},
            is_gated=heard.is_gated,
        )

    def _compared(self, clip: SpokenText, transcript: str) -> dict[str, EditCounts]:
        return {
            name: compare(clip.text, transcript, clip.language, unit=unit, polyphones=self._polyphones).counts
            for name, unit in _UNITS.items()
            if name in self._wanted
        }


def _why_no_likelihood(heard: HeardClip) -> str:
    """Why a likelihood lacks one of its facts, where it does."""
    if heard.is_gated:
        return "there is no speech in the clip, so nothing listened to it"
    if heard.likelihood is not None and not np.isfinite(heard.likelihood.nll):
        return "the clip is too short, or too long, to hold the text"
    return (
        "the recogniser of reward.nll does not say so; hama counts phonemes, whisper gives a probability of no speech"
    )
