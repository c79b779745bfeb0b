"""What the builds of tiny checkpoints share: results are kept by stage, and appear whole or not at all."""

import importlib.util
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elocution.codecs.tiny import TinyCodec
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.errors import MissingDependency
from elocution.export.new_target import write_new
from elocution.files import write_text_atomically
from elocution.tiny.speech import SpeechCorpus, speak_sentences

__all__ = ["kept_codec", "kept_corpus", "kept_folder", "require_modules", "spoken_corpus", "write_prompts"]

logger = logging.getLogger(__name__)

TinyCodecT = TypeVar("TinyCodecT", TinyCodec, TinyResidualCodec)


def require_modules(packages: Mapping[str, str]) -> None:
    """Raises: MissingDependency naming the package of the first of these modules that is not installed."""
    for module, package in packages.items():
        if importlib.util.find_spec(module) is None:
            raise MissingDependency.naming(package, "tiny-build")


def kept_corpus(path: Path, sentences: Sequence[str], make: Callable[[], SpeechCorpus]) -> SpeechCorpus:
    """The clips of `sentences` in the file `path`, made first where they are not there."""
    if path.is_file():
        corpus = SpeechCorpus.load(path)
        if corpus.sentences == tuple(sentences):
            logger.info("%s: %d clips already there", path.stem, len(sentences))
            return corpus
    corpus = make()
    corpus.save(path)
    return corpus


def spoken_corpus(output: Path, sentences: Sequence[str], workers: int) -> SpeechCorpus:
    """The sentences in the source voice, kept in `speech.npz`."""
    return kept_corpus(output / "speech.npz", sentences, lambda: speak_sentences(sentences, workers=workers))


def kept_codec(path: Path, codec: type[TinyCodecT], fit: Callable[[], TinyCodecT]) -> TinyCodecT:
    """The codec in the folder `path`, fitted first where it is not there."""
    if (path / "codec.safetensors").is_file():
        logger.info("codec: already there")
        return codec.from_pretrained(path)
    fitted = fit()
    fitted.save_pretrained(path)
    return fitted


def kept_folder(path: Path, marker: str, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a folder that becomes `path`, unless the file `marker` is in there already."""
    if (path / marker).is_file():
        logger.info("%s: already there", path.name)
        return
    write_new(path, write)


def write_prompts(path: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes prompt rows as JSON lines, with ids made of `name` and their place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbered = [{"id": f"{name}-{number:04d}", **row} for number, row in enumerate(rows, start=1)]
    write_text_atomically(path, "".join(f"{json.dumps(row)}\n" for row in numbered))
