"""One row of speech metadata -> one row of the parquet that the CosyVoice2 recipe on veRL reads. Knows no file.

Source: `prepare_data.py` of the published recipe, and its sibling's speech prefixes.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elocution.data.prompt_rows import check_row

__all__ = ["OWN_COLUMNS", "RecipeSettings", "RecipeText", "check_text_row", "recipe_row"]

OWN_COLUMNS = ("data_source", "prompt", "ability", "reward_model", "extra_info")


@dataclass(frozen=True)
class RecipeSettings:
    """How rows are made. Units: seconds; codes per second.

    `start` is what an answer begins with: nothing, as published; the first `min_prefix_s` to `max_prefix_s` of the row's own
    `code`; or the `prompt_codes` of a voice, whose `prompt_text` then stands before the text.
    """

    start: Literal["none", "speech_prefix", "voice"] = "none"
    language: str = "zh"
    seed: int = 0
    frame_rate: float = 25.0
    min_prefix_s: float = 1.0
    max_prefix_s: float = 5.0
    codebook_size: int = 6561


@dataclass(frozen=True)
class RecipeText:
    """A row that can be used. `carried` are the columns of the source that no row of ours has."""

    text: str
    prompt_text: str
    codes: tuple[int, ...]
    carried: Mapping[str, Any]


def check_text_row(row: Mapping[str, Any], settings: RecipeSettings) -> RecipeText | str:
    """The row, or what is wrong with it."""
    if clash := sorted(row.keys() & set(OWN_COLUMNS)):
        return f"has the columns {', '.join(clash)}, which are written here; rename them"
    if "text" not in row:
        return "the text is missing or empty"
    checked = check_row({"text": row["text"]}, "row", (settings.language,), Path())
    if isinstance(checked, str):
        return checked
    words = ""
    codes: tuple[int, ...] = ()
    if settings.start != "none":
        key = "code" if settings.start == "speech_prefix" else "prompt_codes"
        found = _codes(row, key, settings.codebook_size)
        if isinstance(found, str):
            return found
        codes = found
        least = 2 * round(settings.min_prefix_s * settings.frame_rate)
        if settings.start == "speech_prefix" and len(codes) < least:
            return f"'code' has {len(codes)} codes, a prefix needs {least} so that half of the speech is left"
    if settings.start == "voice":
        words = row.get("prompt_text", "")
        if not isinstance(words, str) or not words.strip():
            return "a voice needs its words: prompt_text is missing or empty"
    return RecipeText(checked.text, words, codes, {key: value for key, value in row.items() if key != "text"})


def recipe_row(row: RecipeText, split: str, index: int, data_source: str, settings: RecipeSettings) -> dict[str, Any]:
    """The row in the published schema. `index` is its place in `split`, by which the recipe tells groups apart."""
    start = _prefix(row.codes, f"{settings.seed}/{split}/{index}", settings) if row.codes else ()
    spoken = "".join(f"<|s_{code}|>" for code in start)
    extra = {"split": split, "index": index, "text": row.text}
    if settings.start == "speech_prefix":
        extra["prefix_speech_str"] = spoken
    elif settings.start == "voice":
        extra |= {"prompt_text": row.prompt_text, "prompt_speech_str": spoken}
    return {
        **row.carried,
        "data_source": data_source,
        "prompt": [{"role": "user", "content": row.prompt_text + row.text}, {"role": "assistant", "content": spoken}],
        "ability": "text-to-speech",
        "reward_model": {"style": "rule", "ground_truth": row.text},
        "extra_info": extra,
    }


def _prefix(codes: tuple[int, ...], seed: str, settings: RecipeSettings) -> tuple[int, ...]:
    if settings.start == "voice":
        return codes
    seconds = random.Random(seed).uniform(settings.min_prefix_s, settings.max_prefix_s)
    return codes[: min(round(seconds * settings.frame_rate), len(codes) // 2)]


def _codes(row: Mapping[str, Any], key: str, size: int) -> tuple[int, ...] | str:
    codes = row.get(key)
    if not isinstance(codes, list) or not codes or not all(type(code) is int and 0 <= code < size for code in codes):
        return f"{key!r} must be a list of codes from 0 to {size - 1}, found {codes!r:.80}"
    return tuple(codes)
