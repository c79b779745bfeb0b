"""Seed-TTS-eval: lists of items, one a line, fields parted by `|` (`en/meta.lst`, `zh/meta.lst`, `zh/hardcase.lst`)."""

from pathlib import Path

from elocution.errors import DataError
from elocution.eval.sets.base import EvalItem, EvalSet, build_set

__all__ = ["read_meta_list"]

_FORMS = (
    "id|text, id|text|prompt_wav, id|prompt_text|prompt_wav|text or id|prompt_text|prompt_wav|text|recording, "
    "prompt_text of prompt_wav"
)


def read_meta_list(path: Path, *, language: str | None = None) -> EvalSet:
    """The items of the list `path`; recordings are relative to its folder.

    `language` defaults to that which the folder is named after.

    Raises: DataError if the file cannot be read, a line has another form, or a recording is missing.
    Source: BytedanceSpeech/seed-tts-eval, `get_wav_res_ref_text.py`.
    """
    language = language or path.absolute().parent.name
    if language not in ("en", "zh"):
        raise DataError(f"the folder of {path} is not called en or zh, so name the language of its texts (--language)")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the list {path}: {error}") from error
    items = [
        _item(line.strip(), f"{path}:{number}", path.parent, language)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return build_set(f"{path.absolute().parent.name}-{path.stem}", "seed-tts", path, items)


def _item(line: str, place: str, folder: Path, language: str) -> EvalItem:
    match [field.strip() for field in line.split("|")]:
        case [name, text]:
            return EvalItem(name, text, language)
        case [name, text, wav]:
            return EvalItem(name.removesuffix(".wav"), text, language, "", folder / wav)
        case [name, prompt_text, wav, text]:
            return EvalItem(name, text, language, prompt_text, folder / wav)
        case [name, prompt_text, wav, text, recording]:
            return EvalItem(name, text, language, prompt_text, folder / wav, recording=folder / recording)
        case fields:
            raise DataError(f"{place}: {len(fields)} fields, expected {_FORMS}")
