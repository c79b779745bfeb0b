"""Which texts a checkpoint with a text tokenizer can be asked to speak."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from transformers import PreTrainedTokenizerBase

from elocution.errors import CheckpointError
from elocution.text.normalize import normalize

__all__ = ["TaughtTexts", "TextCheck"]

_KEY = "taught_texts"
_CONTROL = re.compile(r"<\|[^<>|]*\|>")


@dataclass(frozen=True)
class TaughtTexts:
    """What the texts were like that a small checkpoint learnt from, kept in its `tokenizer_config.json`.

    Other words, and fewer or more of them at once, it was never shown. Units: words.
    """

    words: frozenset[str]
    fewest: int
    most: int

    @classmethod
    def of(cls, sentences: Sequence[str]) -> Self:
        """The words of `sentences`, and the shortest and longest of them."""
        split = [sentence.split() for sentence in sentences]
        lengths = [len(words) for words in split]
        return cls(frozenset(word for words in split for word in words), min(lengths), max(lengths))

    @classmethod
    def read(cls, tokenizer: PreTrainedTokenizerBase) -> Self | None:
        """What the tokenizer's config says; None where it says nothing, as with checkpoints that speak any text.

        Raises: CheckpointError if what it says cannot be understood.
        """
        written: Any = tokenizer.init_kwargs.get(_KEY)
        if written is None:
            return None
        try:
            taught = cls(frozenset(written["words"].split()), int(written["fewest"]), int(written["most"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"tokenizer_config.json: {_KEY} is {written!r:.80}, expected words, fewest, most"
            ) from error
        if not taught.words or not 1 <= taught.fewest <= taught.most:
            raise CheckpointError(f"tokenizer_config.json: {_KEY} is {written!r:.80}, which allows no text")
        return taught

    def write(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Puts it into the config that the tokenizer saves."""
        tokenizer.init_kwargs[_KEY] = {
            "words": " ".join(sorted(self.words)),
            "fewest": self.fewest,
            "most": self.most,
        }


class TextCheck:
    """Says why a text cannot be spoken: control tokens in it, words outside the vocabulary, or never taught."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._taught = TaughtTexts.read(tokenizer)

    def __call__(self, text: str, language: str) -> str | None:
        """The reason in words, or None."""
        if control := self._control(text):
            return f"the text holds control tokens: {control}"
        if self._taught is None and self._tokenizer.unk_token_id is None:
            return None  # a byte-level vocabulary can spell anything
        unknown = [word for word in text.split() if not self._reads(word, language)]
        if unknown:
            return f"words outside the checkpoint's vocabulary: {', '.join(unknown)}"
        if not self._reads(text, language):
            return f"the text {text!r:.80} holds white space or characters outside the checkpoint's vocabulary"
        if self._taught is not None:
            count = len(normalize(text, language).split())
            if not self._taught.fewest <= count <= self._taught.most:
                span = f"{self._taught.fewest} to {self._taught.most} words"
                return f"the checkpoint was taught texts of {span}, this one has {count}"
        return None

    def reading(self, words: str) -> str | None:
        """Why `words` that are not spoken, an instruction for example, cannot stand in a prompt, or None."""
        if control := self._control(words):
            return f"it holds control tokens: {control}"
        unknown = [word for word in words.split() if self._tokenizer.unk_token_id in self._ids(word)]
        if self._tokenizer.unk_token_id is not None and unknown:
            return f"the checkpoint does not know {', '.join(unknown)}"
        return None

    def _control(self, text: str) -> str:
        ids = self._ids(text)
        control = _CONTROL.findall(text) or [self._tokenizer.decode([id]) for id in ids if id in self._control_ids]
        return ", ".join(dict.fromkeys(control))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        added = self._tokenizer.added_tokens_decoder
        control = {id for id, token in added.items() if token.special or _CONTROL.fullmatch(token.content)}
        return frozenset(control - {self._tokenizer.unk_token_id})

    def _reads(self, text: str, language: str) -> bool:
        """Whether the model reads what a recogniser will be asked to hear."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if self._taught is None:
            return self._tokenizer.unk_token_id not in ids
        words = normalize(text, language).split()
        return self._tokenizer.convert_ids_to_tokens(ids) == words and self._taught.words.issuperset(words)
