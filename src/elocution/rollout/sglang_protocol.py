"""The messages of SGLang's HTTP interface, as this project sends and reads them; a server can use them as well.

Knows no transport. Names and types are those of sglang 0.5.23; a test holds them against a list taken from its source.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "AbortRequest",
    "BeginWeightUpdate",
    "ContinueGeneration",
    "DestroyWeightsUpdateGroup",
    "EndWeightUpdate",
    "FinishedBecause",
    "GenerateRequest",
    "GenerateResponse",
    "InitWeightsUpdateGroup",
    "LoadLoraAdapter",
    "LoraResult",
    "MetaInfo",
    "ModelInfo",
    "PauseGeneration",
    "SamplingParams",
    "ServerInfo",
    "SglangMessage",
    "UnloadLoraAdapter",
    "UpdateWeightVersion",
    "UpdateWeightsFromDisk",
    "UpdateWeightsFromDistributed",
    "UpdateWeightsResult",
    "VersionSpan",
]


class SglangMessage(BaseModel):
    """Base of all messages: frozen; a key that is not known is left out when read, for servers add keys."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())

    def to_wire(self) -> dict[str, Any]:
        """The message as JSON values, without what is None."""
        return self.model_dump(mode="json", exclude_none=True)


class SamplingParams(SglangMessage):
    """How ids are drawn. All that shapes the distribution is always sent, for a server may have defaults of its own.

    Source: `SamplingParams`, sglang/srt/sampling/sampling_params.py; `preferred_sampling_params` are put under those of
    the request by `TokenizerManager._create_tokenized_object`, sglang/srt/managers/tokenizer_manager.py.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    n: int = 1
    stop_token_ids: tuple[int, ...] | None = None
    sampling_seed: int | None = None
    custom_params: dict[str, Any] | None = None


class GenerateRequest(SglangMessage):
    """Body of `POST /generate`; either `text` or `input_ids` is set, with `multi_channel` rows of ids.

    Source: `GenerateReqInput`, sglang/srt/managers/io_struct.py, and `GenerateRequest`, sglang/api/v1/api_types.py;
    `multi_channel` is OpenMOSS's fork's, `return_row_logprobs` our own server's.
    """

    rid: str
    sampling_params: SamplingParams
    text: str | None = None
    input_ids: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None
    multi_channel: bool | None = None
    return_row_logprobs: bool | None = None
    audio_data: tuple[str, ...] | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    token_ids_logprob: tuple[int, ...] | None = None
    modalities: tuple[str, ...] | None = None
    return_prompt_token_ids: bool | None = None
    custom_logit_processor: str | None = None
    lora_path: str | None = None
    stream: bool = False


class FinishedBecause(SglangMessage):
    """Why an answer ended: `stop` with the id that matched, `length`, or `abort` with a message.

    Source: `to_json` of `FINISH_MATCHED_TOKEN`, `FINISH_LENGTH` and `FINISH_ABORT`,
    sglang/srt/managers/schedule_batch.py.
    """

    type: str
    matched: int | str | list[int] | None = None
    length: int | None = None
    message: str | None = None


class VersionSpan(SglangMessage):
    """Ids `start` to `end` were drawn with the weights of `version`.

    Source: `WeightVersionSpan`, sglang/srt/utils/weight_versions.py.
    """

    version: str
    start: int
    end: int


class MetaInfo(SglangMessage):
    """What the server says about an answer.

    `output_token_logprobs` holds (log-prob or None, id, text or None) of each drawn id, nats;
    `input_token_logprobs` the same of the prompt's ids from `logprob_start_len` on, the first of them None;
    `output_token_ids_logprobs` those of the ids in the request's `token_ids_logprob`, for each drawn position;
    `row_logprobs`, our own server's, those of drawn rows, for each channel.
    Source: `_handle_batch_output` and `add_logprob_to_meta_info` of `TokenizerManager`,
    sglang/srt/managers/tokenizer_manager.py; `add_weight_versions_to_meta_info`, sglang/srt/utils/weight_versions.py.
    """

    id: str
    finish_reason: FinishedBecause
    prompt_tokens: int
    completion_tokens: int
    weight_version: str | None = None
    weight_versions: list[VersionSpan] | None = None
    input_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    output_token_ids_logprobs: list[list[tuple[float | None, int, str | None]] | None] | None = None
    row_logprobs: list[list[float]] | None = None


class GenerateResponse(SglangMessage):
    """Answer of `POST /generate`. `output_ids` are rows of ids where a server draws several channels.

    The stop id is among the `output_ids`: `Req.output_ids_through_stop`, sglang/srt/managers/schedule_batch.py.
    Source: `_handle_batch_output` of `TokenizerManager`, sglang/srt/managers/tokenizer_manager.py.
    """

    output_ids: list[int] | list[list[int]]
    meta_info: MetaInfo
    text: str = ""
    prompt_token_ids: list[int] | list[list[int]] | None = None


class UpdateWeightsFromDisk(SglangMessage):
    """Body of `POST /update_weights_from_disk`.

    Source: `UpdateWeightFromDiskReqInput`, sglang/srt/managers/io_struct.py.
    """

    model_path: str
    weight_version: str
    flush_cache: bool = True
    abort_all_requests: bool = False


class InitWeightsUpdateGroup(SglangMessage):
    """Body of `POST /init_weights_update_group`: a process group in which rank 0, not a server, sends weights.

    The server's own ranks follow from `rank_offset`. Source: `InitWeightsUpdateGroupReqInput`,
    sglang/srt/managers/io_struct.py.
    """

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    group_name: str
    backend: str


class DestroyWeightsUpdateGroup(SglangMessage):
    """Body of `POST /destroy_weights_update_group`. Source: `DestroyWeightsUpdateGroupReqInput`, the same file."""

    group_name: str


class BeginWeightUpdate(SglangMessage):
    """Body of `POST /begin_weight_update`. Source: `BeginWeightUpdateReqInput`, sglang/srt/managers/io_struct.py."""


class EndWeightUpdate(SglangMessage):
    """Body of `POST /end_weight_update`. Source: `EndWeightUpdateReqInput`, sglang/srt/managers/io_struct.py."""


class UpdateWeightsFromDistributed(SglangMessage):
    """Body of `POST /update_weights_from_distributed`: what rank 0 of the group sends meanwhile, in this order.

    `dtypes` are torch's names. Source: `UpdateWeightsFromDistributedReqInput`, sglang/srt/managers/io_struct.py;
    `receive_weights_from_distributed`, sglang/srt/model_executor/model_runner_components/weight_updater.py.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    group_name: str
    flush_cache: bool = True
    weight_version: str | None = None


