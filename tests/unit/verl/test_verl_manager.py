"""The reward manager on a stand-in of veRL's batches; tests/real_verl gives it real ones."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from elocution.assets import BUILTIN
from elocution.export.cosyvoice_tokens import build_tokenizer
from elocution.verl.manager import SpeechRewardManager

TOKENIZER, IDS = build_tokenizer(BUILTIN["builtin:tiny-cosyvoice2"] / "CosyVoice-BlankEN", "v2", 64)


@dataclass
class Batch:
    """Indexed as a `DataProto` is: a slice is a batch, a number its item."""

    batch: Mapping[str, Any]
    non_tensor_batch: Mapping[str, Any]

    def __getitem__(self, index: int | slice) -> "Batch":
        if isinstance(index, slice):
            return self
        return Batch(
            {name: value[index] for name, value in self.batch.items()},
            {name: value[index] for name, value in self.non_tensor_batch.items()},
        )


def completion(ids: list[int], room: int) -> Batch:
    padded = torch.tensor([ids + [0] * (room - len(ids))])
    mask = torch.tensor([[1, 1] + [1] * len(ids) + [0] * (room - len(ids))])
    rows = {
        "data_source": ["d"],
        "reward_model": [{"style": "rule", "ground_truth": "one two"}],
        "extra_info": [{"index": 3}],
    }
    return Batch({"responses": padded, "attention_mask": mask}, rows)


def run(manager: SpeechRewardManager, data: Batch) -> dict[str, Any]:
    return asyncio.run(manager.run_single(data))


@pytest.mark.parametrize(
    ("codes", "stop", "room", "is_truncated"),
    [([1, 2, 3], True, 8, False), ([1, 2, 3], True, 4, False), ([1, 2, 3], False, 3, True)],
)
def test_s27_the_function_gets_all_codes_and_is_told_what_was_cut_off(
    codes: list[int], stop: bool, room: int, is_truncated: bool
) -> None:
    asked: dict[str, Any] = {}

    def compute_score(**arguments: Any) -> dict[str, Any]:
        asked.update(arguments)
        return {"score": 0.25, "status": "scored"}

    ids = [IDS.first_code + code for code in codes] + ([IDS.eos] if stop else [])
    result = run(SpeechRewardManager(None, TOKENIZER, compute_score, reward_router_address=None), completion(ids, room))
    assert result == {"reward_score": 0.25, "reward_extra_info": {"score": 0.25, "status": "scored"}}
    asked["solution_str"] = asked["solution_str"].replace(" ", "")  # a tokenizer of words writes them apart
    assert asked == {
        "data_source": "d",
        "ground_truth": "one two",
        "solution_str": "<|s_1|><|s_2|><|s_3|>" + ("<|eos1|>" if stop else ""),
        "extra_info": {"index": 3, "is_truncated": is_truncated},
    }


def test_codes_that_are_special_tokens_are_not_left_out() -> None:
    tokenizer, ids = build_tokenizer(BUILTIN["builtin:tiny-cosyvoice2"] / "CosyVoice-BlankEN", "v2", 64)
    tokenizer.add_tokens(["<|s_5|>"], special_tokens=True)
    assert tokenizer.decode([ids.first_code + 5], skip_special_tokens=True) == ""  # what veRL's own manager would see
    found = run(
        SpeechRewardManager(None, tokenizer, lambda **asked: float(asked["solution_str"] == "<|s_5|>")),
        completion([ids.first_code + 5], 4),
    )
    assert found == {"reward_score": 1.0, "reward_extra_info": {"score": 1.0}}


def test_a_coroutine_function_is_awaited_and_errors_go_through() -> None:
    async def compute_score(**asked: Any) -> dict[str, float]:
        raise RuntimeError("no server")

    with pytest.raises(RuntimeError, match="no server"):
        run(SpeechRewardManager(None, TOKENIZER, compute_score), completion([IDS.eos], 2))
