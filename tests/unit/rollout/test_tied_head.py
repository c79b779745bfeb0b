import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from elocution.errors import CheckpointError
from elocution.rollout.tied_head import lacks_head, write_head
from elocution.testing.policies import small_llasa


def test_a_tied_checkpoint_gets_its_embedding_as_a_head_and_stays_itself(tmp_path: Path) -> None:
    policy = small_llasa()
    policy.save_pretrained(str(tmp_path))
    assert lacks_head(tmp_path)
    write_head(tmp_path)
    assert not lacks_head(tmp_path)
    embedding = policy.llama.get_input_embeddings().weight
    assert torch.equal(load_file(tmp_path / "lm_head.safetensors")["lm_head.weight"], embedding)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, local_files_only=True)
    assert all(
        torch.equal(one, other) for one, other in zip(loaded.parameters(), policy.llama.parameters(), strict=True)
    )


def test_an_index_of_several_files_names_the_head_too(tmp_path: Path) -> None:
    small_llasa().llama.save_pretrained(tmp_path, max_shard_size="300KB")
    index = tmp_path / "model.safetensors.index.json"
    assert len(set(json.loads(index.read_text())["weight_map"].values())) > 1
    write_head(tmp_path)
    assert json.loads(index.read_text())["weight_map"]["lm_head.weight"] == "lm_head.safetensors"
    write_head(tmp_path)  # a second time does nothing
    assert len(list(tmp_path.glob("lm_head*"))) == 1


def test_an_untied_checkpoint_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": false}')
    save_file({"model.embed_tokens.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    assert not lacks_head(tmp_path)
    write_head(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]


def test_folders_that_are_no_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no \.safetensors file"):
        lacks_head(tmp_path)
    save_file({"other": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"cannot read .*config\.json"):
        lacks_head(tmp_path)
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    with pytest.raises(CheckpointError, match=r"no tensor model\.embed_tokens\.weight"):
        write_head(tmp_path)
