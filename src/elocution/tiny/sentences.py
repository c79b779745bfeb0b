"""The closed language that the tiny checkpoints speak: short template sentences and digit strings.

Every word was kept only if an open-vocabulary recogniser hears it in the source voice, so homophones
(two, four, eight) and words that it confuses are absent. Knows text only: no audio, no model.
"""

import random
from collections.abc import Callable

__all__ = ["WORDS", "draw_sentences"]

ADJECTIVES = (
    "green black white small young quiet beautiful wonderful little famous different simple public strange "
    "dangerous important terrible national serious nervous perfect criminal delicious electric musical natural "
    "political popular possible romantic special successful"
).split()
NOUNS = (
    "man house river mountain table doctor teacher children money coffee apple morning winter station kitchen "
    "flower picture story village forest family brother sister father mother market hospital company captain "
    "soldier question answer city country paper office school church president ocean animal dinner professor "
    "library problem computer telephone hotel minister university factory lady director festival government "
    "holiday industry magazine manager officer opinion people photograph secretary society sunday temple tennis"
).split()
PAST_VERBS = (
    "followed carried needed visited painted discovered finished forgot protected supported avoided expected "
    "invited accepted corrected defended repeated"
).split()
SUBJECTS = "mary peter george william robert she he we".split()
PREPOSITIONS = "near behind after before without inside".split()
ADVERBS = "tomorrow yesterday again together".split()
DIGITS = "zero one three six seven nine".split()
WORDS = tuple(sorted({*ADJECTIVES, *NOUNS, *PAST_VERBS, *SUBJECTS, *PREPOSITIONS, *ADVERBS, *DIGITS, "the", "was"}))

Draw = Callable[[list[str]], str]
_TEMPLATES: tuple[Callable[[Draw], str], ...] = (
    lambda c: f"the {c(NOUNS)} was {c(PREPOSITIONS)} the {c(NOUNS)}",
    lambda c: f"{c(SUBJECTS)} {c(PAST_VERBS)} the {c(ADJECTIVES)} {c(NOUNS)}",
    lambda c: f"the {c(NOUNS)} {c(PAST_VERBS)} the {c(NOUNS)}",
    lambda c: f"{c(SUBJECTS)} {c(PAST_VERBS)} the {c(NOUNS)} {c(ADVERBS)}",
    lambda c: f"the {c(ADJECTIVES)} {c(NOUNS)} was {c(ADJECTIVES)}",
    lambda c: " ".join(c(DIGITS) for _ in range(3)),
    lambda c: " ".join(c(DIGITS) for _ in range(4)),
)


def draw_sentences(count: int, seed: int) -> list[str]:
    """`count` distinct sentences in a random order that depends on `seed` alone.

    Raises: ValueError if the language holds too few distinct sentences to reach `count` by drawing.
    """
    generator = random.Random(seed)
    sentences: dict[str, None] = {}
    for _ in range(50 * count):
        template = generator.choice(_TEMPLATES)
        sentences[template(generator.choice)] = None
        if len(sentences) == count:
            return list(sentences)
    raise ValueError(f"asked for {count} distinct sentences, found {len(sentences)}; ask for fewer")
