"""Where the clips of an evaluation come from: a policy that speaks, recordings, or transcripts that were saved."""

import csv
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.codecs import load_codec
from elocution.config.tree import RunConfig
from elocution.data.voice_cache import open_voice_cache
from elocution.data.voices import VoiceReader
from elocution.errors import CodecError, DataError
from elocution.eval.sets import EvalItem
from elocution.policies import load_policy
from elocution.rollout.codec_fit import check_codec
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Audio, FinishReason, Outcome, Utterance

__all__ = ["ClipSource", "ModelSource", "Produced", "RecordingSource", "TranscriptSource", "Unit", "load_model_source"]

Unit = tuple[EvalItem, int]
"""An item and the number of a sampling seed."""

# Numbers that no training step and no evaluation of the loop begins a seed with.
_STREAM = 2**31 + 1
_SUFFIXES = (".wav", ".flac")


@dataclass(frozen=True)
class Produced:
    """What a source has for a unit; `transcript` where that was saved, and nobody listens.

    Shapes: `codes` [F, Q].
    """

    audio: Audio | None
    codes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 1), np.int64))
    outcome: Outcome | None = None
    hit_limit: bool | None = None
    transcript: str | None = None


class ClipSource(Protocol):
    """Gives the clips of units; what it gives for one does not depend on the others."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that it has clips of."""

    @property
    def keeps_audio(self) -> bool:
        """Whether its clips are new, and are to be written."""

    def refusals(self, items: Sequence[EvalItem]) -> Mapping[str, str]:
        """The ids of items that it has not all clips of, with the reasons."""

    def produce(self, units: Sequence[Unit]) -> list[Produced]:
        """The clips of `units`, in order."""


