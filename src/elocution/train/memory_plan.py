"""How much memory a run will take, from its config and the model's config.json alone. Loads no weights."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from elocution.assets import resolve_path
from elocution.config.tree import RunConfig
from elocution.data.prompt_files import read_rows
from elocution.errors import CheckpointError, DataError, MissingDependency
from elocution.rollout.speak import token_budget

__all__ = ["MemoryPlan", "ModelShape", "describe_memory", "plan_memory", "read_shape"]

_FP32 = 4  # bytes
_TILE = (1024, 2048)  # cells and ids whose logits the learner holds at once
_PROMPT_EXTRA = 16  # ids that a family's template adds to a text, about
_ASSUMED_CHARS = 200  # of the longest text, where the prompts cannot be read
_MIB = 1 << 20


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder with gated MLPs and grouped attention, as Llama and Qwen are."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    is_tied: bool

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: q and o, k and v, the three matrices of the MLP, two norms."""
        attention = 2 * self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim
        return self.hidden * (attention + 3 * self.intermediate + 2)

    @property
    def parameters(self) -> int:
        embeddings = self.vocab * self.hidden * (1 if self.is_tied else 2)
        return embeddings + self.layers * self.layer_parameters + self.hidden


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes in one process; all of it may be there at once, when an update is at its peak."""

    weights: int
    copies: int
    optimizer: int
    gradients: int
    sampling_weights: int
    kv_cache: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


def read_shape(path: Path) -> ModelShape | None:
    """The sizes in the file `path`, a config.json; None if it does not name them as Llama and Qwen do.

    Raises: CheckpointError if the file cannot be read.
    """
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    if not isinstance(written, dict) or not all(type(written.get(key)) is int and written[key] > 0 for key in keys):
        return None
    vocab, hidden, intermediate, layers, heads = (written[key] for key in keys)
    return ModelShape(
        vocab=vocab,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=written.get("num_key_value_heads") or heads,
        head_dim=written.get("head_dim") or hidden // heads,
        is_tied=bool(written.get("tie_word_embeddings")),
    )


def plan_memory(
    shape: ModelShape, config: RunConfig, *, prompt: int, completion: int, processes: int = 1
) -> MemoryPlan:
    """Expected bytes in each of `processes`, for texts of `prompt` ids and completions of `completion` ids at most.

    With N weights of which n are trained, n = N without an adapter, else rank times the sums of its layers' widths:
    weights      4 (N + n), policy and reference; 4 (N + n) too with an adapter, whose base is the reference
    copies       4 n for the weights that are sampled from, if they are others than are trained, and 4 n for each older
                 version that waits; with shards, whole weights once for sampling, once for evaluation and saving
    optimizer    8 n, two moments
    gradients    4 n
    sampling     for each of two engines: q, k, v, gate and up once more, with an adapter or in bf16 all matrices, in 2
                 bytes in bf16; and the output matrix in 4
    kv_cache     2 layers x rows x kv_heads x head_dim x (prompt + completion) numbers, for rows drawn at once in training
                 and in evaluation
    activations  for S positions of a micro-batch, B completions in it and h = heads x head_dim, numbers in each layer:
                 S (6 hidden + 3 h + 4 intermediate + heads + 2); the terms of h and intermediate in 2 bytes with bf16,
                 which adds the layer's weights in 2; with bf16 or a GPU, whose attention is padded,
                 2 h B (prompt + completion) keys and values unpacked + B completion (prompt + completion) mask;
                 with checkpointing S hidden in each layer and the rest in one
    logits       4 tiles of 1024 cells x 2048 ids
    Weights, optimiser and gradients are divided by `processes` with shards. Buffers of a GPU's libraries, the codec and
    the scorers are not counted; nor what the servers of another engine take.
    """
    train, lora = config.train, config.model.lora
    in_shards = train.parallel == "fsdp" and processes > 1
    has_engine = config.rollout.engine == "torch"
    trained = _adapter_parameters(shape, lora.rank) if lora.rank else shape.parameters
    split = processes if in_shards else 1
    is_bf16 = config.model.precision == "bf16"
    return MemoryPlan(
        weights=_FP32 * (shape.parameters + trained) // split,
        copies=_FP32 * _copied(shape, config, trained, in_shards=in_shards),
        optimizer=2 * _FP32 * trained // split,
        gradients=_FP32 * trained // split,
        sampling_weights=2 * _sampling_bytes(shape, is_bf16=is_bf16, is_merged=bool(lora.rank)) if has_engine else 0,
        kv_cache=_cache_bytes(shape, config, prompt + completion, is_bf16=is_bf16) if has_engine else 0,
        activations=_activation_bytes(shape, config, prompt, completion, is_bf16=is_bf16),
        logits=4
        * _FP32
        * min(_TILE[0], _largest_micro_batch(config, prompt, completion)[0])
        * min(_TILE[1], shape.vocab),
    )


def describe_memory(config: RunConfig, *, processes: int = 1) -> str:
    """The plan in words, for `--dry-run`; what is missing for it, if it cannot be made.

    Raises: CheckpointError if the model's config.json cannot be read.
    """
    path = resolve_path(config.model.path) / "config.json"
    if not path.is_file():
        return f"memory: unknown, there is no {path}"
    shape = read_shape(path)
    if shape is None:
        return f"memory: unknown, for {path} names the model's sizes in another way than Llama or Qwen"
    chars, prompt, source = _longest(resolve_path(config.data.train))
    completion = token_budget(
        "x" * chars, max_codes_per_char=config.rollout.max_codes_per_char, min_codes=config.rollout.min_codes
    )
    plan = plan_memory(shape, config, prompt=prompt + _PROMPT_EXTRA, completion=completion, processes=processes)
    lines = [f"{field.name.replace('_', ' '):18}{getattr(plan, field.name) / _MIB:10.1f}" for field in fields(plan)]
    of = f" in each of {processes} processes" if processes > 1 else ""
    return "\n".join(
        [
            f"memory: {plan.total / _MIB:.1f} MiB{of}, for {source} of {chars} characters; codec and scorers come on top",
            *(f"        {line}" for line in lines),
        ]
    )


def _longest(path: Path) -> tuple[int, int, str]:
    """Characters of the longest text, ids of the longest prompt at most, and what they are of.

    The codes of a voice count where they stand in the row; of a recording it is not known yet how many it has.
    """
    try:
        rows = [row.content for row in read_rows(path) if isinstance(row.content, dict)]
    except (DataError, MissingDependency):
        rows = []
    rows = [row for row in rows if isinstance(row.get("text"), str)]
    if not rows:
        return _ASSUMED_CHARS, _ASSUMED_CHARS, "a text"
    prompts = [
        len(row["text"]) + sum(len(row.get(key) or ()) for key in ("prompt_text", "prompt_codes")) for row in rows
    ]
    return max(len(row["text"]) for row in rows), max(prompts), "the longest text"


def _adapter_parameters(shape: ModelShape, rank: int) -> int:
    """One adapter beside every matrix of every layer."""
    own, other = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    widths = 2 * (shape.hidden + own) + 2 * (shape.hidden + other) + 3 * (shape.hidden + shape.intermediate)
    return shape.layers * rank * widths


def _copied(shape: ModelShape, config: RunConfig, trained: int, *, in_shards: bool) -> int:
    if in_shards:
        return (0 if trained == shape.parameters else shape.parameters) + (3 + config.train.max_lag) * trained
    return (2 + config.train.max_lag) * trained if config.train.max_lag else 0


def _sampling_bytes(shape: ModelShape, *, is_bf16: bool, is_merged: bool) -> int:
    own, other = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    stacked = shape.layers * shape.hidden * (own + 2 * other + 2 * shape.intermediate)
    rest = shape.layers * shape.hidden * (own + shape.intermediate)
    output = _FP32 * shape.vocab * shape.hidden
    return output + (2 * (stacked + rest) if is_bf16 else _FP32 * (stacked + (rest if is_merged else 0)))


def _cache_bytes(shape: ModelShape, config: RunConfig, positions: int, *, is_bf16: bool) -> int:
    batch = config.rollout.batch_size
    rows = min(batch, config.train.prompts_per_step * config.rollout.group_size) + min(batch, config.eval.sentences)
    return 2 * shape.layers * rows * shape.kv_heads * shape.head_dim * positions * (2 if is_bf16 else _FP32)


def _largest_micro_batch(config: RunConfig, prompt: int, completion: int) -> tuple[int, int]:
    """Positions and completions: as many whole groups as fit, at least one."""
    group = config.rollout.group_size
    positions = prompt + group * (completion - 1)
    groups = min(max(1, config.train.micro_batch_tokens // positions), config.train.prompts_per_step)
    return groups * positions, groups * group


def _activation_bytes(shape: ModelShape, config: RunConfig, prompt: int, completion: int, *, is_bf16: bool) -> int:
    positions, rows = _largest_micro_batch(config, prompt, completion)
    own, span = shape.heads * shape.head_dim, prompt + completion
    in_fp32 = positions * (6 * shape.hidden + shape.heads + 2)
    in_products = positions * (3 * own + 4 * shape.intermediate)
    is_on_cpu = config.train.device == "cpu" or (config.train.device == "auto" and not torch.cuda.is_available())
    if is_bf16 or not is_on_cpu:
        in_fp32 += rows * completion * span
        in_products += 2 * own * rows * span
    layer = _FP32 * in_fp32 + (2 if is_bf16 else _FP32) * in_products + (2 * shape.layer_parameters if is_bf16 else 0)
    head = _FP32 * 5 * positions * shape.hidden  # the last norm, its result, and that of the cells alone
    if config.train.activation_checkpointing:
        return head + layer + _FP32 * shape.layers * positions * shape.hidden
    return head + layer * shape.layers
