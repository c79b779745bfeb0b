"""A folder's own tokenizer is read, and one that loses all text is refused."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config

from elocution.policies.tokenizer import load_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "house": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>").save_pretrained(tmp_path)
    Qwen2Config(vocab_size=3, hidden_size=8, num_attention_heads=2, num_key_value_heads=1).save_pretrained(tmp_path)
    return tmp_path


def test_words_of_a_qwen2s_own_tokenizer_are_read(folder: Path) -> None:
    assert load_tokenizer(folder).encode("the house") == [1, 2]
    assert AutoTokenizer.from_pretrained(folder).encode("the house") != [1, 2]  # or the loader is not needed any more
