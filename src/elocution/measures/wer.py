"""Word error rate of one clip and of many; two functions with two names, because they are two numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import jiwer

__all__ = ["WordErrors", "corpus_word_error_rate", "word_error_rate"]


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Word edits that turn the reference into what was heard."""

    substitutions: int
    deletions: int
    insertions: int
    reference_words: int

    @property
    def rate(self) -> float:
        """Edits per reference word; above 1 where much was inserted."""
        return (self.substitutions + self.deletions + self.insertions) / self.reference_words


def word_error_rate(reference: str, hypothesis: str) -> WordErrors:
    """Errors of one clip; both texts are already normalised. An empty hypothesis deletes every word.

    Raises: ValueError if the reference has no word.
    """
    words = len(reference.split())
    if words == 0:
        raise ValueError("the word error rate of an empty reference is undefined")
    if not hypothesis.split():
        return WordErrors(0, words, 0, words)
    aligned = jiwer.process_words(reference, hypothesis)
    return WordErrors(aligned.substitutions, aligned.deletions, aligned.insertions, words)


def corpus_word_error_rate(errors: Sequence[WordErrors]) -> float:
    """Edits of all clips over words of all references: long clips count more than short ones.

    Raises: ValueError if there is no clip.
    """
    if not errors:
        raise ValueError("the word error rate of no clip is undefined")
    edits = sum(e.substitutions + e.deletions + e.insertions for e in errors)
    return edits / sum(e.reference_words for e in errors)
