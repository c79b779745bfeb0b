"""veRL's reward manager for speech: decodes with every token, because the codes may be special ones, and sees what was cut off.

veRL's own leaves special tokens out, so that a completion of them is an empty text. It takes any class with these methods; ours
does not inherit from its base, and so can be imported where veRL is not installed.

Source: `verl/experimental/reward_loop` of veRL 0.9.1.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from elocution.verl.score import CODE

__all__ = ["SpeechRewardManager"]


class SpeechRewardManager:
    """Scores completions one by one with `compute_score`, as veRL's `naive` does, which may be a coroutine function."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Callable[..., Any], **others: Any) -> None:
        """`others` are what veRL gives to managers that ask reward models of its own."""
        self.tokenizer = tokenizer
        self.compute_score = compute_score

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The reward of the last sequence in the `DataProto` `data`, and what goes with it."""
        item = data[-1:][0]
        asked: Mapping[str, Any] = {
            "data_source": item.non_tensor_batch["data_source"],
            "ground_truth": item.non_tensor_batch["reward_model"]["ground_truth"],
        }
        extra = dict(item.non_tensor_batch.get("extra_info") or {})
        loop = asyncio.get_running_loop()
        text, extra["is_truncated"] = await loop.run_in_executor(None, self._read, item)
        arguments = {**asked, "solution_str": text, "extra_info": extra}
        if inspect.iscoroutinefunction(self.compute_score):
            result = await self.compute_score(**arguments)
        else:
            result = await loop.run_in_executor(None, lambda: self.compute_score(**arguments))
        if not isinstance(result, Mapping):
            result = {"score": result}
        return {"reward_score": result["score"], "reward_extra_info": dict(result)}

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: list[float]) -> Any:
        """The rewards at the last id of each completion, as veRL's base class puts them. Shapes: [B] -> [B, T]."""
        from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

        return RewardManagerBase.assemble_rm_scores(data, scores)

    def _read(self, item: Any) -> tuple[str, bool]:
        """The completion as text, and whether it used up its room without a stop."""
        ids = item.batch["responses"]
        room = ids.shape[-1]
        length = int(item.batch["attention_mask"][-room:].sum())
        text: str = self.tokenizer.decode(ids[:length], skip_special_tokens=False)
        if length < room:
            return text, False
        last = self.tokenizer.convert_ids_to_tokens(int(ids[-1]))
        return text, CODE.fullmatch(last) is not None
