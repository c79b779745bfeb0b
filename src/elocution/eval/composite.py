"""One number by which checkpoints are ordered, and the choice among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

__all__ = ["Candidate", "choose_best", "composite"]


def composite(metrics: Mapping[str, Mapping[str, Any]]) -> float:
    """Geometric mean of utilities in [0, 1], higher is better, of the metrics that were measured.

    Intelligibility is 1 - WER (corpus, numbers read), not below 0; endings the share of completions that ended by
    themselves; likeness the cosine, not below 0; quality (score - 1) / 4. A policy without any one of them has none.

    Raises: KeyError if no word error rate was measured.
    """
    utilities = [1.0 - metrics["wer"]["value"]]
    if "hit_limit_share" in metrics:
        utilities.append(1.0 - metrics["hit_limit_share"]["value"])
    if "speaker_similarity" in metrics:
        utilities.append(metrics["speaker_similarity"]["value"])
    quality = next((metrics[name]["value"] for name in ("quality", "distillmos", "dnsmos") if name in metrics), None)
    if quality is not None:
        utilities.append((quality - 1.0) / 4.0)
    return prod(min(1.0, max(0.0, utility)) for utility in utilities) ** (1.0 / len(utilities))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint's composite, and which guarded metrics are worse than the base's."""

    step: int
    composite: float
    fell: tuple[str, ...]


def choose_best(candidates: Sequence[Candidate]) -> Candidate | None:
    """The highest composite among those of which no guarded metric fell, the earliest of equals; None if all fell."""
    whole = [candidate for candidate in candidates if not candidate.fell]
    return max(whole, key=lambda candidate: (candidate.composite, -candidate.step), default=None)
