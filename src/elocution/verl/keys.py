"""Which keys of a run's config veRL follows, and which mean nothing to it; any other is refused where it is not left alone.

So a key that is new in the config is refused until it stands here.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from elocution.config.load import different_keys
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError

__all__ = ["ADVANTAGES", "CORRECTIONS", "KL_ESTIMATES", "LOSSES", "READ", "SAID", "UNREAD", "check_expressible"]

ADVANTAGES = {"grpo": ("grpo", True), "dr_grpo": ("grpo", False), "rloo": ("rloo", True)}
"""veRL's estimator of an advantage, and whether it divides by the standard deviation."""
LOSSES = {"clipped": "vanilla", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo"}
KL_ESTIMATES = {"k1": "k1", "k2": "k2", "k3": "low_var_kl"}
CORRECTIONS = {"none": None, "token_truncate": "token", "sequence_truncate": "sequence"}

SAID = frozenset(
    {
        "seed",
        *(f"model.{key}" for key in ("precision", "lora.rank", "lora.alpha", "lora.target_modules")),
        *(f"rollout.{key}" for key in ("group_size", "temperature")),
        *(
            f"algorithm.{key}"
            for key in ("advantage", "loss", "aggregation", "fixed_length", "max_resamples", "epochs")
        ),
        *(f"algorithm.{key}" for key in ("clip_low", "clip_high", "dual_clip", "tau_positive", "tau_negative")),
        *(f"algorithm.{key}" for key in ("kl_coef", "kl_estimate", "entropy_coef", "correction", "correction_high")),
        *(f"train.{key}" for key in ("steps", "prompts_per_step", "minibatches", "activation_checkpointing")),
        *(f"train.{key}" for key in ("learning_rate", "warmup_steps", "lr_schedule", "lr_min")),
        *(f"train.{key}" for key in ("betas", "weight_decay", "max_grad_norm", "save_every", "keep_checkpoints")),
        *(f"eval.{key}" for key in ("sentences", "temperature", "every")),
        *(f"verl.{key}" for key in ("nodes", "gpus_per_node", "strategy", "micro_batch_per_gpu", "tensor_parallel")),
        *(f"verl.{key}" for key in ("gpu_memory_share", "top_k", "top_p", "max_prompt_tokens", "overrides")),
    }
)
"""Keys that overrides of veRL's say."""

READ = frozenset(
    {
        *("model.family", "model.path", "data.train", "data.held_out", "data.languages"),
        *("rollout.min_codes", "rollout.max_codes_per_char", "algorithm.truncated", "verl.python"),
        *("reward.type", "reward.max_unscored_share", "reward.self_test.*", "reward.remote.*"),
    }
)
"""Patterns of the keys that our launcher and our reward function for veRL follow."""

UNREAD = frozenset(
    {
        *(
            "codec.*",
            "reward.*",
            "reward_server.*",
            "data.voice_cache",
        ),  # of the reward servers, and of recorded voices
        *("rollout.engine", "rollout.batch_size", "rollout.compile"),  # veRL samples with vLLM servers of its own
        *("rollout.server.*", "rollout.sglang.*", "rollout.sync.*"),
        *("train.device", "train.parallel", "train.wait_s", "train.micro_batch_tokens"),  # in place of them: [verl]
        *(f"eval.{key}" for key in ("judge", "judge_path", "on_collapse", "bootstrap_samples", "probe_sentences")),
        *(f"eval.{key}" for key in ("seeds", "voices", "speaker", "speaker_path", "quality", "simplifier")),
        *("eval.sets", "eval.sets.*"),
    }
)
"""Patterns of the keys, beyond those above, that change nothing of what veRL learns."""

_VALUES: Mapping[str, tuple[object, ...]] = {
    "model.family": ("cosyvoice2", "cosyvoice3"),
    "reward.type": ("remote",),
    "algorithm.advantage": tuple(ADVANTAGES),
    "algorithm.std_floor": (RunConfig().algorithm.std_floor, 1e-6),  # left alone, or what veRL adds
    "algorithm.loss": tuple(LOSSES),
    "algorithm.kl_estimate": tuple(KL_ESTIMATES),
    "algorithm.correction": tuple(CORRECTIONS),
    "algorithm.truncated": ("floor", "keep"),
    "train.lr_schedule": ("constant", "cosine"),
}


def check_expressible(config: RunConfig) -> None:
    """Raises: ConfigError naming every key whose value veRL cannot follow, and what it can."""
    default = RunConfig()
    wanted = dict(_VALUES)
    for key in different_keys(default, config):
        if key not in wanted and not _is_known(key):
            wanted[key] = (_value(default, key),)
    refused = [
        f"{key} = {_value(config, key)!r} (veRL: {', '.join(repr(one) for one in allowed)})"
        for key, allowed in wanted.items()
        if _value(config, key) not in allowed
    ]
    if refused:
        raise ConfigError(f"veRL cannot do what the config asks: {'; '.join(refused)}; docs/verl.md has the reasons")


def _is_known(key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in (*SAID, *READ, *UNREAD))


def _value(config: RunConfig, key: str) -> object:
    """The value of the full name `key`, of a table's entry too; None for an entry that the table lacks."""
    value: object = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return value
