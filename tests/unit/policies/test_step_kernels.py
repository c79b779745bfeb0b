import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from elocution.policies.compiled_kernels import LANES, CompiledKernels, _load, can_compile
from elocution.policies.step_kernels import StepKernels, TorchKernels

EPS = 1e-5


def tables(size: int, head_dim: int) -> tuple[Tensor, Tensor]:
    angles = torch.arange(size)[:, None] * torch.logspace(0, -3, head_dim // 2).repeat(2)
    sin = angles.sin()
    sin[:, : head_dim // 2] *= -1
    return angles.cos(), sin


@pytest.mark.parametrize(("kv", "group", "head_dim"), [(2, 3, 32), (1, 1, 8), (2, 4, 20), (3, 7, 64)])
def test_s47_compiled_and_plain_kernels_agree_on_rows_of_any_length(kv: int, group: int, head_dim: int) -> None:
    torch.manual_seed(0)
    size, places = 3 * LANES, torch.tensor([0, 1, LANES - 1, LANES, LANES + 1, 3 * LANES - 1])
    rows = len(places)
    heads = 3 * torch.randn(rows, (group + 2) * kv, head_dim)
    past = torch.randn(rows + 1, kv, head_dim, size), torch.randn(rows + 1, kv, size, head_dim)
    kernels: list[StepKernels] = [TorchKernels(kv, EPS), CompiledKernels(kv, group * kv, head_dim, EPS)]
    found, caches = [], []
    for each in kernels:
        keys, values = past[0].clone(), past[1].clone()
        each.begin(places, *tables(size, head_dim))
        found.append(each.attend(heads, keys, values))
        caches.append((keys, values))
    assert torch.allclose(*found, rtol=1e-5, atol=1e-5)
    for one, other, before in zip(*caches, past, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6)
        assert int((one != before).sum()) == rows * kv * head_dim  # one position of each row, no other


def test_attention_is_the_softmax_of_scaled_products() -> None:
    # Two positions, no turn: scores (1, 2) / sqrt 4 with the keys, so weights 1 / (1 + sqrt e) and its rest.
    head_dim, size = 4, LANES
    keys, values = torch.zeros(1, 1, head_dim, size), torch.zeros(1, 1, size, head_dim)
    keys[0, 0, 0, 0], values[0, 0, 0] = 1, torch.tensor([1.0, 0, 0, 0])
    heads = torch.tensor([[[1.0, 0, 0, 0], [2, 0, 0, 0], [0, 1, 0, 0]]])  # query, key, value
    for kernels in (TorchKernels(1, EPS), CompiledKernels(1, 1, head_dim, EPS)):
        kernels.begin(torch.tensor([1]), torch.ones(size, head_dim), torch.zeros(size, head_dim))
        first = 1 / (1 + torch.tensor(0.5).exp().item())
        found = kernels.attend(heads, keys.clone(), values.clone())
        assert torch.allclose(found, torch.tensor([[first, 1 - first, 0, 0]]), atol=1e-6)


def test_compiled_norms_are_torchs() -> None:
    torch.manual_seed(0)
    hidden, weight = 10 * torch.randn(5, 37), torch.randn(37)
    compiled = CompiledKernels(1, 1, 8, EPS).norm(hidden, weight)
    assert torch.allclose(compiled, TorchKernels(1, EPS).norm(hidden, weight), rtol=1e-5)


@pytest.mark.parametrize("broken", ["heads", "values"])
def test_s52_numbers_that_are_none_stay_so(broken: str) -> None:
    kernels = CompiledKernels(1, 1, 8, EPS)
    heads, values = torch.ones(1, 3, 8), torch.ones(1, 1, LANES, 8)
    (heads if broken == "heads" else values)[0, 0, 0] = torch.nan
    kernels.begin(torch.tensor([1]), *tables(LANES, 8))
    assert kernels.attend(heads, torch.ones(1, 1, 8, LANES), values).isnan().any()


@pytest.mark.parametrize(
    ("compiler", "reason"), [("", "no C compiler"), ("/nowhere/cc", "cannot be run"), ("false", "failed")]
)
def test_without_a_working_compiler_it_is_said_once_why(
    compiler: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", compiler)
    if not compiler:
        monkeypatch.setenv("PATH", str(tmp_path))
    can_compile.cache_clear()
    _load.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert not can_compile(1, 1, 8, EPS)
        assert not can_compile(1, 1, 8, EPS)
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert "takes longer" in record.getMessage()
    can_compile.cache_clear()
