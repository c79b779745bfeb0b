"""What was heard against what was wanted: one comparison for rewards and evaluation, and the strict public one beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elocution.errors import Unverbalizable
from elocution.measures.error_rates import EditCounts, count_edits
from elocution.text.language import holds_script_of, route_language
from elocution.text.lattice import Decision, nearest_readings
from elocution.text.markup import strip_markup
from elocution.text.normalize import (
    NORMALIZER_VERSION,
    compares_characters,
    pair_readings,
    simplify,
    why_unverbalizable,
)
from elocution.text.pinyin import pinyin_slots
from elocution.text.seed_tts import SEED_TTS_VERSION, seed_tts_units

__all__ = ["Comparison", "Unit", "compare", "compare_by", "compare_phonemes", "compare_seed_tts"]

_METRICS = {"wer": "native", "cer": "character", "pinyin": "pinyin"}


class Unit(StrEnum):
    """What edits are counted in.

    `NATIVE` is a word; in Chinese, Japanese and Korean a character, with words of Latin script whole. `CHARACTER` is
    every letter, spaces left out. Pinyin has syllables for Chinese characters and words for the rest.
    """

    NATIVE = "native"
    CHARACTER = "character"
    PINYIN = "pinyin"
    TONED_PINYIN = "toned_pinyin"
    PHONEME = "phoneme"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Edits between two texts, the units that were aligned, and the rules by which differing spellings were equal.

    `language` is the one whose rules were used: it differs from `requested_language` where the text's script says so.
    """

    counts: EditCounts
    unit: Unit
    language: str
    requested_language: str
    normalizer: str
    reference: tuple[str, ...]
    hypothesis: tuple[str, ...]
    decisions: tuple[Decision, ...] = ()

    def row(self) -> dict[str, Any]:
        """The comparison as values that JSON can hold, for result files."""
        return {
            "error_rate": self.counts.rate,
            "substitutions": self.counts.substitutions,
            "deletions": self.counts.deletions,
            "insertions": self.counts.insertions,
            "reference_units": self.counts.reference_units,
            "empty_hypothesis": self.counts.is_empty_hypothesis,
            "unit": str(self.unit),
            "language": self.language,
            "requested_language": self.requested_language,
            "normalizer": self.normalizer,
            "reference": " ".join(self.reference),
            "hypothesis": " ".join(self.hypothesis),
            "decisions": [f"{d.side}: {d.written} → {d.read or '(silent)'} ({d.rule})" for d in self.decisions],
        }


def compare(
    reference: str, hypothesis: str, language: str, *, unit: Unit = Unit.NATIVE, polyphones: bool = False
) -> Comparison:
    """Compares texts as they are spoken: of all readings of both, the ones with the fewest edits.

    A reference in another script than `language` is compared by the rules of its own language; pinyin then gives way to
    native units. `polyphones` (pinyin only) accepts every listed reading of a character.

    Raises: Unverbalizable if the reference cannot be spoken.
    """
    routed = _spoken_language(reference, hypothesis, language)
    pairing = pair_readings(reference, hypothesis, routed)
    wanted, heard, decisions = pairing.reference, pairing.hypothesis, pairing.decisions
    if unit is Unit.PHONEME:
        raise ValueError("phonemes need a function that gives them: use compare_phonemes")
    if unit is Unit.CHARACTER:
        wanted, heard = tuple("".join(wanted)), tuple("".join(heard))
    elif unit is not Unit.NATIVE and routed != "zh":
        unit = Unit.NATIVE
    elif unit is not Unit.NATIVE:
        tones = unit is Unit.TONED_PINYIN
        syllables = nearest_readings(
            *(pinyin_slots(words, tones=tones, polyphones=polyphones) for words in (wanted, heard))
        )
        wanted, heard, decisions = syllables.reference, syllables.hypothesis, (*decisions, *syllables.decisions)
    counts = count_edits(wanted, heard)
    return Comparison(counts, unit, routed, language, NORMALIZER_VERSION, wanted, heard, decisions)


def compare_phonemes(
    reference: str, hypothesis: str, language: str, phonemes: Callable[[str], Sequence[str]]
) -> Comparison:
    """Compares the phonemes of the readings that `compare` aligns; `phonemes` takes normalised text.

    Raises: Unverbalizable if the reference cannot be spoken.
    """
    words = compare(reference, hypothesis, language)
    wanted, heard = (tuple(phonemes(" ".join(side))) if side else () for side in (words.reference, words.hypothesis))
    counts = count_edits(wanted, heard)
    return Comparison(
        counts, Unit.PHONEME, words.language, language, NORMALIZER_VERSION, wanted, heard, words.decisions
    )


def compare_seed_tts(
    reference: str, hypothesis: str, language: str, *, to_simplified: Callable[[str], str] = simplify
) -> Comparison:
    """The strict comparison of seed-tts-eval; `mean_error_rate` of many is the published number, as a fraction.

    `to_simplified` brings Chinese transcripts to simplified script, as `seed_tts_units` says.

    Raises: Unverbalizable if the reference holds nothing but punctuation; DataError if `language` is not en or zh.
    """
    wanted = seed_tts_units(reference, language, is_transcript=False)
    heard = seed_tts_units(hypothesis, language, is_transcript=True, to_simplified=to_simplified)
    if not wanted:
        raise Unverbalizable(f"unverbalizable: {reference!r:.80} holds only punctuation")
    unit = Unit.CHARACTER if language == "zh" else Unit.NATIVE
    return Comparison(count_edits(wanted, heard), unit, language, language, SEED_TTS_VERSION, wanted, heard)


def compare_by(
    metric: str, normalizer: str, reference: str, hypothesis: str, language: str, *, polyphones: bool = False
) -> Comparison:
    """The comparison that a reward's `metric` and `normalizer` name.

    Raises: as the comparison itself.
    """
    if normalizer == "seed_tts":
        return compare_seed_tts(reference, hypothesis, language)
    return compare(reference, hypothesis, language, unit=Unit(_METRICS[metric]), polyphones=polyphones)


def _spoken_language(reference: str, hypothesis: str, language: str) -> str:
    """The language of the reference; `language` after all where the reference has none of its characters ("iPhone 15 Pro"),
    but was heard in them ("iPhone十五 Pro").
    """
    if reason := why_unverbalizable(reference, language):
        raise Unverbalizable(reason)
    routed = route_language(strip_markup(reference), language)
    if routed != language and compares_characters(language) and not compares_characters(routed):
        heard = strip_markup(hypothesis)
        return language if holds_script_of(language, heard) else routed
    return routed
