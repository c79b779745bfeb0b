"""Tensors of CosyVoice's `llm.pt` <-> tensors of a Hugging Face folder. Pure; reads and writes no file."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from elocution.errors import CheckpointError
from elocution.export.cosyvoice_native import BIAS, BODY, EMBEDDING, HEAD, SPECIAL, TEXT, NativeModel
from elocution.policies.biased_head import HEAD_BIAS
from elocution.policies.cosyvoice_ids import SpeechIds

__all__ = ["NativeRest", "merge_tables", "rest_of", "split_tables"]

_TABLE, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
_LM_HEAD = BODY + _OUTPUT
_QWEN2_ROWS = 151_936  # of the text table of every released CosyVoice2 and 3
_MULTIPLE = 128  # the published folders' vocabulary is a multiple of it


@dataclass(frozen=True)
class NativeRest:
    """What an `llm.pt` has and a Hugging Face folder has no place for, by name; empty where it is not known.

    `text_rows` are the rows of the text table that lie where the folder has speech; the bias of the speech head, and the
    unused head of the text model where it is not the text table.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def rest_of(native: NativeModel, first_code: int) -> NativeRest:
    """What of `native` would be lost in a folder whose speech ids begin at `first_code`."""
    tensors = native.tensors
    rest = {"text_rows": tensors[TEXT][first_code:].clone()}
    if BIAS in tensors:
        rest[BIAS] = tensors[BIAS]
    if not torch.equal(tensors[_LM_HEAD], tensors[TEXT]):
        rest[_LM_HEAD] = tensors[_LM_HEAD]
    return NativeRest(rest)


def merge_tables(native: NativeModel, ids: SpeechIds, *, with_bias: bool) -> dict[str, Tensor]:
    """The folder's tensors: one table of text and speech, and a head that can draw speech alone.

    Raises: CheckpointError if the text table is too short for the tokenizer, or tables to be joined differ in type.
    """
    tensors, first = native.tensors, ids.first_code
    text, speech, head = tensors[TEXT], tensors[EMBEDDING], tensors[HEAD]
    if len(text) < first:
        raise CheckpointError(f"the tokenizer has {first} text tokens, but {TEXT} has {len(text)} rows")
    joined = {name: tensors[name].dtype for name in (TEXT, EMBEDDING, SPECIAL, HEAD, BIAS) if name in tensors}
    if len(set(joined.values())) > 1:
        raise CheckpointError(f"tables that become one have different types, choose one with --dtype: {joined}")
    last = max(int(ids.rows.max()), ids.sos, ids.task)
    size = -(-(last + 1) // _MULTIPLE) * _MULTIPLE
    rows = torch.from_numpy(ids.rows)
    table, output = text.new_zeros(size, text.shape[1]), head.new_zeros(size, head.shape[1])
    table[:first] = text[:first]
    table[rows] = speech
    if SPECIAL in tensors:
        table[[ids.sos, ids.task]] = tensors[SPECIAL]
    output[rows] = head
    merged = {
        name.removeprefix(BODY): tensor
        for name, tensor in tensors.items()
        if name.startswith(BODY) and name not in (TEXT, _LM_HEAD)
    }
    merged |= {_TABLE: table, _OUTPUT: output}
    if with_bias and BIAS in tensors:
        merged[HEAD_BIAS] = head.new_full((size,), float("-inf"))
        merged[HEAD_BIAS][rows] = tensors[BIAS]
    return merged


def split_tables(tensors: Mapping[str, Tensor], ids: SpeechIds, rest: NativeRest) -> NativeModel:
    """The native tensors of a folder with the ids `ids`.

    Raises: CheckpointError if CosyVoice2's bias is neither in the folder nor in `rest`, CosyVoice3 has one, or the size of
    the text table is not known.
    """
    rows = torch.from_numpy(ids.rows)
    table, output = tensors[_TABLE], tensors[_OUTPUT]
    native = {BODY + name: tensor for name, tensor in tensors.items() if name not in (_TABLE, _OUTPUT, HEAD_BIAS)}
    native |= {EMBEDDING: table[rows], HEAD: output[rows]}
    bias = tensors[HEAD_BIAS][rows] if HEAD_BIAS in tensors else rest.tensors.get(BIAS)
    if ids.generation == 2:
        if bias is None:
            raise CheckpointError(
                f"the folder has no {HEAD_BIAS}: software that knows none dropped it. Give the llm.pt that it came from, "
                "whose bias is put back (--original), or choose a bias of 0 (--zero-bias)"
            )
        native |= {SPECIAL: table[[ids.sos, ids.task]], BIAS: bias.to(output.dtype)}
    elif bias is not None:
        raise CheckpointError(f"the folder has {HEAD_BIAS}, but the speech head of CosyVoice3 has no bias")
    text = _text_table(table, ids, rest)
    native |= {TEXT: text, _LM_HEAD: rest.tensors.get(_LM_HEAD, text)}
    return NativeModel(ids.generation, native)


def _text_table(table: Tensor, ids: SpeechIds, rest: NativeRest) -> Tensor:
    """The text table; where the rest of it is not known, rows that no text reaches hold speech, as published."""
    kept, first = rest.tensors.get("text_rows"), ids.first_code
    if kept is not None:
        return torch.cat([table[:first], kept.to(table.dtype)])
    if not 151_643 < first <= _QWEN2_ROWS <= len(table):
        raise CheckpointError(
            f"how many rows the text table had is not known for a tokenizer of {first} text tokens; give the llm.pt that the "
            "folder came from (--original)"
        )
    return table[:_QWEN2_ROWS].clone()
