"""The `config.json` of a MossTTSDelay checkpoint, checked before anything is built from it."""

import json
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from transformers import PreTrainedConfig, Qwen3Config

from elocution.errors import CheckpointError
from elocution.policies.delay_pattern import SlotIds

__all__ = ["MossFields", "MossTTSDelayConfig", "read_moss_config"]

_MODEL_TYPE = "moss_tts_delay"
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)


class MossFields(BaseModel):
    """What is read of a config beside its language model. Ids default to those of the release, sizes to nothing."""

    model_config = ConfigDict(frozen=True, strict=True, protected_namespaces=())

    n_vq: int = Field(ge=1, le=64)
    """Codebooks. The released class assumes 32 where a config is silent, which is the wrong model for half the releases."""
    audio_vocab_size: int = Field(default=1024, ge=1, le=1_000_000)
    audio_pad_code: int = Field(default=1024, ge=1, le=1_000_000)
    pad_token_id: int = Field(default=151643, ge=0)
    im_start_token_id: int = Field(default=151644, ge=0)
    im_end_token_id: int = Field(default=151645, ge=0)
    audio_start_token_id: int = Field(default=151652, ge=0)
    audio_end_token_id: int = Field(default=151653, ge=0)
    audio_user_slot_token_id: int = Field(default=151654, ge=0)
    audio_assistant_gen_slot_token_id: int = Field(default=151656, ge=0)
    audio_assistant_delay_slot_token_id: int = Field(default=151662, ge=0)
    sampling_rate: int = Field(default=24_000, ge=1)
    codec_frame_rate: float = Field(default=12.5, gt=0, allow_inf_nan=False)
    """Codes per second in each codebook."""
    language_config: dict[str, Any]

    @property
    def slots(self) -> SlotIds:
        return SlotIds(
            pad=self.pad_token_id,
            im_start=self.im_start_token_id,
            im_end=self.im_end_token_id,
            audio_start=self.audio_start_token_id,
            audio_end=self.audio_end_token_id,
            user_slot=self.audio_user_slot_token_id,
            gen_slot=self.audio_assistant_gen_slot_token_id,
            delay_slot=self.audio_assistant_delay_slot_token_id,
            pad_code=self.audio_pad_code,
        )


class MossTTSDelayConfig(PreTrainedConfig):
    """A whole config, keys that nothing here reads included, so that it is written back as it was."""

    model_type = _MODEL_TYPE
    sub_configs: ClassVar[Any] = {"language_config": Qwen3Config}

    def __init__(self, language_config: Any = None, **kwargs: Any) -> None:
        if not isinstance(language_config, Qwen3Config):
            language_config = Qwen3Config(**(language_config or {}))
        self.language_config = language_config
        super().__init__(**kwargs)

    @property
    def fields(self) -> MossFields:
        """The checked fields."""
        written = {name: getattr(self, name) for name in MossFields.model_fields if name in self.__dict__}
        return MossFields(**written | {"language_config": self.language_config.to_dict()})


def read_moss_config(path: Path) -> MossTTSDelayConfig:
    """The config in the file `path`.

    Raises: CheckpointError naming the file and the field if it is not that of a model that can be trained here.
    """
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(written, dict) or written.get("model_type") != _MODEL_TYPE:
        found = written.get("model_type") if isinstance(written, dict) else type(written).__name__
        raise CheckpointError(f"{path} has model_type {found!r}, the family moss takes {_MODEL_TYPE!r}")
    if "n_vq" not in written:
        raise CheckpointError(
            f"{path}: the field n_vq is missing: without it the released class builds 32 codebooks whatever the weights "
            "are; write the number of emb_ext tensors into the config (16 for VoiceGenerator)"
        )
    try:
        fields = MossFields.model_validate({k: v for k, v in written.items() if k in MossFields.model_fields})
    except ValidationError as error:
        raise CheckpointError("; ".join(_problem(path, each) for each in error.errors())) from error
    _check(path, fields)
    try:
        return MossTTSDelayConfig(**written)
    except Exception as error:  # transformers checks in ways of its own
        raise CheckpointError(f"{path}: {type(error).__name__}: {error}") from error


def _check(path: Path, fields: MossFields) -> None:
    language = fields.language_config
    if fields.audio_pad_code != fields.audio_vocab_size:
        raise CheckpointError(
            f"{path}: audio_pad_code = {fields.audio_pad_code} must be audio_vocab_size = {fields.audio_vocab_size}, the "
            "one row behind the codes"
        )
    for key in _SIZES:
        if type(language.get(key)) is not int or not 1 <= language[key] <= 10_000_000:
            raise CheckpointError(
                f"{path}: language_config.{key} = {language.get(key)!r:.80} must be a positive number"
            )
    if (
        language.get("attention_bias")
        or language.get("use_sliding_window")
        or language.get("hidden_act", "silu") != "silu"
    ):
        raise CheckpointError(
            f"{path}: language_config must be a plain Qwen3: no attention_bias, no sliding window, hidden_act silu"
        )
    if not (language.get("rope_theta") or (language.get("rope_parameters") or {}).get("rope_theta")):
        raise CheckpointError(f"{path}: language_config.rope_theta is missing, and libraries assume different ones")
    slots = {name: id for name, id in vars(fields.slots).items() if name != "pad_code"}
    if len(set(slots.values())) < len(slots):
        raise CheckpointError(f"{path}: two of the text ids are the same: {slots}")
    if wrong := {name: id for name, id in slots.items() if id >= language["vocab_size"]}:
        raise CheckpointError(f"{path}: the ids {wrong} must be below vocab_size = {language['vocab_size']}")


def _problem(path: Path, problem: Any) -> str:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{path}: the field {field} is missing"
    return f"{path}: {field} = {problem['input']!r:.80}: {problem['msg']}"
