"""Edits that turn a reference into what was heard, and their rates: of one clip and of many, under different names."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from rapidfuzz.distance import Levenshtein

from elocution.text.lattice import nearest_readings
from elocution.text.pinyin import pinyin_slots

__all__ = [
    "EditCounts",
    "character_error_rate",
    "corpus_error_rate",
    "count_edits",
    "edits_from_row",
    "edits_to_row",
    "mean_error_rate",
    "phoneme_error_rate",
    "pinyin_error_rate",
    "word_error_rate",
]


@dataclass(frozen=True, slots=True)
class EditCounts:
    """Edits between a reference and a hypothesis, counted in words, characters, syllables or phonemes."""

    substitutions: int
    deletions: int
    insertions: int
    reference_units: int

    @property
    def edits(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Edits per unit of the reference; above 1 where much was inserted."""
        return self.edits / self.reference_units

    @property
    def bounded_rate(self) -> float:
        """Edits per aligned pair, in [0, 1]: insertions lengthen the alignment. Equal to `rate` where there are none.

        Source: "match error rate", Morris, Maier and Green, Interspeech 2004.
        """
        return self.edits / (self.reference_units + self.insertions)

    @property
    def is_empty_hypothesis(self) -> bool:
        """Whether nothing was heard: every unit is deleted and the rate is 1."""
        return self.reference_units - self.deletions + self.insertions == 0


def edits_to_row(edits: Mapping[str, EditCounts]) -> dict[str, float]:
    """The counts of several rates as plain numbers, `wer/substitutions` and the like, as scores keep them."""
    return {f"{name}/{kind}": count for name, counts in edits.items() for kind, count in asdict(counts).items()}


def edits_from_row(row: Mapping[str, float]) -> dict[str, EditCounts]:
    """The counts that `edits_to_row` put among other numbers."""
    kinds: dict[str, dict[str, int]] = {}
    for key, value in row.items():
        name, slash, kind = key.partition("/")
        if slash:
            kinds.setdefault(name, {})[kind] = int(value)
    return {name: EditCounts(**counts) for name, counts in kinds.items()}


def count_edits(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> EditCounts:
    """Edits of a minimal alignment of two sequences of units. An empty hypothesis deletes every unit.

    Raises: ValueError if the reference is empty.
    """
    if not reference:
        raise ValueError("the error rate of an empty reference is undefined; refuse such texts before they are spoken")
    kinds = [operation.tag for operation in Levenshtein.editops(reference, hypothesis)]
    return EditCounts(kinds.count("replace"), kinds.count("delete"), kinds.count("insert"), len(reference))


def word_error_rate(reference: str, hypothesis: str) -> EditCounts:
    """Word edits of one clip; both texts are already normalised.

    Raises: ValueError if the reference has no word.
    """
    return count_edits(reference.split(), hypothesis.split())


def character_error_rate(reference: str, hypothesis: str) -> EditCounts:
    """Character edits of one clip, spaces left out; both texts are already normalised.

    Raises: ValueError if the reference has no character.
    """
    return count_edits("".join(reference.split()), "".join(hypothesis.split()))


def pinyin_error_rate(
    reference: Sequence[str], hypothesis: Sequence[str], *, tones: bool, polyphones: bool = False
) -> EditCounts:
    """Syllable edits of one clip. Both are words of normalised Chinese texts, a character each.

    `polyphones` accepts any listed reading of a character, else only the one that fits its context counts.

    Raises: ValueError if the reference is empty.
    """
    pairing = nearest_readings(
        pinyin_slots(reference, tones=tones, polyphones=polyphones),
        pinyin_slots(hypothesis, tones=tones, polyphones=polyphones),
    )
    return count_edits(pairing.reference, pairing.hypothesis)


def phoneme_error_rate(reference: str, hypothesis: str, phonemes: Callable[[str], Sequence[str]]) -> EditCounts:
    """Phoneme edits of one clip; `phonemes` turns a normalised text into phonemes, and nothing into none.

    Raises: ValueError if the reference has no phoneme.
    """
    return count_edits(phonemes(reference), phonemes(hypothesis) if hypothesis.strip() else ())


def corpus_error_rate(counts: Sequence[EditCounts]) -> float:
    """Edits of all clips over units of all references (micro average): long clips count more than short ones.

    Raises: ValueError if there is no clip.
    """
    if not counts:
        raise ValueError("the error rate of no clip is undefined")
    return sum(count.edits for count in counts) / sum(count.reference_units for count in counts)


def mean_error_rate(counts: Sequence[EditCounts]) -> float:
    """Mean of the clips' rates (macro average), as seed-tts-eval reports: every clip counts the same.

    Raises: ValueError if there is no clip.
    """
    if not counts:
        raise ValueError("the error rate of no clip is undefined")
    return fmean(count.rate for count in counts)
