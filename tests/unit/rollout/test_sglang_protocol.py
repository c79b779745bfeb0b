"""What is sent and read, against what the source of sglang 0.5.23 reads and writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from elocution.rollout import sglang_protocol as protocol

FIELDS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "oracles" / "sglang_fields.json").read_text(encoding="utf-8")
)
IO_STRUCT = "sglang/srt/managers/io_struct.py"
API_TYPES = "sglang/api/v1/api_types.py"
MANAGER = "sglang/srt/managers/tokenizer_manager.py:TokenizerManager"
HTTP = "sglang/srt/entrypoints/http_server.py"
FINISH = "sglang/srt/managers/schedule_batch.py:FINISH_"
# Sent to, and read from, OpenMOSS's fork and our own server alone.
NOT_MAINLINE = {"multi_channel", "return_row_logprobs", "row_logprobs"}

SENT = [
    (protocol.GenerateRequest, f"{IO_STRUCT}:GenerateReqInput"),
    (protocol.GenerateRequest, f"{API_TYPES}:GenerateRequest"),
    (protocol.SamplingParams, "sglang/srt/sampling/sampling_params.py:SamplingParams"),
    (protocol.SamplingParams, f"{API_TYPES}:SamplingParams"),
    (protocol.UpdateWeightsFromDisk, f"{IO_STRUCT}:UpdateWeightFromDiskReqInput"),
    (protocol.UpdateWeightVersion, f"{IO_STRUCT}:UpdateWeightVersionReqInput"),
    (protocol.InitWeightsUpdateGroup, f"{IO_STRUCT}:InitWeightsUpdateGroupReqInput"),
    (protocol.DestroyWeightsUpdateGroup, f"{IO_STRUCT}:DestroyWeightsUpdateGroupReqInput"),
    (protocol.BeginWeightUpdate, f"{IO_STRUCT}:BeginWeightUpdateReqInput"),
    (protocol.EndWeightUpdate, f"{IO_STRUCT}:EndWeightUpdateReqInput"),
    (protocol.UpdateWeightsFromDistributed, f"{IO_STRUCT}:UpdateWeightsFromDistributedReqInput"),
    (protocol.LoadLoraAdapter, f"{IO_STRUCT}:LoadLoRAAdapterReqInput"),
    (protocol.UnloadLoraAdapter, f"{IO_STRUCT}:UnloadLoRAAdapterReqInput"),
    (protocol.PauseGeneration, f"{IO_STRUCT}:PauseGenerationReqInput"),
    (protocol.ContinueGeneration, f"{IO_STRUCT}:ContinueGenerationReqInput"),
    (protocol.AbortRequest, f"{IO_STRUCT}:AbortReq"),
]
READ = [
    (protocol.GenerateResponse, [f"{MANAGER}._handle_batch_output"]),
    (
        protocol.MetaInfo,
        [
            f"{MANAGER}._handle_batch_output",
            f"{MANAGER}.add_logprob_to_meta_info",
            "sglang/srt/utils/weight_versions.py:add_weight_versions_to_meta_info",
        ],
    ),
    (protocol.VersionSpan, ["sglang/srt/utils/weight_versions.py:add_weight_versions_to_meta_info"]),
    (
        protocol.FinishedBecause,
        [f"{FINISH}MATCHED_TOKEN.to_json", f"{FINISH}LENGTH.to_json", f"{FINISH}ABORT.to_json"],
    ),
    (protocol.ModelInfo, [f"{HTTP}:model_info"]),
    (protocol.UpdateWeightsResult, [f"{HTTP}:update_weights_from_disk"]),
    (protocol.UpdateWeightsResult, [f"{HTTP}:update_weight_version"]),
    (protocol.UpdateWeightsResult, [f"{HTTP}:init_weights_update_group"]),
    (protocol.UpdateWeightsResult, [f"{HTTP}:update_weights_from_distributed"]),
    (protocol.UpdateWeightsResult, [f"{HTTP}:end_weight_update"]),
]


@pytest.mark.parametrize(("message", "source"), SENT)
def test_every_field_that_is_sent_is_one_that_sglang_reads(message: type[protocol.SglangMessage], source: str) -> None:
    assert message.model_fields.keys() - set(FIELDS["classes"][source]) - NOT_MAINLINE == set()


@pytest.mark.parametrize(("message", "sources"), READ)
def test_every_field_that_is_read_is_one_that_sglang_writes(
    message: type[protocol.SglangMessage], sources: list[str]
) -> None:
    written = {key for source in sources for key in FIELDS["functions"][source]}
    assert message.model_fields.keys() - written - NOT_MAINLINE == set()


def test_the_result_of_an_adapter_call_is_sglangs_class() -> None:
    known = set(FIELDS["classes"][f"{IO_STRUCT}:LoRAUpdateOutput"])
    assert protocol.LoraResult.model_fields.keys() - known == set()


def test_what_is_read_of_a_server_is_what_it_is_started_with() -> None:
    known = set(FIELDS["classes"]["sglang/srt/arg_groups/fields/parallel.py:Parallel"])
    assert protocol.ServerInfo.model_fields.keys() - known == set()


def test_all_that_shapes_the_distribution_is_sent_even_at_its_default() -> None:
    sent = protocol.SamplingParams(max_new_tokens=3).to_wire()
    assert sent == {
        "max_new_tokens": 3,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
        "n": 1,
    }
