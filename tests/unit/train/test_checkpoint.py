import errno
import re
from pathlib import Path

import pytest
import torch

from elocution.errors import CheckpointError, StorageError
from elocution.policies.llasa import LlasaPolicy
from elocution.testing.policies import small_llasa
from elocution.train.checkpoint import (
    latest_checkpoint,
    load_optimizer,
    load_reward_state,
    point_best_at,
    save_checkpoint,
    verify_checkpoint,
)


def stepped() -> tuple[LlasaPolicy, torch.optim.Optimizer]:
    policy = small_llasa()
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.1)
    policy.llama(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    optimizer.step()
    return policy, optimizer


def save(folder: Path, step: int, keep: int = 2) -> None:
    policy, optimizer = stepped()
    save_checkpoint(
        folder, policy.save_pretrained, optimizer.state_dict(), step=step, policy_version=2 * step, keep=keep
    )


def test_weights_and_optimiser_come_back_to_the_bit(tmp_path: Path) -> None:
    policy, optimizer = stepped()
    saved = save_checkpoint(
        tmp_path / "checkpoints", policy.save_pretrained, optimizer.state_dict(), step=3, policy_version=6, keep=1
    )
    found = latest_checkpoint(tmp_path / "checkpoints")
    assert found == saved
    assert (found.step, found.policy_version) == (3, 6)
    again = LlasaPolicy.from_pretrained(found.model_path)
    for one, other in zip(policy.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    restored = torch.optim.AdamW(again.model.parameters(), lr=0.5)
    load_optimizer(found, restored)
    assert restored.param_groups[0]["lr"] == 0.1
    for one, other in zip(policy.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(optimizer.state[one]["exp_avg_sq"], restored.state[other]["exp_avg_sq"])


def test_only_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, 1)
    point_best_at(tmp_path, verify_checkpoint(folder / "step_1"))
    for step in (2, 10, 9):
        save(folder, step)
    assert sorted(path.name for path in folder.iterdir()) == ["step_1", "step_10", "step_9"]
    assert (tmp_path / "best").resolve() == (folder / "step_1").resolve()


def test_a_folder_of_another_name_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints", 1)
    for name in ("step_two", "step_2.old", "step_"):
        (tmp_path / "checkpoints" / name).mkdir()
    found = latest_checkpoint(tmp_path / "checkpoints")
    assert found is not None
    assert found.step == 1


@pytest.mark.parametrize("name", ["model/model.safetensors", "optimizer.pt", "state.json"])
@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_a_damaged_checkpoint_is_named_and_never_used(tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, 1)
    save(folder, 2)
    file = folder / "step_2" / name
    if damage == "truncate":
        file.write_bytes(file.read_bytes()[:-7])
    else:
        file.unlink()
    with pytest.raises(CheckpointError, match=rf"step_2.*{re.escape(Path(name).name)}"):
        latest_checkpoint(folder)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    class FullDisk(LlasaPolicy):
        def save_pretrained(self, path: str) -> None:
            Path(path).mkdir()
            (Path(path) / "model.safetensors").write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    policy, optimizer = stepped()
    full = FullDisk(policy.llama, policy.tokenizer)
    with pytest.raises(StorageError, match="no space left"):
        save_checkpoint(
            tmp_path / "checkpoints", full.save_pretrained, optimizer.state_dict(), step=1, policy_version=1, keep=1
        )
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert latest_checkpoint(tmp_path / "checkpoints") is None


def test_s77_what_the_reward_carries_comes_back_to_the_bit_and_is_checked(tmp_path: Path) -> None:
    policy, optimizer = stepped()
    state = {"baselines": {"voice": {"mean": 0.1 + 0.2, "count": 3}}}
    for step, carried in enumerate([None, state]):
        save_checkpoint(
            tmp_path,
            policy.save_pretrained,
            optimizer.state_dict(),
            step=step,
            policy_version=0,
            keep=2,
            reward_state=carried,
        )
    assert load_reward_state(verify_checkpoint(tmp_path / "step_0")) == {}
    assert load_reward_state(verify_checkpoint(tmp_path / "step_1")) == state
    (tmp_path / "step_1" / "reward.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"damaged: reward\.json"):
        verify_checkpoint(tmp_path / "step_1")
