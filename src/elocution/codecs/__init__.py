"""Codecs by name."""

from pathlib import Path
from typing import Any

from elocution.codecs.base import Codec
from elocution.registry import build_part, import_part

__all__ = ["CODECS", "Codec", "find_codec", "load_codec"]

CODECS = {
    "tiny": "elocution.codecs.tiny:TinyCodec",
    "tiny-residual": "elocution.codecs.tiny_residual:TinyResidualCodec",
    "xcodec2": "elocution.codecs.xcodec2:Xcodec2",
    "neucodec": "elocution.codecs.xcodec2:NeuCodec",
    "snac": "elocution.codecs.snac:Snac",
}


def find_codec(name: str) -> Any:
    """The class of the codec `name`, a row of the table or `module:Class`; nothing is loaded.

    Raises: ConfigError if there is no such class, or it is no codec.
    """
    return import_part("codec", name, CODECS, methods=["from_pretrained", "decode"])


def load_codec(name: str, path: Path) -> Codec:
    """The codec `name` (a row of the table or `module:Class`) from the folder `path`.

    Raises: ConfigError if there is no such class, or it is no codec; CodecError if the folder cannot be loaded.
    """
    part = find_codec(name)
    attributes = ("sample_rate", "frame_rate", "num_codebooks", "codebook_size")
    codec: Codec = build_part("codec", name, lambda: part.from_pretrained(path), attributes=attributes)
    return codec
