"""Where the files that ship inside the package lie: `builtin:NAME` in a config means one of these."""

import hashlib
from pathlib import Path

from elocution.errors import ConfigError

__all__ = ["BUILTIN", "CHECKSUMS", "describe_checksums", "find_damage", "resolve_path"]

_ROOT = Path(__file__).parent / "assets" / "tiny"
CHECKSUMS = _ROOT / "SHA256SUMS"
BUILTIN = {
    "builtin:tiny-llasa": _ROOT / "llasa",
    "builtin:tiny-cosyvoice2": _ROOT / "cosyvoice2",
    "builtin:tiny-codec": _ROOT / "codec",
    "builtin:tiny-clip": _ROOT / "speech" / "the-little-brother-was-young.flac",
    "builtin:tiny-train": _ROOT / "prompts" / "train.jsonl",
    "builtin:tiny-held-out": _ROOT / "prompts" / "held_out.jsonl",
}


def resolve_path(value: str) -> Path:
    """The path that a config value means: a shipped file for `builtin:NAME`, else the path itself.

    Raises: ConfigError if no shipped file has that name, or the value is no path.
    """
    if value in BUILTIN:
        return BUILTIN[value]
    if value.startswith("builtin:"):
        raise ConfigError(f"nothing ships under the name {value!r}; there are {', '.join(BUILTIN)}")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{value!r} is no path: {error} Write it out in full.") from error
    if "\0" in value:
        raise ConfigError(f"{value!r} is no path: it holds a NUL character")
    return path


def describe_checksums(folder: Path) -> str:
    """The files below `folder` in the format of `sha256sum`, by name; a file of checksums is left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS.name)
    return "".join(f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def find_damage(checksums: Path = CHECKSUMS) -> list[str]:
    """One line for each file that `checksums` lists beside it and that is absent or altered; empty if all are whole."""
    if not checksums.is_file():
        return [f"{checksums.name} is missing"]
    damage = []
    for line in checksums.read_text(encoding="utf-8").splitlines():
        expected, _, name = line.partition("  ")
        path = checksums.parent / name
        if not path.is_file():
            damage.append(f"{name} is missing")
        elif _sha256(path) != expected:
            damage.append(f"{name} is altered or truncated")
    return damage


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
