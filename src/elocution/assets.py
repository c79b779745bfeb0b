"""Where the files that ship inside the package lie: `builtin:NAME` in a config means one of these."""

from pathlib import Path

from elocution.errors import ConfigError

__all__ = ["BUILTIN", "resolve_path"]

_ROOT = Path(__file__).parent / "assets" / "tiny"
BUILTIN = {
    "builtin:tiny-llasa": _ROOT / "llasa",
    "builtin:tiny-codec": _ROOT / "codec",
    "builtin:tiny-train": _ROOT / "prompts" / "train.jsonl",
    "builtin:tiny-held-out": _ROOT / "prompts" / "held_out.jsonl",
}


def resolve_path(value: str) -> Path:
    """The path that a config value means: a shipped file for `builtin:NAME`, else the path itself.

    Raises: ConfigError if no shipped file has that name.
    """
    if value in BUILTIN:
        return BUILTIN[value]
    if value.startswith("builtin:"):
        raise ConfigError(f"nothing ships under the name {value!r}; there are {', '.join(BUILTIN)}")
    return Path(value).expanduser()
