"""The `config.json` of a Llama or Qwen2 checkpoint, checked field by field before anything is built from it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from transformers import LlamaConfig, Qwen2Config

from elocution.errors import CheckpointError

__all__ = ["LlamaFields", "read_llama_config"]

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0)]
Id = Annotated[int, Field(ge=0)]

_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class LlamaFields(BaseModel):
    """All that is read of a config; a size that is not there would be that of another model.

    Attention and MLP must be those of a plain Llama, because sampling computes them with operations of its own.
    """

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    model_type: Literal["llama", "qwen2"]
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: int = Field(ge=1, le=1000)
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    max_position_embeddings: int = Field(ge=1, le=1_000_000_000)
    rms_norm_eps: float = Field(default=1e-6, gt=0, lt=1)
    tie_word_embeddings: bool = False
    hidden_act: Literal["silu"] = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    initializer_range: float = Field(default=0.02, ge=0, le=1)
    use_cache: bool = True
    bos_token_id: Id | None = None
    eos_token_id: Id | list[Id] | None = None
    pad_token_id: Id | None = None
    rope_theta: Positive | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    quantization_config: None = None
    use_sliding_window: Literal[False] = False
    codec_frame_rate: Positive | None = None
    """Codes per second of the codec that the checkpoint was taught with, where it says so."""

    @model_validator(mode="after")
    def _check_across_fields(self) -> Self:
        heads, groups = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        if self.hidden_size % heads:
            raise ValueError(f"hidden_size = {self.hidden_size} is no multiple of num_attention_heads = {heads}")
        if heads % groups:
            raise ValueError(f"num_attention_heads = {heads} is no multiple of num_key_value_heads = {groups}")
        if (self.head_dim or self.hidden_size // heads) % 2:
            raise ValueError("the size of a head must be even, for positions turn pairs of its numbers")
        for field in ("attention_bias", "mlp_bias"):
            if getattr(self, field):
                raise ValueError(f"{field} = true, but the layers of this family have no biases")
        eos = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        for field, ids in (("bos", [self.bos_token_id]), ("eos", eos), ("pad", [self.pad_token_id])):
            if any(token is not None and token >= self.vocab_size for token in ids):
                raise ValueError(f"{field}_token_id = {ids} must be below vocab_size = {self.vocab_size}")
        for field in ("rope_parameters", "rope_scaling"):
            _check_rope(field, getattr(self, field) or {})
        return self


def read_llama_config(
    path: Path, *, family: str = "llasa", model_types: Sequence[str] = ("llama",)
) -> LlamaConfig | Qwen2Config:
    """The config in the file `path`; fields that nothing here reads are left out. A Qwen2 is a Llama whose queries, keys and
    values have a bias.

    Raises: CheckpointError naming the file and the field if it is no config of a model that can be trained here.
    """
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(written, dict):
        raise CheckpointError(f"{path} must hold a JSON object, found {type(written).__name__}")
    if written.get("model_type") not in model_types:
        taken = " or ".join(map(repr, model_types))
        raise CheckpointError(
            f"{path} has model_type {written.get('model_type')!r}, the family {family} takes {taken}; check model.family"
        )
    try:
        fields = LlamaFields.model_validate(written)
    except ValidationError as error:
        raise CheckpointError("; ".join(_problem(path, problem) for problem in error.errors())) from error
    given = {key: value for key, value in fields if value is not None}
    kind: type[LlamaConfig] | type[Qwen2Config] = LlamaConfig
    if given.pop("model_type") == "qwen2":
        kind = Qwen2Config
        given = {key: value for key, value in given.items() if key not in ("attention_bias", "mlp_bias")}
    try:
        return kind(**given | {key: None for key in ("bos_token_id", "eos_token_id") if key not in given})
    except Exception as error:  # transformers checks in ways of its own
        raise CheckpointError(f"{path}: {error}") from error


def _problem(path: Path, problem: Any) -> str:
    field = ".".join(str(part) for part in problem["loc"])
    reason = problem["msg"].removeprefix("Value error, ")
    if not field:
        return f"{path}: {reason}"
    if problem["type"] == "missing":
        return f"{path}: the field {field} is missing"
    return f"{path}: {field} = {problem['input']!r:.80}: {reason}"


def _check_rope(field: str, values: dict[str, Any]) -> None:
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in _ROPE_TYPES:
        raise ValueError(f"{field}.rope_type = {kind!r:.80} must be one of {', '.join(_ROPE_TYPES)}")
    for key, value in values.items():
        if key not in ("rope_type", "type") and (type(value) not in (int, float) or not 0 < value < float("inf")):
            raise ValueError(f"{field}.{key} = {value!r:.80} must be a positive number")
    missing = {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "factor"} - values.keys()
    if kind == "llama3" and missing:
        raise ValueError(f"{field} has no {', '.join(sorted(missing))}, which rope_type = 'llama3' needs")
    if kind != "default" and "factor" not in values:
        raise ValueError(f"{field} has no factor, which rope_type = {kind!r} needs")
