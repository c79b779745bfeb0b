"""A checkpoint folder's own tokenizer."""

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from elocution.errors import CheckpointError

__all__ = ["load_tokenizer"]

_OWN = {"TokenizersBackend", "PreTrainedTokenizerFast"}


def load_tokenizer(folder: Path, **settings: Any) -> PreTrainedTokenizerBase:
    """The tokenizer in `folder`; nothing is downloaded. `settings` are those of `AutoTokenizer`.

    For some models, Qwen2 among them, `AutoTokenizer` builds the model's usual tokenizer whatever the folder says, and text
    may come out as no tokens at all; a folder that says that its `tokenizer.json` is all there is is believed.

    Raises: CheckpointError if it loses all text; what transformers raises if a file is missing or damaged.
    """
    config = folder / "tokenizer_config.json"
    written: Any = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    is_own = isinstance(written, dict) and written.get("tokenizer_class") in _OWN
    loaded: Any = (
        PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        if is_own
        else AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **settings)
    )
    tokenizer: PreTrainedTokenizerBase = loaded
    if not tokenizer.encode("one", add_special_tokens=False):
        raise CheckpointError(
            f"the tokenizer in {folder} reads text as no tokens at all: its files are another kind's, or damaged"
        )
    return tokenizer
