"""LibriTTS: recordings named `SPEAKER_CHAPTER_…` with their words beside them; each is asked for in its speaker's voice."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from elocution.errors import DataError
from elocution.eval.sets.base import EvalItem, EvalSet, build_set

__all__ = ["TEXT_SUFFIX", "read_libritts_folder"]

TEXT_SUFFIX = ".normalized.txt"


def read_libritts_folder(folder: Path, *, language: str | None = None) -> EvalSet:
    """One item for each recording; its prompt is the next recording of the same speaker by name, the first after the last.

    A speaker with one recording has no prompt. `language` defaults to English.

    Raises: DataError if a recording has no text or a text no recording.
    """
    texts = {file.name.removesuffix(TEXT_SUFFIX): file for file in sorted(folder.rglob(f"*{TEXT_SUFFIX}"))}
    sounds = {file.stem: file for file in sorted(folder.rglob("*")) if file.suffix in (".wav", ".flac")}
    if lonely := sorted(texts.keys() ^ sounds.keys()):
        both = len(texts.keys() & sounds.keys())
        raise DataError(
            f"{folder}: {both} of {len(texts.keys() | sounds.keys())} recordings have their words beside them "
            f"({TEXT_SUFFIX}); {lonely[0]} has only one of the two"
        )
    words = {name: " ".join(file.read_text(encoding="utf-8").split()) for name, file in texts.items()}
    speakers: dict[str, list[str]] = defaultdict(list)
    for name in words:
        speakers[name.split("_")[0]].append(name)
    items = []
    for name, text in words.items():
        own = speakers[name.split("_")[0]]
        other = own[(own.index(name) + 1) % len(own)]
        item = EvalItem(name, text, language or "en", recording=sounds[name])
        items.append(item if other == name else replace(item, prompt_text=words[other], prompt_audio=sounds[other]))
    return build_set(folder.absolute().name, "libritts", folder, items)
