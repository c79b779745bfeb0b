"""A run's config in veRL's words: Hydra overrides of `verl.trainer.main_ppo`, as veRL 0.9 knows them. Pure.

Source: `verl/trainer/config` of veRL 0.9.1. What veRL cannot do as the config says is refused, never left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elocution.config.tree import AlgorithmConfig, RunConfig
from elocution.errors import ConfigError
from elocution.verl.keys import ADVANTAGES, CORRECTIONS, KL_ESTIMATES, LOSSES, check_expressible

__all__ = ["VerlFiles", "check_arithmetic", "hydra_overrides"]

_AGGREGATIONS = {"token": "token-mean", "sequence": "seq-mean-token-mean", "fixed": "seq-mean-token-sum-norm"}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
_NO_DUAL_CLIP = 1e9  # veRL always has one


@dataclass(frozen=True)
class VerlFiles:
    """What a run of veRL reads and writes: absolute paths. `budget` is the longest completion of any prompt, ids."""

    model: Path
    train: Path
    held_out: Path
    config: Path
    checkpoints: Path
    budget: int


def check_arithmetic(config: RunConfig) -> None:
    """Raises: ConfigError naming the keys whose numbers do not divide as veRL needs."""
    train, verl = config.train, config.verl
    gpus = verl.nodes * verl.gpus_per_node
    completions = train.prompts_per_step * config.rollout.group_size
    if train.prompts_per_step % train.minibatches:
        raise ConfigError(
            f"train.prompts_per_step = {train.prompts_per_step} is no multiple of train.minibatches = {train.minibatches}"
        )
    in_minibatch = completions // train.minibatches
    if in_minibatch % gpus or in_minibatch // gpus % verl.micro_batch_per_gpu:
        raise ConfigError(
            f"a minibatch of {in_minibatch} completions (train.prompts_per_step x rollout.group_size / train.minibatches) "
            f"must be a multiple of {gpus} GPUs x verl.micro_batch_per_gpu = {verl.micro_batch_per_gpu}"
        )
    if verl.gpus_per_node % verl.tensor_parallel:
        raise ConfigError(
            f"verl.gpus_per_node = {verl.gpus_per_node} is no multiple of verl.tensor_parallel = {verl.tensor_parallel}"
        )


def hydra_overrides(config: RunConfig, files: VerlFiles) -> list[str]:
    """The command line of `verl.trainer.main_ppo`; `verl.overrides` last, so that they win.

    Raises: ConfigError as `check_expressible` and `check_arithmetic`.
    """
    check_expressible(config)
    check_arithmetic(config)
    groups = (
        _data(config, files),
        _algorithm(config.algorithm),
        _model(config, files),
        _actor(config),
        _rollout(config),
        _reward(files),
        _trainer(config, files),
    )
    return [f"{key}={_text(value)}" for group in groups for key, value in group.items()] + list(config.verl.overrides)


def _data(config: RunConfig, files: VerlFiles) -> Mapping[str, object]:
    return {
        "data.train_files": files.train,
        "data.val_files": files.held_out,
        "data.train_batch_size": config.train.prompts_per_step,
        "data.max_prompt_length": config.verl.max_prompt_tokens,
        "data.max_response_length": files.budget,
        "data.val_max_samples": config.eval.sentences,
        "data.truncation": "error",
        "data.seed": config.seed,
    }


def _algorithm(algorithm: AlgorithmConfig) -> Mapping[str, object]:
    estimator, by_std = ADVANTAGES[algorithm.advantage]
    correction = "algorithm.rollout_correction.rollout_is"
    return {
        "algorithm.adv_estimator": estimator,
        "algorithm.norm_adv_by_std_in_grpo": by_std,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": algorithm.max_resamples > 0,
        "algorithm.filter_groups.max_num_gen_batches": algorithm.max_resamples,
        correction: CORRECTIONS[algorithm.correction],
        f"{correction}_threshold": algorithm.correction_high,
    }


def _model(config: RunConfig, files: VerlFiles) -> Mapping[str, object]:
    prefix, lora = "actor_rollout_ref.model", config.model.lora
    adapter: dict[str, object] = (
        {f"{prefix}.lora_rank": lora.rank, f"{prefix}.lora_alpha": lora.alpha} if lora.rank else {}
    )
    if lora.rank and lora.target_modules:
        adapter[f"{prefix}.target_modules"] = list(lora.target_modules)
    return {
        f"{prefix}.path": files.model,
        f"{prefix}.enable_gradient_checkpointing": config.train.activation_checkpointing,
        **adapter,
    }


def _actor(config: RunConfig) -> Mapping[str, object]:
    prefix, algorithm, train = "actor_rollout_ref.actor", config.algorithm, config.train
    fixed = {f"{prefix}.loss_scale_factor": algorithm.fixed_length} if algorithm.fixed_length else {}
    return {
        f"{prefix}.strategy": config.verl.strategy,
        f"{prefix}.fsdp_config.dtype": _DTYPES[config.model.precision],
        f"{prefix}.ppo_mini_batch_size": train.prompts_per_step // train.minibatches,
        f"{prefix}.ppo_micro_batch_size_per_gpu": config.verl.micro_batch_per_gpu,
        f"{prefix}.ppo_epochs": algorithm.epochs,
        f"{prefix}.policy_loss.loss_mode": LOSSES[algorithm.loss],
        f"{prefix}.clip_ratio_low": algorithm.clip_low,
        f"{prefix}.clip_ratio_high": algorithm.clip_high,
        f"{prefix}.clip_ratio_c": algorithm.dual_clip or _NO_DUAL_CLIP,
        f"{prefix}.tau_pos": algorithm.tau_positive,
        f"{prefix}.tau_neg": algorithm.tau_negative,
        f"{prefix}.loss_agg_mode": _AGGREGATIONS[algorithm.aggregation],
        **fixed,
        f"{prefix}.entropy_coeff": algorithm.entropy_coef,
        f"{prefix}.use_kl_loss": algorithm.kl_coef > 0,
        f"{prefix}.kl_loss_coef": algorithm.kl_coef,
        f"{prefix}.kl_loss_type": KL_ESTIMATES[algorithm.kl_estimate],
        f"{prefix}.optim.lr": train.learning_rate,
        f"{prefix}.optim.betas": list(train.betas),
        f"{prefix}.optim.weight_decay": train.weight_decay,
        f"{prefix}.optim.clip_grad": train.max_grad_norm,
        f"{prefix}.grad_clip": train.max_grad_norm,
        f"{prefix}.optim.lr_warmup_steps": train.warmup_steps,
        f"{prefix}.optim.lr_scheduler_type": train.lr_schedule,
        f"{prefix}.optim.min_lr_ratio": train.lr_min / train.learning_rate,
    }


def _rollout(config: RunConfig) -> Mapping[str, object]:
    prefix, verl = "actor_rollout_ref.rollout", config.verl
    top_k = verl.top_k or -1
    return {
        f"{prefix}.name": "vllm",
        f"{prefix}.dtype": _DTYPES[config.model.precision],
        f"{prefix}.n": config.rollout.group_size,
        f"{prefix}.temperature": config.rollout.temperature,
        f"{prefix}.top_k": top_k,
        f"{prefix}.top_p": verl.top_p,
        f"{prefix}.seed": config.seed,
        f"{prefix}.tensor_model_parallel_size": verl.tensor_parallel,
        f"{prefix}.gpu_memory_utilization": verl.gpu_memory_share,
        f"{prefix}.log_prob_micro_batch_size_per_gpu": verl.micro_batch_per_gpu,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": verl.micro_batch_per_gpu,
        f"{prefix}.val_kwargs.do_sample": True,  # greedy speech goes round in circles
        f"{prefix}.val_kwargs.temperature": config.eval.temperature,
        f"{prefix}.val_kwargs.top_k": top_k,
        f"{prefix}.val_kwargs.top_p": verl.top_p,
    }


def _reward(files: VerlFiles) -> Mapping[str, object]:
    return {
        "reward.custom_reward_function.path": "pkg://elocution.verl.score",
        "reward.custom_reward_function.name": "compute_score",
        "+reward.custom_reward_function.reward_kwargs.config": files.config,
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.module.path": "pkg://elocution.verl.manager",
        "reward.reward_manager.name": "SpeechRewardManager",
    }


def _trainer(config: RunConfig, files: VerlFiles) -> Mapping[str, object]:
    train = config.train
    return {
        "trainer.nnodes": config.verl.nodes,
        "trainer.n_gpus_per_node": config.verl.gpus_per_node,
        "trainer.total_training_steps": train.steps,
        "trainer.total_epochs": train.steps,  # an epoch has a step at least: the steps decide
        "trainer.save_freq": train.save_every,
        "trainer.max_actor_ckpt_to_keep": train.keep_checkpoints,
        "trainer.test_freq": config.eval.every or -1,
        "trainer.default_local_dir": files.checkpoints,
        "trainer.project_name": "elocution",
        "trainer.experiment_name": files.config.parent.name,
        "trainer.logger": ["console"],
    }


def _text(value: object) -> str:
    """`value` as Hydra's grammar reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_text(one) for one in value)}]"
    if isinstance(value, Path):
        return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
