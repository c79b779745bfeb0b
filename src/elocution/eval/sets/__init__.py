"""Evaluation sets by their format on disk."""

from elocution.assets import resolve_path
from elocution.errors import DataError
from elocution.eval.sets.base import EvalItem, EvalSet
from elocution.eval.sets.cv3 import read_kaldi_folder
from elocution.eval.sets.libritts import TEXT_SUFFIX, read_libritts_folder
from elocution.eval.sets.manifest import read_manifest
from elocution.eval.sets.seed_tts import read_meta_list

__all__ = ["EvalItem", "EvalSet", "open_eval_set"]


def open_eval_set(source: str, *, language: str | None = None) -> EvalSet:
    """The set that `source` names: a `.lst` of Seed-TTS-eval or the folder of its `meta.lst`, a folder of CV3-Eval or in
    LibriTTS's layout, a JSONL or parquet file of prompts, or `builtin:NAME`.

    `language` is that of texts whose own is not said.

    Raises: DataError if there is no set, or it is not whole.
    """
    path = resolve_path(source)
    if path.suffix == ".lst" and path.is_file():
        return read_meta_list(path, language=language)
    if path.is_dir():
        if (path / "meta.lst").is_file():
            return read_meta_list(path / "meta.lst", language=language)
        if (path / "text").is_file():
            return read_kaldi_folder(path, language=language)
        if next(path.rglob(f"*{TEXT_SUFFIX}"), None) is not None:
            return read_libritts_folder(path, language=language)
        if next(path.glob("*.parquet"), None) is None:
            raise DataError(f"{path} is no evaluation set: it has no meta.lst, text, *{TEXT_SUFFIX} or *.parquet")
    elif not path.is_file():
        raise DataError(f"there is no evaluation set {source}")
    elif path.suffix not in (".jsonl", ".parquet"):
        raise DataError(f"{path} is no evaluation set: expected a .lst, .jsonl or .parquet file, or a folder")
    return read_manifest(path, language=language)
