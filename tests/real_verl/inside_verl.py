"""Tasks that veRL's Python runs for the tests of this folder: `inside_verl.py TASK ARGUMENTS` prints what it found as JSON."""

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from transformers import AutoModelForCausalLM
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager
from verl.utils import hf_tokenizer
from verl.utils.config import omega_conf_to_dataclass


def compose(overrides: list[str]) -> DictConfig:
    """veRL's config with `overrides`, as its trainer makes it."""
    import verl
    from hydra import compose as compose_config
    from hydra import initialize_config_dir

    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        return compose_config("ppo_trainer", overrides)


def types(overrides: list[str]) -> dict[str, Any]:
    """The config in veRL's own dataclasses, which check it."""
    config = compose(overrides)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    actor.validate(
        config.trainer.nnodes * config.trainer.n_gpus_per_node,
        config.data.train_batch_size,
        config.actor_rollout_ref.model,
    )
    return {
        "actor": type(actor).__name__,
        "rollout": type(rollout).__name__,
        "group": rollout.n,
        "clip": [actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c],
        "lr": actor.optim.lr,
    }


def prompts(overrides: list[str]) -> dict[str, Any]:
    """What veRL's dataset makes of the training parquet, and the ids of its first prompt as veRL's agent loop renders them."""
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    config = compose(overrides)
    tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)
    dataset = RLHFDataset(config.data.train_files, tokenizer, config.data)
    batch = collate_fn([dataset[index] for index in range(2)])
    chat = list(batch["raw_prompt"][0])
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    return {
        "rows": len(dataset),
        "indices": [int(index) for index in batch["index"]],
        "ids": tokenizer.encode(text, add_special_tokens=False),
        "truth": batch["reward_model"][0]["ground_truth"],
    }


def rewards(overrides: list[str], completions: list[list[int]], texts: list[str], room: int) -> list[dict[str, Any]]:
    """What the reward manager that the overrides name makes of `completions`, ids without padding, as a batch."""
    config = compose(overrides)
    tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)
    manager = load_reward_manager(config, tokenizer, reward_router_address=None, reward_model_tokenizer=None)
    lengths = torch.tensor([len(ids) for ids in completions])
    responses = torch.stack([torch.tensor(ids + [0] * (room - len(ids))) for ids in completions])
    answered = (torch.arange(room)[None] < lengths[:, None]).long()
    tensors = {
        "prompts": torch.zeros(len(completions), 2, dtype=torch.long),
        "responses": responses,
        "attention_mask": torch.cat([torch.ones(len(completions), 2, dtype=torch.long), answered], dim=1),
    }
    rows = {
        "data_source": np.array(["d"] * len(completions), dtype=object),
        "reward_model": np.array([{"style": "rule", "ground_truth": text} for text in texts], dtype=object),
        "extra_info": np.array([{"index": index} for index in range(len(completions))], dtype=object),
    }
    data = DataProto(TensorDict(tensors, batch_size=len(completions)), rows)

    async def all_of_them() -> list[dict[str, Any]]:
        return [await manager.run_single(data[index : index + 1]) for index in range(len(completions))]

    found = asyncio.run(all_of_them())
    placed = type(manager).assemble_rm_scores(data, [one["reward_score"] for one in found])
    return [{**one, "placed": row.nonzero().ravel().tolist()} for one, row in zip(found, placed, strict=True)]


def shards(model: str, folder: str) -> int:
    """Writes `model` as two ranks of veRL with FSDP2 do, each its part of every tensor, and returns how many tensors there are."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_write_shard, args=(port, model, folder), nprocs=2)
    return len(AutoModelForCausalLM.from_pretrained(model).state_dict())


def _write_shard(rank: int, port: int, model: str, folder: str) -> None:
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    tensors = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    parts = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in tensors.items()}
    torch.save(parts, Path(folder) / f"model_world_size_2_rank_{rank}.pt")
    torch.distributed.destroy_process_group()


TASKS = {"types": types, "prompts": prompts, "rewards": rewards, "shards": shards}

if __name__ == "__main__":
    result = TASKS[sys.argv[1]](**json.loads(sys.argv[2]))
    print()
    print(json.dumps(result))
