"""Which texts of an evaluation set a policy was trained on."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from elocution.eval.sets import EvalSet
from elocution.text.normalize import normalize

__all__ = ["Overlap", "leave_out_trained", "spoken_form"]

_SHOWN = 5


@dataclass(frozen=True)
class Overlap:
    """How many items of a set have a text of the training prompts, as it is spoken, and which."""

    num_training_texts: int
    ids: tuple[str, ...]
    are_left_out: bool

    def row(self) -> dict[str, Any]:
        """The overlap as values that JSON can hold."""
        return {
            "training_texts": self.num_training_texts,
            "overlapping": len(self.ids),
            "left_out": self.are_left_out,
            "examples": list(self.ids[:_SHOWN]),
        }


def spoken_form(text: str, language: str) -> str:
    """Equal for texts that differ in case, punctuation, markup or the spelling of numbers alone."""
    return normalize(text, language) or text.strip().lower()


def leave_out_trained(
    eval_set: EvalSet, trained: Iterable[tuple[str, str]], *, keep: bool = False
) -> tuple[EvalSet, Overlap]:
    """The set without the items whose text is one of `trained` (text, language), or with them if `keep`; and the overlap."""
    known = {spoken_form(text, language) for text, language in trained}
    ids = tuple(item.id for item in eval_set.items if spoken_form(item.text, item.language) in known)
    if ids and not keep:
        rest = tuple(item for item in eval_set.items if item.id not in set(ids))
        eval_set = replace(eval_set, items=rest)
    return eval_set, Overlap(len(known), ids, bool(ids) and not keep)
