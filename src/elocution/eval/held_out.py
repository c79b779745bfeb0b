"""Held-out evaluation: speak sentences kept from training, listen with a recogniser that the reward never uses."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from elocution.audio import write_wav
from elocution.errors import RewardUnavailable
from elocution.eval.bootstrap import bootstrap_word_error_rate
from elocution.eval.guards import measure_monitors
from elocution.eval.likeness import VoiceLikeness
from elocution.measures.compare import Comparison, compare
from elocution.measures.error_rates import corpus_error_rate
from elocution.rollout.speak import Speaker
from elocution.text.normalize import NORMALIZER_VERSION
from elocution.types import Audio, Outcome, Rollout, Utterance

__all__ = ["Evaluation", "HeldOutEvaluator", "Progress"]

# Evaluation seeds have a first number that no training step has, so the two never share a draw.
_EVALUATION_STREAM = 2**31


Progress = Callable[[int, int], None]
"""Called as (clips judged, clips in all)."""


@dataclass(frozen=True)
class Evaluation:
    """One measurement of a policy. `row` is the line for `evaluations.jsonl`; `wer` is a fraction.

    `rollouts` are what was spoken, in the order of the sentences.
    """

    wer: float
    wer_low: float
    wer_high: float
    row: dict[str, Any]
    rollouts: tuple[Rollout, ...]


class HeldOutEvaluator:
    """Measures WER on fixed sentences with fixed seeds; `transcribe` is the judge: clips with their languages in, one transcript
    or error a clip out.
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        speaker: Speaker,
        transcribe: Callable[[Sequence[tuple[Audio, str]], Progress | None], list[str | Exception]],
        *,
        judge: str,
        temperature: float,
        seed: int,
        bootstrap_samples: int,
        num_probes: int,
        run: Path,
        has_monitors: bool = False,
        likeness: VoiceLikeness | None = None,
    ) -> None:
        """`has_monitors` measures what guards look at too, `likeness` among it where there is one."""
        self._utterances, self._speaker, self._transcribe = utterances, speaker, transcribe
        self._judge, self._temperature, self._seed = judge, temperature, seed
        self._bootstrap_samples, self._num_probes, self._run = bootstrap_samples, num_probes, run
        self._has_monitors, self._likeness = has_monitors, likeness

    def evaluate(self, name: str, *, step: int, policy_version: int, on_progress: Progress | None = None) -> Evaluation:
        """Speaks and judges every sentence; writes the probes' audio under `audio/<name>/`.

        A completion without speech counts as all words deleted. A clip that the judge failed on is left out and
        counted.

        Raises: RewardUnavailable if the judge failed on every clip.
        """
        started = time.perf_counter()
        seeds = [[(_EVALUATION_STREAM, self._seed, index)] for index in range(len(self._utterances))]
        if on_progress:
            on_progress(0, len(seeds))  # it is drawn and decoded before the first clip can be judged
        groups = self._speaker.speak(self._utterances, seeds)
        rollouts = [group.rollouts[0] for group in groups]
        heard = self._transcribe_speech(rollouts, on_progress)
        compared = {
            index: compare(r.utterance.text, transcript, r.utterance.language)
            for index, (r, transcript) in enumerate(zip(rollouts, heard, strict=True))
            if transcript is not None
        }
        errors = {index: comparison.counts for index, comparison in compared.items()}
        if not errors:
            raise RewardUnavailable(f"the judge {self._judge} failed on all {len(rollouts)} held-out clips")
        low, high = bootstrap_word_error_rate(list(errors.values()), samples=self._bootstrap_samples, seed=self._seed)
        rates = [error.rate for error in errors.values()]
        wer = corpus_error_rate(list(errors.values()))
        row: dict[str, Any] = {
            "name": name,
            "step": step,
            "policy_version": policy_version,
            "judge": self._judge,
            "temperature": self._temperature,
            "num_sentences": len(rollouts),
            "num_scored": len(errors),
            "wer": wer,
            "wer_low": low,
            "wer_high": high,
            "substitutions": sum(error.substitutions for error in errors.values()),
            "deletions": sum(error.deletions for error in errors.values()),
            "insertions": sum(error.insertions for error in errors.values()),
            "median_wer": median(rates),
            "share_above_half": sum(rate > 0.5 for rate in rates) / len(rates),
            "runaway_share": sum(r.outcome is Outcome.RUNAWAY for r in rollouts) / len(rollouts),
            "mean_duration_s": sum(r.audio.duration_s for r in rollouts if r.audio) / len(rollouts),
            "normalizer": NORMALIZER_VERSION,
            "duration_s": time.perf_counter() - started,
            # In the order of the sentences, which are the same in all evaluations of a run: what pairs them.
            "sentences": [_edits_and_units(compared.get(index)) for index in range(len(rollouts))],
            "probes": [
                self._probe(name, index, rollouts[index], compared.get(index))
                for index in range(min(self._num_probes, len(rollouts)))
            ],
        }
        if self._has_monitors:
            row["monitors"] = measure_monitors(rollouts)
            if self._likeness is not None and (value := self._likeness(rollouts)) is not None:
                row["monitors"]["speaker_similarity"] = value
        return Evaluation(wer, low, high, row, tuple(rollouts))

    def _transcribe_speech(self, rollouts: Sequence[Rollout], on_progress: Progress | None) -> list[str | None]:
        """What the judge heard: empty where there is nothing to hear, None where it failed."""
        audible = {
            index: (rollout.audio, rollout.utterance.language)
            for index, rollout in enumerate(rollouts)
            if rollout.audio is not None and rollout.outcome is not Outcome.SILENT
        }
        transcripts = dict(zip(audible, self._transcribe(list(audible.values()), on_progress), strict=True))
        return [_text_or_none(transcripts.get(index, "")) for index in range(len(rollouts))]

    def _probe(self, name: str, index: int, rollout: Rollout, compared: Comparison | None) -> dict[str, Any]:
        audio = None
        if rollout.audio is not None:
            audio = f"audio/{name}/{index + 1:04d}-{rollout.utterance.id}.wav"
            write_wav(self._run / audio, rollout.audio)
        return {
            "utterance_id": rollout.utterance.id,
            "text": rollout.utterance.text,
            "language": rollout.utterance.language,
            "transcript": None if compared is None else " ".join(compared.hypothesis),
            "wer": None if compared is None else compared.counts.rate,
            "decisions": [] if compared is None else compared.row()["decisions"],
            "audio": audio,
        }


def _edits_and_units(compared: Comparison | None) -> tuple[int, int] | None:
    """None where the judge failed."""
    return None if compared is None else (compared.counts.edits, compared.counts.reference_units)


def _text_or_none(heard: str | Exception) -> str | None:
    return None if isinstance(heard, Exception) else heard
