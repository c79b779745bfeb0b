"""The reward recogniser's language: a dictionary of the tiny checkpoints' words and a smoothed bigram over them."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from pocketsphinx import get_model_path

from elocution.errors import DataError

__all__ = ["bigram_arpa", "dictionary_of", "write_recogniser"]

_DISCOUNT = 0.5


def write_recogniser(path: Path, words: Sequence[str], sentences: Sequence[str]) -> None:
    """Writes `words.dict` and `bigram.arpa` into the folder `path`."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "words.dict").write_text(dictionary_of(words), encoding="utf-8")
    (path / "bigram.arpa").write_text(bigram_arpa(words, sentences), encoding="utf-8")


def dictionary_of(words: Sequence[str]) -> str:
    """The entries of the CMU dictionary for `words`, every pronunciation.

    Raises: DataError if a word is not in it.
    """
    wanted = set(words)
    entries = [
        line
        for line in Path(get_model_path("en-us"), "cmudict-en-us.dict").read_text(encoding="utf-8").splitlines()
        if line.split()[0].split("(")[0] in wanted
    ]
    missing = wanted - {entry.split()[0] for entry in entries}
    if missing:
        raise DataError(f"no pronunciation for {', '.join(sorted(missing))}")
    return "".join(f"{entry}\n" for entry in entries)


def bigram_arpa(words: Sequence[str], sentences: Sequence[str]) -> str:
    """An ARPA bigram with absolute discounting; any word may follow any, unseen pairs being equally likely.

    Source: Ney, Essen and Kneser 1994, "On structuring probabilistic dependences", absolute discounting.
    """
    followers = Counter(pair for sentence in sentences for pair in pairwise(["<s>", *sentence.split(), "</s>"]))
    seen, kinds = Counter[str](), Counter[str]()
    for (word, _), count in followers.items():
        seen[word] += count
        kinds[word] += 1
    targets = [*words, "</s>"]
    unigrams = []
    for word in ["<s>", *targets]:
        probability = "-99.0000" if word == "<s>" else f"{-math.log10(len(targets)):.4f}"
        backoff = 0.0
        if seen[word]:
            unseen_share = max(1 - kinds[word] / len(targets), 1e-3)
            backoff = math.log10(_DISCOUNT * kinds[word] / seen[word] / unseen_share)
        unigrams.append(f"{probability} {word} {backoff:.4f}")
    bigrams = [
        f"{math.log10((count - _DISCOUNT) / seen[word]):.4f} {word} {follower}"
        for (word, follower), count in sorted(followers.items())
    ]
    sections = ["\\data\\", f"ngram 1={len(unigrams)}", f"ngram 2={len(bigrams)}", "", "\\1-grams:", *unigrams]
    return "\n".join([*sections, "", "\\2-grams:", *bigrams, "", "\\end\\", ""])
