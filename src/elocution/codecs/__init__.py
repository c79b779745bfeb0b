"""Codecs by name."""

from pathlib import Path

from elocution.codecs.base import Codec
from elocution.registry import import_part

__all__ = ["CODECS", "Codec", "load_codec"]

CODECS = {
    "tiny": "elocution.codecs.tiny:TinyCodec",
    "xcodec2": "elocution.codecs.xcodec2:Xcodec2",
    "neucodec": "elocution.codecs.xcodec2:NeuCodec",
}


def load_codec(name: str, path: Path) -> Codec:
    """The codec `name` (a row of the table or `module:Class`) from the folder `path`."""
    codec: Codec = import_part("codec", name, CODECS, methods=["from_pretrained", "decode"]).from_pretrained(path)
    return codec
