import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elocution.errors import CheckpointError, ConfigError
from elocution.policies import load_policy
from elocution.policies.moss import MossPolicy
from elocution.policies.moss_config import read_moss_config
from elocution.testing.policies import small_moss
from elocution.types import Utterance


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_moss().save_pretrained(str(tmp_path))
    return tmp_path


def change(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    for key, value in values.items():
        if value is None:
            del config[key]
        else:
            config[key] = value
    (folder / "config.json").write_text(json.dumps(config))


def test_tensors_have_the_names_of_the_release(folder: Path) -> None:
    names = set(load_file(folder / "model.safetensors"))
    layer = [
        *(f"self_attn.{kind}" for kind in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
        *(f"mlp.{kind}" for kind in ("gate_proj", "up_proj", "down_proj")),
        *("input_layernorm", "post_attention_layernorm"),
    ]
    assert names == {
        "language_model.embed_tokens.weight",
        "language_model.norm.weight",
        *(f"language_model.layers.{i}.{part}.weight" for i in range(2) for part in layer),
        *(f"emb_ext.{i}.weight" for i in range(4)),
        *(f"lm_heads.{i}.weight" for i in range(5)),
    }


def test_the_config_is_written_back_with_all_that_it_said(folder: Path, tmp_path: Path) -> None:
    change(folder, auto_map={"AutoModel": "modeling_moss_tts.MossTTSDelayModel"}, gen_token_id=56)
    (folder / "modeling_moss_tts.py").write_text("raise RuntimeError('must not be run')\n")
    again = tmp_path / "again"
    MossPolicy.from_pretrained(folder).save_pretrained(str(again))
    written = json.loads((again / "config.json").read_text())
    assert written["auto_map"] == {"AutoModel": "modeling_moss_tts.MossTTSDelayModel"}
    assert (written["gen_token_id"], written["n_vq"], written["model_type"]) == (56, 4, "moss_tts_delay")
    assert written["architectures"] == ["MossTTSDelayModel"]
    assert (again / "modeling_moss_tts.py").read_bytes() == (folder / "modeling_moss_tts.py").read_bytes()
    before, after = load_file(folder / "model.safetensors"), load_file(again / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_text_row_carries_the_pad_vector_of_every_codebook() -> None:
    policy = small_moss()
    weights = policy.moss.state_dict()
    wanted = weights["language_model.embed_tokens.weight"][9] + sum(
        weights[f"emb_ext.{i}.weight"][16] for i in range(4)
    )
    torch.testing.assert_close(policy.moss.embed(torch.tensor([9, 16, 16, 16, 16])), wanted)
    assert wanted.sub(weights["language_model.embed_tokens.weight"][9]).abs().min() > 0


def test_the_pad_code_is_never_sampled() -> None:
    policy = small_moss()
    ids = torch.from_numpy(policy.prompt_ids(Utterance("u", "one")))[None]
    text, *codes = policy.moss(ids)
    assert len(codes) == 4
    assert torch.isfinite(text).all()
    for logits in codes:
        assert (logits[..., 16] == float("-inf")).all()
        assert torch.isfinite(logits[..., :16]).all()


def test_a_loaded_checkpoint_computes_what_it_did(folder: Path) -> None:
    ids = torch.from_numpy(small_moss().prompt_ids(Utterance("u", "one")))[None]
    for ours, loaded in zip(small_moss().moss(ids), MossPolicy.from_pretrained(folder).moss(ids), strict=True):
        assert torch.equal(ours, loaded)


def test_a_config_without_n_vq_is_refused(folder: Path) -> None:
    change(folder, n_vq=None)
    with pytest.raises(CheckpointError, match="n_vq is missing"):
        load_policy("moss", folder)


@pytest.mark.parametrize("wrong", [1, 3, 5, 32])
def test_another_n_vq_than_that_of_the_tensors_is_refused(folder: Path, wrong: int) -> None:
    change(folder, n_vq=wrong)
    with pytest.raises(CheckpointError, match=f"n_vq = {wrong}, which needs {wrong} tensors emb_ext"):
        load_policy("moss", folder)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"n_vq": "4"}, "n_vq = '4'"),
        ({"n_vq": 0}, "n_vq = 0"),
        ({"audio_pad_code": 15}, "audio_pad_code = 15"),
        ({"audio_end_token_id": 10**6}, "audio_end"),
        ({"audio_end_token_id": 0, "im_end_token_id": 0}, "the same"),
        ({"model_type": "qwen3"}, "model_type 'qwen3'"),
        ({"language_config": None}, "language_config"),
        ({"audio_vocab_size": 32, "audio_pad_code": 32}, "shape"),
    ],
)
def test_odd_configs_are_refused_by_field(folder: Path, values: dict[str, object], reason: str) -> None:
    change(folder, **values)
    with pytest.raises(CheckpointError, match=reason):
        load_policy("moss", folder)


@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads", "rope_parameters", "vocab_size"])
def test_a_language_model_without_a_size_is_refused(folder: Path, key: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["language_config"][key]
    change(folder, language_config=config["language_config"])
    with pytest.raises(CheckpointError, match="rope_theta" if key == "rope_parameters" else key):
        read_moss_config(folder / "config.json")


def test_a_missing_tensor_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["language_model.layers.1.self_attn.q_norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.q_norm"):
        load_policy("moss", folder)


def test_a_tensor_that_is_not_finite_is_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["emb_ext.2.weight"][3] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"emb_ext\.2"):
        load_policy("moss", folder)


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    change(folder, audio_start_token_id=3)
    with pytest.raises(CheckpointError, match="audio_start is id 3"):
        load_policy("moss", folder)


def test_a_tokenizer_that_is_taken_for_another_kind_and_loses_all_text_is_refused(folder: Path) -> None:
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"tokenizer_class": "Qwen2Tokenizer"}))
    with pytest.raises(CheckpointError, match=f"the tokenizer in {folder} reads text as no tokens at all"):
        load_policy("moss", folder)


def test_a_folder_without_a_config_is_no_checkpoint(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=f"{folder} is no checkpoint folder: it has no config.json"):
        load_policy("moss", folder)


def test_fp16_is_refused_and_bf16_is_not(folder: Path) -> None:
    with pytest.raises(ConfigError, match="fp16"):
        MossPolicy.from_pretrained(folder, dtype=torch.float16)
    with pytest.raises(ConfigError, match="fp16"):
        MossPolicy.from_pretrained(folder, compute_dtype=torch.float16)
    assert MossPolicy.from_pretrained(folder, dtype=torch.bfloat16).moss.dtype is torch.bfloat16
    assert load_policy("moss", folder, precision="bf16").compute_dtype is torch.bfloat16
