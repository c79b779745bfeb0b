"""Who may read what is written is the umask's to say, for every writer."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from elocution.audio import write_wav
from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.config.tree import LoraSettings
from elocution.files import apply_umask
from elocution.policies.lora import add_adapter, describe_base, save_adapter
from elocution.testing.policies import small_llasa
from elocution.train.checkpoint import save_checkpoint
from elocution.types import Audio


@pytest.fixture
def group_writes() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("group_writes")
def test_every_file_and_folder_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    policy = small_llasa()
    optimizer = torch.optim.AdamW(policy.model.parameters())
    save_checkpoint(tmp_path / "run", policy.save_pretrained, optimizer.state_dict(), step=1, policy_version=1, keep=1)
    settings = MelSettings(num_bands=4)
    TinyCodec(torch.zeros(3, 16), settings).save_pretrained(tmp_path / "codec")
    write_wav(tmp_path / "audio" / "clip.wav", Audio(torch.zeros(160).numpy(), 16_000))
    add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0)
    save_adapter(policy.model, str(tmp_path / "adapter"), base=describe_base("builtin:tiny-llasa"))
    modes = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    wrong = {path: oct(mode) for path, mode in modes.items() if mode not in (0o664, 0o775)}
    assert len(modes) > 15
    assert wrong == {}


@pytest.mark.usefixtures("group_writes")
def test_applying_the_umask_leaves_nothing_else_behind(tmp_path: Path) -> None:
    (tmp_path / "private").touch(0o600)
    apply_umask(tmp_path / "private")
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.iterdir()] == [("private", 0o664)]
