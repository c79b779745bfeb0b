from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from elocution.errors import CheckpointError
from elocution.rollout.tied_head import lacks_head
from elocution.testing.policies import small_llasa


def test_a_tied_checkpoint_lacks_its_head_until_one_is_written(tmp_path: Path) -> None:
    policy = small_llasa()
    policy.save_pretrained(str(tmp_path))
    assert lacks_head(tmp_path)
    save_file({"lm_head.weight": policy.llama.get_output_embeddings().weight}, tmp_path / "head.safetensors")
    assert not lacks_head(tmp_path)


def test_an_untied_checkpoint_has_its_head(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": false}')
    save_file({"model.embed_tokens.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    assert not lacks_head(tmp_path)


def test_folders_that_are_no_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no \.safetensors file"):
        lacks_head(tmp_path)
    save_file({"other": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"cannot read .*config\.json"):
        lacks_head(tmp_path)
