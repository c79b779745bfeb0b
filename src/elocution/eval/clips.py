"""What an evaluation knows of one clip: what was wanted, what was heard, and the facts; a line of `clips.jsonl`."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from elocution.errors import DataError, Unverbalizable
from elocution.measures.compare import compare, compare_seed_tts
from elocution.measures.error_rates import EditCounts
from elocution.text.normalize import simplify
from elocution.text.seed_tts import SEED_TTS_LANGUAGES

__all__ = ["ClipResult", "judge_transcript"]


@dataclass(frozen=True)
class ClipResult:
    """One completion or recording of an item under one sampling seed.

    `transcript` is None if the recogniser failed, with its reason in `error`; empty if nothing was heard. `seed_tts` and
    `spoken` are the edits by the two protocols, None where the protocol has no rule for the text. `hit_limit` and
    `outcome` are unknown (None) of recordings. `facts` are those of `elocution.measures.facts`, `failures` why others are
    absent; `audio` is relative to the evaluation's folder.
    """

    id: str
    seed: int
    text: str
    language: str
    transcript: str | None
    error: str | None = None
    seed_tts: EditCounts | None = None
    spoken: EditCounts | None = None
    outcome: str | None = None
    hit_limit: bool | None = None
    num_codes: int | None = None
    audio: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.seed

    @property
    def is_scored(self) -> bool:
        return self.transcript is not None

    def row(self) -> dict[str, Any]:
        """The clip as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `row`.

        Raises: DataError if it is the row of something else.
        """
        try:
            counts = {name: EditCounts(**row[name]) if row[name] else None for name in ("seed_tts", "spoken")}
            return cls(**{**row, **counts})
        except (TypeError, KeyError) as error:
            raise DataError(f"a line of clips.jsonl is of another kind: {error}") from error


def judge_transcript(
    text: str, transcript: str, language: str, *, to_simplified: Callable[[str], str] = simplify
) -> tuple[EditCounts | None, EditCounts | None]:
    """Edits by the rules of seed-tts-eval, and as the texts are spoken; None where the rules say nothing about `text`.

    `to_simplified` is the public scorer's step for Chinese transcripts; the spoken comparison has its own.
    """
    strict: EditCounts | None = None
    spoken: EditCounts | None = None
    try:
        if language in SEED_TTS_LANGUAGES:
            strict = compare_seed_tts(text, transcript, language, to_simplified=to_simplified).counts
    except Unverbalizable:
        strict = None
    try:
        spoken = compare(text, transcript, language).counts
    except Unverbalizable:
        spoken = None
    return strict, spoken