class ModelSource:
    """A policy that speaks, `seeds` times each item."""

    keeps_audio = True

    def __init__(
        self, speaker: Speaker, voices: Callable[[], VoiceReader] | None, *, seeds: int, run_seed: int
    ) -> None:
        """`voices` reads the recordings of prompts; None leaves the voice to the policy."""
        self._speaker, self._seeds, self._run_seed = speaker, tuple(range(seeds)), run_seed
        self._voices = voices() if voices else None
        self._utterances: dict[str, Utterance] = {}

    @property
    def seeds(self) -> tuple[int, ...]:
        return self._seeds

    def refusals(self, items: Sequence[EvalItem]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        for item in items:
            try:
                reason = self._speaker.check(self._utterance(item))
            except (DataError, CodecError) as error:
                reason = f"its voice cannot be used: {error}"
            if reason:
                refused[item.id] = reason
        return refused

    def produce(self, units: Sequence[Unit]) -> list[Produced]:
        utterances = [self._utterance(item) for item, _ in units]
        # By the id and not by the place, so that an item has the same draw in a set with others left out.
        seeds = [[(_STREAM, self._run_seed, seed, zlib.crc32(item.id.encode()))] for item, seed in units]
        rollouts = [group.rollouts[0] for group in self._speaker.speak(utterances, seeds)]
        return [
            Produced(
                rollout.audio,
                rollout.codes,
                rollout.outcome,
                rollout.completion.finish_reason is FinishReason.LENGTH,
            )
            for rollout in rollouts
        ]

    def _utterance(self, item: EvalItem) -> Utterance:
        if item.id not in self._utterances:
            voice = self._voices.read(item.voice) if self._voices and item.voice else None
            self._utterances[item.id] = Utterance(item.id, item.text.strip(), item.language, voice)
        return self._utterances[item.id]


def load_model_source(config: RunConfig, model: Path, device: torch.device) -> ModelSource:
    """The policy in the folder `model`, with the codec and the budgets of `config`, sampled at `eval.temperature`.

    Raises: the loaders' own errors.
    """
    policy = load_policy(
        config.model.family,
        model,
        precision=config.model.precision,
        speaker=config.model.speaker,
        language_tags=config.model.language_tags,
    )
    policy.model.to(device)
    engine = TorchEngine(
        policy,
        temperature=config.eval.temperature,
        batch_size=config.rollout.batch_size,
        compiled=config.rollout.compile,
    )
    engine.publish(0)
    load = partial(load_codec, config.codec.type, resolve_path(config.codec.path))
    codec = load()
    check_codec(codec, policy, name=config.codec.path)
    speaker = Speaker(
        policy,
        engine,
        codec,
        max_codes_per_char=config.rollout.max_codes_per_char,
        min_codes=config.rollout.min_codes,
    )
    return ModelSource(
        speaker,
        partial(VoiceReader, load, open_voice_cache(config.data.voice_cache, config.codec))
        if config.eval.voices
        else None,
        seeds=config.eval.seeds,
        run_seed=config.seed,
    )


class RecordingSource:
    """A folder of `ID.wav` or `.flac`, or of folders `seed_0`, `seed_1`, … of them."""

    keeps_audio = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        numbers = sorted(
            int(path.name.removeprefix("seed_"))
            for path in folder.glob("seed_*")
            if path.name.removeprefix("seed_").isdecimal()
        )
        self.seeds = tuple(numbers) or (0,)
        self._is_flat = not numbers

    def refusals(self, items: Sequence[EvalItem]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        for item in items:
            absent = [self._places(item, seed)[0] for seed in self.seeds if self._find(item, seed) is None]
            if absent:
                refused[item.id] = f"there is no {absent[0]}"
        return refused

    def produce(self, units: Sequence[Unit]) -> list[Produced]:
        return [Produced(self._read(item, seed)) for item, seed in units]

    def _read(self, item: EvalItem, seed: int) -> Audio:
        path = self._find(item, seed)
        if path is None:
            raise DataError(f"there is no {self._places(item, seed)[0]}")
        return read_audio(path)

    def _find(self, item: EvalItem, seed: int) -> Path | None:
        return next((place for place in self._places(item, seed) if place.is_file()), None)

    def _places(self, item: EvalItem, seed: int) -> list[Path]:
        folder = self._folder if self._is_flat else self._folder / f"seed_{seed}"
        return [folder / f"{item.id}{suffix}" for suffix in _SUFFIXES]


class TranscriptSource:
    """Transcripts that were saved: JSON lines of `id`, `transcript` and perhaps `seed`, or the public scorer's own table."""

    keeps_audio = False

    def __init__(self, path: Path) -> None:
        """Raises: DataError if the file is neither."""
        self._path = path
        self._transcripts = _read_json_transcripts(path) if path.suffix == ".jsonl" else _read_table(path)
        if not self._transcripts:
            raise DataError(f"{path} has no transcripts")
        self.seeds = tuple(sorted({seed for _, seed in self._transcripts}))

    def refusals(self, items: Sequence[EvalItem]) -> Mapping[str, str]:
        known = self._transcripts
        return {
            item.id: f"{self._path} has no transcript of it"
            for item in items
            if any((item.id, seed) not in known for seed in self.seeds)
        }

    def produce(self, units: Sequence[Unit]) -> list[Produced]:
        return [Produced(None, transcript=self._transcripts[item.id, seed]) for item, seed in units]


def _read_json_transcripts(path: Path) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            key, transcript = (row["id"], int(row.get("seed", 0))), row["transcript"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}:{number}: expected an object with id and transcript: {error}") from error
        if not isinstance(key[0], str) or not isinstance(transcript, str):
            raise DataError(f"{path}:{number}: id and transcript must be strings")
        if key in found:
            raise DataError(f"{path}:{number}: {key[0]!r} has two transcripts with the seed {key[1]}")
        found[key] = transcript
    return found


def _read_table(path: Path) -> dict[tuple[str, int], str]:
    """`wav, wer, text, transcript, …`, parted by tabs, as `run_wer.py` of seed-tts-eval writes them."""
    found: dict[tuple[str, int], str] = {}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for number, row in enumerate(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if len(row) != 7:
                raise DataError(
                    f"{path}:{number}: {len(row)} fields, expected the 7 of the public scorer, or a .jsonl file"
                )
            name = Path(row[0]).stem
            if (name, 0) in found:
                raise DataError(f"{path}:{number}: {name!r} has two transcripts")
            found[name, 0] = row[3]
    return found
