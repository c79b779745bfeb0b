"""Proven syncs to a real vLLM server, by each strategy."""

from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import save_file

from elocution.assets import resolve_path
from elocution.config.tree import LoraSettings, SyncSettings
from elocution.errors import SyncError
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import adapter_parameters, add_adapter
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.build import build_synced_engine
from elocution.rollout.sync.engine import SyncedEngine
from elocution.rollout.vllm import VllmEngine
from elocution.rollout.vllm_servers import VllmServers
from elocution.types import Utterance

BASE = "builtin:tiny-llasa"
UTTERANCES = [
    Utterance(str(i), text) for i, text in enumerate(("the doctor visited the school", "nine nine seven one"))
]


def synced(
    policy: LlasaPolicy, servers: VllmServers, root: Path, strategy: Literal["full", "delta", "adapter"], *, untie: bool
) -> SyncedEngine:
    if strategy != "full":
        settings = LoraSettings(rank=4)
        add_adapter(policy.model, settings, targets=policy.lora_targets, seed=1, base_path=str(resolve_path(BASE)))
    servers.start()
    return build_synced_engine(
        VllmEngine(policy, servers, temperature=0.9),
        policy,
        SyncSettings(strategy=strategy, probes=2, probe_codes=24, max_retries=0),
        base=BASE,
        precision="fp32",
        trained=adapter_parameters(policy.model) or dict(policy.model.named_parameters()),
        utterances=UTTERANCES,
        root=root / "sync",
        seed=2,
        untie=untie,
    )


def load_base(policy: LlasaPolicy, servers: VllmServers, folder: Path) -> None:
    """Undoes what tests before have loaded: an adapter is put on whatever the server has."""
    policy.save_pretrained(str(folder / "base"))
    save_file({"lm_head.weight": policy.llama.get_output_embeddings().weight}, folder / "base" / "head.safetensors")
    servers.start()
    servers.load_weights(folder / "base", 0)


@pytest.mark.parametrize("strategy", ["full", "delta", "adapter"])
def test_s62_s66_a_vllm_server_is_proven_to_have_each_version(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path, strategy: Literal["full", "delta", "adapter"]
) -> None:
    load_base(tiny_policy, tiny_servers, tmp_path)
    engine = synced(tiny_policy, tiny_servers, tmp_path, strategy, untie=True)
    request = RolloutRequest(tiny_policy.prompt_ids(UTTERANCES[0]), ((1,),), 10)
    generator = torch.Generator().manual_seed(0)
    for version in (0, 1, 2):
        engine.publish(version)
        assert engine.metrics()["sync/probe_difference_max_nats"] < 1e-4
        assert engine.metrics()["sync/followed_share"] == pytest.approx(1, abs=0.05)
        assert engine.metrics()["sync/is_told"] == 1
        assert engine.generate([request])[0][0].policy_version == version
        with torch.no_grad():
            for parameter in tiny_policy.model.parameters():
                if parameter.requires_grad:
                    parameter.add_(1e-4 * torch.randn(parameter.shape, generator=generator))


def test_s62_an_adapter_on_a_server_with_another_base_is_noticed_before_training(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    engine = synced(tiny_policy, tiny_servers, tmp_path, "adapter", untie=True)
    moved = LlasaPolicy.from_pretrained(resolve_path(BASE))
    with torch.no_grad():
        moved.model.get_parameter("model.layers.3.mlp.up_proj.weight").mul_(1.01)
    load_base(moved, tiny_servers, tmp_path)
    with pytest.raises(SyncError, match="differ from the trainer's"):
        engine.publish(0)


def test_s62_tied_weights_under_one_name_alone_are_refused_before_training(
    tiny_policy: LlasaPolicy, tiny_servers: VllmServers, tmp_path: Path
) -> None:
    with pytest.raises(
        SyncError, match=r"not proven to have the rehearsal.* has tied embeddings and no lm_head\.weight"
    ):
        synced(tiny_policy, tiny_servers, tmp_path, "full", untie=False).publish(0)
