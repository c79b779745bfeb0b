"""Models that write speech as tokens of their own vocabulary, one after the other: what a family declares, and what all share.

Ids come from the tokenizer and are checked when a checkpoint is loaded, never assumed. Knows no codec, engine
or reward.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase, Qwen2ForCausalLM

from elocution.errors import CheckpointError, ConfigError
from elocution.policies import biased_head
from elocution.policies.base import IncrementalModel, PolicyBatch
from elocution.policies.folder import load_model, reading_checkpoint, save_folder
from elocution.policies.llama_config import read_llama_config
from elocution.policies.llama_steps import IncrementalLlama
from elocution.policies.packing import enable_packing, packed_states
from elocution.policies.spoken_text import TextCheck
from elocution.policies.states import CellStates
from elocution.policies.tokenizer import load_tokenizer
from elocution.policies.weights import check_values
from elocution.types import Utterance

__all__ = ["PromptStyle", "SpeechBlock", "SpeechSpec", "SpeechTokenPolicy"]

_MODELS = {"llama": LlamaForCausalLM, "qwen2": Qwen2ForCausalLM}


@dataclass(frozen=True)
class PromptStyle:
    """What a config adds to every prompt. `speaker` means what the family says; `language_tags` are by ISO 639 code."""

    speaker: str = ""
    language_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SpeechBlock:
    """Where a tokenizer keeps codes and stops. `stop_id` ends what was spoken; sampling ends at `other_stops` too."""

    first_code_id: int
    num_codes: int
    stop_id: int
    other_stops: tuple[int, ...] = ()


@dataclass(frozen=True)
class SpeechSpec:
    """One family: how its tokens are named, how a prompt reads, where speech ends.

    The code token of number `first_number + slot * slot_size + code` stands for `code` in codebook `slot` of a frame; numbers
    lie in one block of ids. `slot_size` None takes all numbers that the tokenizer has. `before_codes` are the tokens right
    before that block. `render` gives a prompt as text, whose end is `answer_start` if there is no voice; `text_tags` stand
    around the words. `voice` says whether utterances may or must have one. `head_bias` says that the output layer may have a
    bias, which is then part of the model.
    """

    family: str
    model_types: tuple[str, ...]
    code_token: str
    render: Callable[[PreTrainedTokenizerBase, Utterance, PromptStyle], str]
    text_tags: tuple[str, str]
    answer_start: str
    stop_token: str = ""
    num_slots: int = 1
    first_number: int = 0
    slot_size: int | None = None
    frame_rate: float | None = None
    before_codes: tuple[str, ...] = ()
    voice: Literal["optional", "none", "required"] = "optional"
    language_tags: bool = False
    needs_speaker: bool = False
    check_style: Callable[[PromptStyle], str | None] = lambda style: None
    """Why a style cannot be used, or None."""
    find_block: Callable[[PreTrainedTokenizerBase, "SpeechSpec"], SpeechBlock] | None = None
    """Finds codes and stops where `code_token`, `stop_token` and `before_codes` are not enough to."""
    head_bias: bool = False

    @property
    def code_pattern(self) -> re.Pattern[str]:
        """Matches a code token and captures its number."""
        before, after = self.code_token.split("{}")
        return re.compile(f"{re.escape(before)}([0-9]+){re.escape(after)}")


class SpeechTokenPolicy:
    """A causal language model of transformers plus the ids that its tokenizer gives to speech.

    A family is a subclass that declares its `spec` and nothing else: loading is a classmethod, so the spec must be the class's.
    """

    spec: ClassVar[SpeechSpec]
    num_channels = 1
    lora_targets = ("model.layers.*.self_attn.*_proj", "model.layers.*.mlp.*_proj")

    def __init__(
        self,
        model: LlamaForCausalLM,
        tokenizer: PreTrainedTokenizerBase,
        compute_dtype: torch.dtype | None = None,
        style: PromptStyle | None = None,
    ) -> None:
        """`model` may also be a `Qwen2ForCausalLM`, which has the same parts. `compute_dtype` is that of matrix products in
        sampling and learning; the weights' own if None.

        Raises: CheckpointError if ids do not fit; ConfigError if the family has no such style.
        """
        self.style = style or PromptStyle()
        if reason := self._why_not(self.style):
            raise ConfigError(reason)
        self._compute_dtype = compute_dtype
        self.model: nn.Module = model
        self.llama = model
        self.tokenizer = tokenizer
        self._check_text = TextCheck(tokenizer)
        block = (self.spec.find_block or _named_block)(tokenizer, self.spec)
        self.first_code_id, self.num_codes, self.stop_id = block.first_code_id, block.num_codes, block.stop_id
        self._stop_ids = frozenset({block.stop_id, *block.other_stops})
        enable_packing(model)
        rows = model.get_output_embeddings().weight.shape[0]
        last = max(self.first_code_id + self.num_codes - 1, *block.other_stops, self.stop_id)
        if last >= rows:
            raise CheckpointError(f"the tokenizer's last speech id is {last}, but the model has {rows} output rows")
        bias = self._head_bias
        if bias is not None and not bool(bias.detach()[self.legal_ids.to(bias.device)].isfinite().all()):
            raise CheckpointError("the bias of the output layer is not finite at ids that may be drawn; get it again")

    @classmethod
    def from_pretrained(
        cls,
        path: Path,
        *,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        style: PromptStyle | None = None,
    ) -> Self:
        """Loads a checkpoint folder in the released layout; nothing is downloaded.

        Raises: CheckpointError if a file is missing, damaged or odd, a tensor is missing, all zero or not finite, or ids do not
        fit.
        """
        with reading_checkpoint(path):
            config = read_llama_config(path / "config.json", family=cls.spec.family, model_types=cls.spec.model_types)
            biased = cls.spec.head_bias and biased_head.has_head_bias(path)
            kind: Any = biased_head.Qwen2ForCausalLM if biased else _MODELS[config.model_type]
            tokenizer = load_tokenizer(path, config=config)
            model = load_model(kind, path, config, dtype=dtype)
            # A bias may be -inf where nothing is drawn; the rest of it is checked with the ids.
            check_values(path, (each for each in model.state_dict().items() if each[0] != biased_head.HEAD_BIAS))
            policy = cls(model, tokenizer, compute_dtype, style)
            policy.check_template()
        return policy

    def save_pretrained(self, path: str) -> None:
        save_folder(Path(path), self.llama, self.tokenizer)

    @property
    def compute_dtype(self) -> torch.dtype:
        """Type of matrix products, in sampling and learning alike."""
        return self._compute_dtype or self.llama.dtype

    @property
    def max_positions(self) -> int:
        return int(self.llama.config.max_position_embeddings)

    @property
    def num_codebooks(self) -> int:
        return self.spec.num_slots

    @property
    def codebook_size(self) -> int:
        return self.num_codes // self.spec.num_slots

    @property
    def frame_rate(self) -> float | None:
        rate: float | None = self.llama.config.to_dict().get("codec_frame_rate")
        return rate or self.spec.frame_rate

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._stop_ids

    @cached_property
    def legal_ids(self) -> Tensor:
        codes = torch.arange(self.first_code_id, self.first_code_id + self.num_codes, device="cpu")
        return torch.cat([torch.tensor(sorted(self._stop_ids), device="cpu"), codes]).sort().values

    @property
    def channel_sizes(self) -> tuple[int, ...]:
        return (int(self.llama.config.vocab_size),)

    def illegal_cells(self, completion_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ~np.isin(completion_ids, self.legal_ids.numpy())

    def _why_not(self, style: PromptStyle) -> str | None:
        if style.language_tags and not self.spec.language_tags:
            return f"model.language_tags: the family {self.spec.family} has none"
        reason = self.spec.check_style(style) if style.speaker else None
        return f"model.speaker = {style.speaker!r:.80}: {reason}" if reason else None

    def check_text(self, utterance: Utterance) -> str | None:
        if self.spec.needs_speaker and not self.style.speaker:
            return f"the family {self.spec.family} needs model.speaker: {self.spec.check_style(self.style)}"
        if utterance.voice and self.spec.voice == "none":
            return f"the family {self.spec.family} takes no voice from a recording"
        if not utterance.voice and self.spec.voice == "required":
            return f"the family {self.spec.family} needs a voice: prompt_text with prompt_audio or prompt_codes"
        words = (utterance.voice.text if utterance.voice else "") + utterance.text
        if spoken := self.spec.code_pattern.search(words):
            return f"the text holds control tokens: {spoken[0]}"
        return self._check_text(words, utterance.language)

    def render(self, utterance: Utterance) -> str:
        """The prompt as text; the one renderer for rollouts, log-probs, evaluation and serving."""
        return self.spec.render(self.tokenizer, utterance, self.style)

    def check_template(self) -> None:
        """Raises: CheckpointError if the tokenizer does not render a prompt of this family, or reads it as other ids."""
        before, after = self.spec.text_tags
        text = f"{before}one{after}"
        rendered = self.render(Utterance("template", "one"))
        if rendered.count(text) != 1 or not rendered.endswith(self.spec.answer_start):
            raise CheckpointError(
                f"the tokenizer's chat template renders {rendered!r:.200}, expected one {text} and at the end "
                f"{self.spec.answer_start}"
            )

    def prompt_ids(self, utterance: Utterance) -> NDArray[np.int64]:
        return np.array(self.tokenizer.encode(self.render(utterance), add_special_tokens=False), dtype=np.int64)

    def codes(self, completion_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where a frame takes several ids, only whole frames with each code in its place count. Shapes: [T, 1] -> [F, Q]."""
        offsets = completion_ids[:, 0] - self.first_code_id
        offsets = offsets[(offsets >= 0) & (offsets < self.num_codes)]
        slots = self.spec.num_slots
        frames = offsets[: len(offsets) // slots * slots].reshape(-1, slots)
        in_place = (frames // self.codebook_size == np.arange(slots)).all(axis=1)
        codes: NDArray[np.int64] = frames[in_place] % self.codebook_size
        return codes

    def completion_ids(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids of a whole completion that speaks `codes` and stops. Shapes: [F, Q] -> [F * Q + 1, 1]."""
        ids = codes + self.first_code_id + self.codebook_size * np.arange(self.spec.num_slots)
        return np.concatenate([ids.reshape(-1, 1), [[self.stop_id]]])

    def states(self, batch: PolicyBatch) -> CellStates:
        device = batch.completion_mask.device
        weight: Tensor = self.llama.get_output_embeddings().weight
        with torch.autocast(device.type, self.compute_dtype, enabled=self.compute_dtype != self.llama.dtype):
            return packed_states(self.llama.model, batch, weight, self.legal_ids, self._head_bias)

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        return self.states(batch).logprobs(temperature=temperature, entropy_grad=entropy_grad)

    def incremental(self, *, compiled: bool = True) -> IncrementalModel:
        weight: Tensor = self.llama.get_output_embeddings().weight
        legal, bias = self.legal_ids.to(weight.device), self._head_bias
        legal_bias = None if bias is None else bias[legal]
        return IncrementalLlama(self.llama, weight[legal], legal, self.compute_dtype, legal_bias, compiled=compiled)

    @property
    def _head_bias(self) -> Tensor | None:
        bias: Tensor | None = self.llama.get_output_embeddings().bias
        return bias


def _single_id(tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise CheckpointError(f"the tokenizer does not know {token} as one token, it gives {ids}")
    return int(ids[0])


def _named_block(tokenizer: PreTrainedTokenizerBase, spec: SpeechSpec) -> SpeechBlock:
    """The contiguous block of code tokens, and the stop token."""
    named = {
        int(match[1]) - spec.first_number: id
        for token, id in tokenizer.get_vocab().items()
        if (match := spec.code_pattern.fullmatch(token))
    }
    total = None if spec.slot_size is None else spec.slot_size * spec.num_slots
    found = {number: id for number, id in named.items() if number >= 0 and (total is None or number < total)}
    shown = spec.code_token.format
    if not found or sorted(found) != list(range(total or len(found))):
        wanted = f"{total} from {shown(spec.first_number)}" if total else f"{shown(0)} …"
        raise CheckpointError(f"the tokenizer has {len(found)} speech tokens, expected {wanted} without a gap")
    first = found[0]
    broken = next((number for number, id in found.items() if id != first + number), None)
    if broken is not None:
        raise CheckpointError(
            f"{shown(spec.first_number + broken)} has id {found[broken]}, expected {first + broken} (offset {first})"
        )
    before = [_single_id(tokenizer, token) for token in spec.before_codes]
    if before != list(range(first - len(before), first)):
        raise CheckpointError(f"the structural tokens have ids {before}, expected the {len(before)} before {first}")
    return SpeechBlock(first, len(found), _single_id(tokenizer, spec.stop_token))
