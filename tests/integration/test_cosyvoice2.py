"""The CosyVoice2 recipe on the tiny checkpoint: convert, prepare, train, export, as the script runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elocution.assets import BUILTIN
from elocution.export.cosyvoice import to_huggingface, to_native
from elocution.policies import load_policy
from elocution.types import Utterance

ROOT = Path(__file__).parents[2]
NATIVE = BUILTIN["builtin:tiny-cosyvoice2"] / "llm.pt"

SMALL = """
[model]
family = "cosyvoice2"
[rollout]
group_size = 2
[train]
steps = 1
prompts_per_step = 2
learning_rate = 1e-3
{lora}
[eval]
sentences = 2
probe_sentences = 1
"""


def run_recipe(folder: Path, start: int, stop: int) -> str:
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "cosyvoice2" / "run.sh"), str(start), str(stop)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "ELOCUTION": f"{sys.executable} -m elocution",
            "CONFIG": "small.toml",
            "WORK": "work",
            "TEST_ROWS": "20",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tensors(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return found


def test_the_shipped_checkpoint_goes_round_bit_identical(tmp_path: Path) -> None:
    done = to_huggingface(NATIVE.parent, tmp_path / "hf")
    assert (done.ids.num_codes, done.ids.generation) == (2048, 2)
    assert NATIVE.stat().st_size < 8_000_000
    to_native(tmp_path / "hf", tmp_path / "llm.pt")
    first, second = tensors(NATIVE), tensors(tmp_path / "llm.pt")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name in ("llm_decoder.bias", "llm.model.model.layers.0.self_attn.q_proj.bias"):
        assert first[name].any(), f"{name} is 0, and its loss would go unseen"
    policy = load_policy("cosyvoice2", tmp_path / "hf")
    assert policy.check_text(Utterance("a", "the little brother was young")) is None
    assert "outside the checkpoint's vocabulary" in str(policy.check_text(Utterance("a", "an unheard word")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "lora",
    [pytest.param("", id="whole"), pytest.param("[model.lora]\nrank = 2", id="adapter", marks=pytest.mark.slow)],
)
def test_the_recipe_from_llm_pt_to_llm_pt(lora: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra `data`")
    (tmp_path / "small.toml").write_text(SMALL.format(lora=lora))
    run_recipe(tmp_path, -1, 5)
    assert "is there" in run_recipe(tmp_path, 5, 5)  # a stage alone, done already
    trained, before = tensors(tmp_path / "work" / "llm.pt"), tensors(NATIVE)
    assert trained.keys() == before.keys()
    assert {name: tensor.shape for name, tensor in trained.items()} == {
        name: each.shape for name, each in before.items()
    }
    moved = {name for name in before if not torch.equal(trained[name].float(), before[name].float())}
    assert any(".self_attn." in name for name in moved)
    assert ("llm_decoder.bias" in moved) == (not lora)
    assert "llm_embedding.weight" in before
