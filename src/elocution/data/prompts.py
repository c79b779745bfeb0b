"""Prompt files -> utterances, every bad row named by file and line."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elocution.data.prompt_files import RawRow, read_rows
from elocution.data.prompt_rows import PromptRow, VoiceSource, check_row
from elocution.data.voices import VoiceReader, read_recording
from elocution.errors import CodecError, ConfigError, DataError
from elocution.types import Utterance, Voice

__all__ = ["BadRow", "PromptSet", "check_split", "load_prompts"]

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used, and why. `line` is the line of a JSONL file, the row of a table; counted from 1."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{_place(self.path, self.line)}: {self.reason}"


@dataclass(frozen=True)
class PromptSet:
    """The usable rows of a file in its order, where each stands, and those that were skipped."""

    utterances: tuple[Utterance, ...]
    places: tuple[str, ...]
    skipped: tuple[BadRow, ...]


def load_prompts(
    path: Path,
    *,
    languages: Collection[str],
    on_bad_row: Literal["stop", "skip"],
    check_text: Callable[[Utterance], str | None],
    voices: VoiceReader | None = None,
) -> PromptSet:
    """Reads rows with `text`, and optionally `id`, `language`, a voice (`prompt_text` with `prompt_audio` or `prompt_codes`),
    and `description`, what the clip should sound like.

    `id` defaults to `<stem>-<line>`, `language` to the only one of `languages`, or to "en". `check_text` gives the reason
    why a policy cannot speak an utterance, or None. Without `voices`, recordings are read but not encoded, and utterances
    have no voice.

    Raises: DataError if the file cannot be read, if a row is bad and `on_bad_row` is "stop", or if no row is left.
    """
    utterances: list[Utterance] = []
    bad: list[BadRow] = []
    places: dict[str, RawRow] = {}
    for raw in read_rows(path):
        found: Utterance | str = raw.content if isinstance(raw.content, str) else ""
        if not isinstance(raw.content, str):
            row = check_row(raw.content, f"{raw.path.stem}-{raw.number}", languages, raw.path.parent)
            found = row if isinstance(row, str) else _utterance(row, voices)
        if isinstance(found, Utterance) and found.id in places:
            first = places[found.id]
            kind = "row" if first.path.suffix == ".parquet" else "line"
            where = f"{kind} {first.number}" + (f" of {first.path.name}" if first.path != raw.path else "")
            found = f"the id {found.id!r} is already that of {where}"
        if isinstance(found, Utterance):
            found = check_text(found) or found
        if isinstance(found, str):
            bad.append(BadRow(raw.path, raw.number, found))
            continue
        places[found.id] = raw
        utterances.append(found)
    count = f"{len(bad)} bad row{'s' if len(bad) > 1 else ''}"
    shown = "".join(f"\n  {row}" for row in bad[:_SHOWN])
    shown += f"\n  … and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    if bad and on_bad_row == "stop":
        raise DataError(f'{count} in {path} (data.on_bad_row = "skip" leaves them out and lists them):{shown}')
    if not utterances:
        raise DataError(f"no usable row in {path}: {f'{count}:{shown}' if bad else 'it is empty'}")
    named = tuple(_place(raw.path, raw.number) for raw in places.values())
    return PromptSet(tuple(utterances), named, tuple(bad))


def check_split(train: PromptSet, held_out: PromptSet, *, num_train: int, num_held_out: int) -> None:
    """Sees that there are enough prompts of each kind, and that no held-out text is trained on.

    Raises: ConfigError if there are fewer; DataError that names both places of a text if it is in both.
    """
    if len(train.utterances) < num_train:
        raise ConfigError(
            f"train.prompts_per_step is {num_train}, but data.train has only {len(train.utterances)} usable prompts"
        )
    if len(held_out.utterances) < num_held_out:
        raise ConfigError(
            f"eval.sentences is {num_held_out}, but data.held_out has only {len(held_out.utterances)} usable prompts"
        )
    trained = {each.text: place for each, place in zip(train.utterances, train.places, strict=True)}
    shared = [
        f"\n  {place} and {trained[each.text]}: {each.text!r:.80}"
        for each, place in zip(held_out.utterances, held_out.places, strict=True)
        if each.text in trained
    ]
    if shared:
        more = f"\n  … and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
        raise DataError(
            f"{len(shared)} held-out text{'s are' if len(shared) > 1 else ' is'} also trained on; remove them from one of the "
            f"two files:{''.join(shared[:_SHOWN])}{more}"
        )


def _place(path: Path, line: int) -> str:
    return f"{path}:{' row ' if path.suffix == '.parquet' else ''}{line}"


def _utterance(row: PromptRow, voices: VoiceReader | None) -> Utterance | str:
    try:
        voice = _voice(row.voice, voices) if row.voice else None
    except (DataError, CodecError) as error:
        return f"its voice cannot be used: {error}"
    return Utterance(row.id, row.text, row.language, voice, row.description, row.instruction, row.emotion)


def _voice(source: VoiceSource, voices: VoiceReader | None) -> Voice | None:
    if voices is not None:
        return voices.read(source)
    if source.codes is None and source.audio is not None:
        read_recording(source.audio)
    return None
