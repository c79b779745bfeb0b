"""CV3-Eval: folders in the style of Kaldi, with `text`, and for voices `prompt_text` and `prompt_wav.scp`."""

import re
from pathlib import Path

from elocution.errors import DataError
from elocution.eval.sets.base import EvalItem, EvalSet, build_set

__all__ = ["read_kaldi_folder"]

_LANGUAGE = re.compile(r"(?:^|_)(zh|en|ja|ko|de|es|fr|it|ru)$")


def read_kaldi_folder(folder: Path, *, language: str | None = None) -> EvalSet:
    """The utterances of `text`, in its order; every one must be in the other files that are there.

    `language` defaults to that which the folder, or one above it, is named after (`hard_zh`, `to_en`, `ja`). Paths in
    `prompt_wav.scp` are relative to the folder or to one above it.

    Raises: DataError if a file cannot be read, utterances lack a prompt, or a recording is missing.
    Source: FunAudioLLM/CV3-Eval, `data/`.
    """
    language = language or _language_of(folder)
    texts = _read_table(folder / "text")
    words, sounds = (
        _read_table(folder / name) if (folder / name).is_file() else None for name in ("prompt_text", "prompt_wav.scp")
    )
    for name, table in (("prompt_text", words), ("prompt_wav.scp", sounds)):
        if table is not None and (absent := sorted(texts.keys() - table.keys())):
            raise DataError(
                f"{folder / name} lacks {len(absent)} of {len(texts)} utterances, for example {absent[0]!r}"
            )
    items = [
        EvalItem(
            name,
            text,
            language,
            words[name] if words is not None else "",
            _find(folder, sounds[name]) if sounds is not None else None,
        )
        for name, text in texts.items()
    ]
    return build_set("-".join(folder.absolute().parts[-2:]), "cv3-eval", folder, items)


def _language_of(folder: Path) -> str:
    for part in reversed(folder.absolute().parts):
        if found := _LANGUAGE.search(part):
            return found.group(1)
    raise DataError(f"no folder in {folder} is named after a language; name that of its texts (--language)")


def _read_table(path: Path) -> dict[str, str]:
    """Key and rest of each line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    table: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        key, *rest = line.strip().split(maxsplit=1)
        if not rest:
            raise DataError(f"{path}:{number}: {key!r} has nothing behind it")
        if key in table:
            raise DataError(f"{path}:{number}: {key!r} is there twice")
        table[key] = rest[0].strip()
    return table


def _find(folder: Path, name: str) -> Path:
    """The file that `name` means; where none is found, the one that it would be in the folder."""
    places = [base / name for base in (folder, *folder.absolute().parents)]
    return next((place for place in places if place.is_file()), folder / name)