class ServerInfo(SglangMessage):
    """Answer of `GET /server_info`, as far as it is needed.

    Source: `build_server_info`, sglang/srt/utils/common.py; `Parallel`, sglang/srt/arg_groups/fields/parallel.py.
    """

    tp_size: int
    dp_size: int = 1
    pp_size: int = 1


class UpdateWeightsResult(SglangMessage):
    """Answer of the calls that change weights, their version, or a group through which weights come.

    Source: `update_weights_from_disk` and `update_weight_version`, sglang/srt/entrypoints/http_server.py.
    """

    success: bool
    message: str = ""


class UpdateWeightVersion(SglangMessage):
    """Body of `POST /update_weight_version`, which changes the name of the weights alone.

    Source: `UpdateWeightVersionReqInput`, sglang/srt/managers/io_struct.py.
    """

    new_version: str
    abort_all_requests: bool = False


class LoadLoraAdapter(SglangMessage):
    """Body of `POST /load_lora_adapter`; needs a server with `--enable-lora` and one data-parallel replica.

    Source: `LoadLoRAAdapterReqInput`, sglang/srt/managers/io_struct.py; `load_lora_adapter`,
    sglang/srt/managers/tokenizer_control_mixin.py.
    """

    lora_name: str
    lora_path: str
    pinned: bool = False


class UnloadLoraAdapter(SglangMessage):
    """Body of `POST /unload_lora_adapter`. Source: `UnloadLoRAAdapterReqInput`, sglang/srt/managers/io_struct.py."""

    lora_name: str


class LoraResult(SglangMessage):
    """Answer of the calls for adapters. Source: `LoRAUpdateOutput`, sglang/srt/managers/io_struct.py."""

    success: bool
    error_message: str | None = None
    loaded_adapters: dict[str, Any] | None = None


class ModelInfo(SglangMessage):
    """Answer of `GET /model_info`. Source: `model_info`, sglang/srt/entrypoints/http_server.py."""

    model_path: str
    is_generation: bool = True
    weight_version: str | None = None
    preferred_sampling_params: dict[str, Any] | None = None
    architectures: list[str] | None = None


class PauseGeneration(SglangMessage):
    """Body of `POST /pause_generation`. Source: `PauseGenerationReqInput`, sglang/srt/managers/io_struct.py."""

    mode: Literal["abort", "retract", "in_place"] = "abort"


class ContinueGeneration(SglangMessage):
    """Body of `POST /continue_generation`. Source: `ContinueGenerationReqInput`, sglang/srt/managers/io_struct.py."""


class AbortRequest(SglangMessage):
    """Body of `POST /abort_request`. Source: `AbortReq` and `BaseReq`, sglang/srt/managers/io_struct.py."""

    rid: str
