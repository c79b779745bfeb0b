"""The shards of a checkpoint of veRL -> the Hugging Face folder, by veRL's own merger; compared with what it began with."""

import json
import re
import subprocess
import sys
from pathlib import Path

from elocution.errors import ExportError
from elocution.export.new_target import write_new
from elocution.other_python import variables_for
from elocution.policies import load_policy
from elocution.verl.environment import find_verl

__all__ = ["find_actor", "merge_shards"]

_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


def merge_shards(checkpoint: Path, target: Path, *, python: str = "", family: str = "cosyvoice2") -> int:
    """Writes the new folder `target` from a checkpoint of veRL, `global_step_N` or the `actor` in it; returns the number of
    shards. Weights become bfloat16, as veRL's merger writes them.

    The folder is opened as `family` before it appears: every tensor in its shape, every value a number. Shards are pickles, which
    the merger reads with whatever code they hold: merge what you have trained yourself.

    Raises: ExportError if shards are missing, veRL's merger fails or `target` exists; MissingDependency without veRL;
    CheckpointError if what was merged is not whole.
    """
    actor = find_actor(checkpoint)
    find_verl(python)

    def write(folder: Path) -> int:
        command = [python or sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
        command += ["--local_dir", str(actor), "--target_dir", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables_for(python))
        if done.returncode:
            raise ExportError(f"veRL's merger failed on {actor}: {done.stderr.strip()[-1500:]}")
        load_policy(family, folder)
        return len(_shards(actor))

    return write_new(target, write)


def find_actor(checkpoint: Path) -> Path:
    """The folder with the shards in `checkpoint`, all of them there.

    Raises: ExportError naming what is missing.
    """
    actor = checkpoint / "actor" if (checkpoint / "actor").is_dir() else checkpoint
    try:
        size = int(json.loads((actor / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(
            f"{checkpoint} is no checkpoint of veRL: {actor / 'fsdp_config.json'} is missing or says no world_size. "
            "Checkpoints of `elocution train` are whole folders already, also with fsdp: name RUN/best"
        ) from error
    missing = sorted(set(range(size)) - _shards(actor))
    if missing:
        raise ExportError(
            f"{actor} lacks {len(missing)} of {size} shards, the first model_world_size_{size}_rank_{missing[0]}.pt; copy "
            "them from every node"
        )
    if not (actor / "huggingface" / "config.json").is_file():
        raise ExportError(f"{actor} has no huggingface/config.json, which veRL writes beside the shards")
    return actor


def _shards(actor: Path) -> set[int]:
    return {int(match[2]) for path in actor.glob("model_*.pt") if (match := _SHARD.fullmatch(path.name))}
