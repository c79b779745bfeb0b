"""What is said of many clips: every metric a ratio of two sums, so that one bootstrap serves all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elocution.eval.clips import ClipResult
from elocution.measures.facts import FACTS, Fact
from elocution.types import Outcome

__all__ = ["METRICS", "Metric", "Table", "tabulate"]

_UNITS = "words; characters in zh, ja and ko"


@dataclass(frozen=True, slots=True)
class Metric:
    """A ratio of sums over clips. `parts` gives a clip's share of both, None where the clip has none.

    `higher_is_better` is None where neither way is.
    """

    unit: str
    higher_is_better: bool | None
    parts: Callable[[ClipResult], tuple[float, float] | None]


def _strict(clip: ClipResult) -> tuple[float, float] | None:
    return None if clip.seed_tts is None else (clip.seed_tts.edits, clip.seed_tts.reference_units)


def _spoken(clip: ClipResult) -> tuple[float, float] | None:
    return None if clip.spoken is None else (clip.spoken.edits, clip.spoken.reference_units)


def _mean(
    share: Callable[[ClipResult], tuple[float, float] | None],
) -> Callable[[ClipResult], tuple[float, float] | None]:
    """Of ratios, each clip counting the same."""

    def parts(clip: ClipResult) -> tuple[float, float] | None:
        found = share(clip)
        return None if found is None else (found[0] / found[1], 1.0)

    return parts


def _above_half(clip: ClipResult) -> tuple[float, float] | None:
    found = _mean(_spoken)(clip)
    return None if found is None else (float(found[0] > 0.5), 1.0)


def _hit_limit(clip: ClipResult) -> tuple[float, float] | None:
    return None if clip.hit_limit is None else (float(clip.hit_limit), 1.0)


def _no_speech(clip: ClipResult) -> tuple[float, float] | None:
    return None if clip.outcome is None else (float(clip.outcome in (Outcome.EMPTY, Outcome.SILENT)), 1.0)


def _fact(name: str) -> Callable[[ClipResult], tuple[float, float] | None]:
    def parts(clip: ClipResult) -> tuple[float, float] | None:
        return (clip.facts[name], 1.0) if name in clip.facts else None

    return parts


# Error rates come from the protocols alone, and are no facts here.
_ERROR_RATES = {"wer", "cer", "pinyin_error_rate", "toned_pinyin_error_rate", "phoneme_error_rate"}
_FACTS = {
    "quality": Fact("predicted mean opinion score, 1 to 5", True, "quality"),
    **{name: fact for name, fact in FACTS.items() if name not in _ERROR_RATES},
}

METRICS: Mapping[str, Metric] = {
    "wer": Metric(f"edits per unit over all clips, numbers read ({_UNITS})", False, _spoken),
    "mean_wer": Metric(f"mean of the clips' rates, numbers read ({_UNITS})", False, _mean(_spoken)),
    "seed_tts_wer": Metric("mean of the clips' rates by the rules of seed-tts-eval", False, _mean(_strict)),
    "seed_tts_corpus_wer": Metric("edits per unit over all clips by the rules of seed-tts-eval", False, _strict),
    "above_half_share": Metric("share of clips with a rate above 50 %, numbers read", False, _above_half),
    "hit_limit_share": Metric("share of completions that used up their budget", False, _hit_limit),
    "no_speech_share": Metric("share of completions without sound", False, _no_speech),
    **{name: Metric(fact.unit, fact.higher_is_better, _fact(name)) for name, fact in _FACTS.items()},
}


@dataclass(frozen=True)
class Table:
    """A metric's sums by utterance and seed; both parts are 0 where a clip has none. Shapes: [U, K] each."""

    numerators: NDArray[np.float64]
    denominators: NDArray[np.float64]

    @property
    def value(self) -> float | None:
        """The ratio over all clips; None if no clip has the metric."""
        total = float(self.denominators.sum())
        return float(self.numerators.sum()) / total if total else None


def tabulate(clips: Sequence[ClipResult], metric: Metric, ids: Sequence[str], seeds: Sequence[int]) -> Table:
    """The sums of `metric` for `ids` and `seeds`, in their order; a clip that is not there has none."""
    rows = {name: index for index, name in enumerate(ids)}
    columns = {seed: index for index, seed in enumerate(seeds)}
    sums = np.zeros((2, len(rows), len(columns)))
    for clip in clips:
        parts = metric.parts(clip)
        if parts is not None and clip.id in rows and clip.seed in columns:
            sums[:, rows[clip.id], columns[clip.seed]] = parts
    return Table(sums[0], sums[1])
