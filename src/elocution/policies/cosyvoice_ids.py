"""Which ids a tokenizer gives to the rows of CosyVoice's speech tables, in each of the published Hugging Face layouts.

Row n of the native tables is speech code n, and behind the codes the control rows. Layouts are told apart by the names of
their control tokens and never by numbers, so that checkpoints of any size can be read.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from elocution.errors import CheckpointError

__all__ = ["V2_STOPS", "V3_CONTROLS", "Layout", "SpeechIds", "read_ids", "speech_tokens"]

Layout = Literal["v2", "v3", "v3-alias"]

V2_STOPS = 3
"""Rows behind the codes in CosyVoice2: the end of speech, an unused one, the fill token."""
V3_CONTROLS = 200
"""Rows behind the codes in CosyVoice3: start, end of speech, task, fill, then unused ones. All of them end speech."""

_V2_NAMES = ("<|eos1|>", "<|eos2|>", "<|eos3|>", "<|sos|>", "<|task_id|>")
_V3_NAMES = ("<|sos|>", "<|eos1|>", "<|task_id|>", "<|fill|>")
_ALIASES = ("<|sos|>", "<|eos|>", "<|task_id|>")


@dataclass(frozen=True)
class SpeechIds:
    """Where a tokenizer keeps speech. Shapes: `rows` [R], the id of each row of the native speech tables, codes first.

    `v2`: 6561 codes, three stops, then `<|sos|>` and `<|task_id|>`, which are a table of their own natively.
    `v3`: 6561 codes and 200 control rows, of which four have names (`convert_cosyvoice3_to_hf.py`).
    `v3-alias`: as `v3`, but all rows are called `<|s_N|>`, and prompts use three tokens behind them that repeat rows
    (`examples/grpo/cosyvoice3/pretrained_to_huggingface.py`); `rows` names these instead of the rows that they repeat.
    """

    layout: Layout
    num_codes: int
    rows: NDArray[np.int64]
    sos: int
    task: int
    eos: int

    @property
    def generation(self) -> int:
        """2 or 3, of CosyVoice."""
        return 2 if self.layout == "v2" else 3

    @property
    def first_code(self) -> int:
        return int(self.rows[0])

    @property
    def stops(self) -> tuple[int, ...]:
        """Ids that end speech; all control rows that can be drawn are such."""
        return tuple(int(id) for id in self.rows[self.num_codes :])


def speech_tokens(layout: Layout, num_codes: int) -> list[str]:
    """The tokens that a text tokenizer is given behind its own, in order.

    Source: `pretrained_to_huggingface.py` of the published recipes, `convert_cosyvoice3_to_hf.py`.
    """
    if layout == "v2":
        return [*(f"<|s_{code}|>" for code in range(num_codes)), *_V2_NAMES]
    names = [f"<|s_{row}|>" for row in range(num_codes + V3_CONTROLS)]
    if layout == "v3-alias":
        return [*names, *_ALIASES]
    names[num_codes : num_codes + len(_V3_NAMES)] = _V3_NAMES
    return names


def read_ids(tokenizer: PreTrainedTokenizerBase) -> SpeechIds:
    """The speech ids of `tokenizer`, in whichever layout it is, each token checked to be where the layout has it.

    Raises: CheckpointError if it has no layout of CosyVoice, parts of two, or an id out of place.
    """
    vocabulary = tokenizer.get_vocab()
    layout = _layout(set(vocabulary))
    numbered = sum(name.startswith("<|s_") and name[4:-2].isdecimal() for name in vocabulary)
    num_codes = {
        "v2": numbered,
        "v3": numbered - V3_CONTROLS + len(_V3_NAMES),
        "v3-alias": numbered - V3_CONTROLS,
    }[layout]
    if num_codes < 1:
        raise CheckpointError(f"the tokenizer has {numbered} speech tokens, too few for the layout {layout}")
    names = speech_tokens(layout, num_codes)
    first = vocabulary.get("<|s_0|>", -1)
    for place, name in enumerate(names):
        if vocabulary.get(name) != first + place:
            found = vocabulary.get(name, "none")
            raise CheckpointError(
                f"{name} has id {found}, expected {first + place} in the layout {layout} with {num_codes} codes from {first}"
            )
    if layout == "v2":
        rows = np.arange(first, first + num_codes + V2_STOPS)
        return SpeechIds(
            layout, num_codes, rows, vocabulary["<|sos|>"], vocabulary["<|task_id|>"], int(rows[num_codes])
        )
    rows = np.arange(first, first + num_codes + V3_CONTROLS)
    if layout == "v3-alias":
        rows[num_codes : num_codes + len(_ALIASES)] = [vocabulary[name] for name in _ALIASES]
    sos, eos, task = (int(id) for id in rows[num_codes : num_codes + 3])
    return SpeechIds(layout, num_codes, rows, sos, task, eos)


def _layout(names: set[str]) -> Layout:
    marks: dict[str, Layout] = {"<|eos2|>": "v2", "<|fill|>": "v3", "<|eos|>": "v3-alias"}
    found = [layout for mark, layout in marks.items() if mark in names]
    if len(found) == 1 and {"<|s_0|>", "<|sos|>", "<|task_id|>"} <= names:
        return found[0]
    if not found:
        raise CheckpointError(
            "the tokenizer has none of the control tokens that CosyVoice checkpoints have "
            f"({', '.join(marks)}); write one with: elocution convert cosyvoice2 to-hf"
        )
    if len(found) > 1:
        raise CheckpointError(
            f"the tokenizer mixes the layouts {' and '.join(found)}, whose ids mean different rows; convert llm.pt again"
        )
    lacking = sorted({"<|s_0|>", "<|sos|>", "<|task_id|>"} - names)
    raise CheckpointError(f"the tokenizer has the layout {found[0]}, but no {', '.join(lacking)}")
