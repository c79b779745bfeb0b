"""A small policy with a base on the disk in several files, an adapter, and what a sync of it is made of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sync_trainer import UTTERANCES, Strategy, Trainer, loaded_engine
from transformers import LlamaConfig, LlamaForCausalLM

from elocution.policies import load_policy
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import LoraSettings, adapter_parameters, add_adapter, describe_base
from elocution.rollout.sync.engine import SyncedEngine
from elocution.rollout.sync.payloads import AdapterPayload, Payload, WeightsPayload
from elocution.rollout.sync.probes import draw_probes
from elocution.rollout.sync.proof import LogprobProof, Proof
from elocution.rollout.sync.store import VersionStore
from elocution.testing.policies import SMALL_WORDS
from elocution.tiny.pretrain import build_tokenizer


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 0.2 M parameters in several files, with weights so large that they matter to its log-probs."""
    tokenizer = build_tokenizer(SMALL_WORDS, 16)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    policy = LlasaPolicy(LlamaForCausalLM(config), tokenizer)
    with torch.no_grad():
        policy.llama.get_output_embeddings().weight[policy.stop_id] = 0
    path = tmp_path_factory.mktemp("base") / "checkpoint"
    policy.llama.save_pretrained(path, max_shard_size="100KB")
    policy.tokenizer.save_pretrained(path)
    assert len(list(path.glob("*.safetensors"))) > 3
    return path


@pytest.fixture
def make_trainer(base: Path) -> Callable[..., Trainer]:
    def make(strategy: Strategy = "delta", precision: str = "fp32") -> Trainer:
        policy = load_policy("llasa", base, precision=precision)
        assert isinstance(policy, LlasaPolicy)
        policy.model.eval()
        probes = draw_probes(policy, UTTERANCES, count=3, length=40, seed=5)
        if strategy == "full":
            return Trainer(policy, dict(policy.model.named_parameters()), base, probes)
        add_adapter(policy.model, LoraSettings(rank=4), targets=policy.lora_targets, seed=1, base_path=str(base))
        return Trainer(policy, adapter_parameters(policy.model), base, probes)

    return make


@pytest.fixture
def make_synced(tmp_path: Path) -> Callable[..., SyncedEngine]:
    """Builds the engine of a trainer; `engine` may be a broken one."""

    def make(
        trainer: Trainer,
        strategy: Strategy = "delta",
        *,
        engine: Any = None,
        proof: Proof | None = None,
        max_retries: int = 0,
        restart: Callable[[], None] | None = None,
    ) -> SyncedEngine:
        made = engine or loaded_engine()
        store = VersionStore(tmp_path / "sync")
        payload: Payload = (
            AdapterPayload(trainer.policy.model, describe_base(str(trainer.base)))
            if strategy == "adapter"
            else WeightsPayload(
                trainer.policy.model,
                trainer.base,
                strategy=strategy,
                shared=store.root / "shared",
                max_shard_bytes=100_000,
            )
        )
        return SyncedEngine(
            made,
            made.load_adapter if strategy == "adapter" else made.load_weights,
            payload,
            proof or LogprobProof(trainer.policy, made, trainer.probes, max_difference=1e-3),
            store,
            trained=trainer.trained,
            seed=0,
            max_retries=max_retries,
            restart=restart,
        )

    return make
