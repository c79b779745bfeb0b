"""The MOSS family: a Qwen3 that writes a text slot and Q codes in each row, codebook j of a frame j rows later.

Sampled rows are what is scored, never rows packed again from their codes: the two differ by one slot.
"""

from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from elocution.config.tree import MossSettings
from elocution.errors import CheckpointError, ConfigError
from elocution.policies.base import IncrementalModel, PolicyBatch
from elocution.policies.delay_pattern import split_frames
from elocution.policies.delay_states import TextRule, banned_ids, illegal_cells, replay, required_ids
from elocution.policies.folder import reading_checkpoint, save_folder
from elocution.policies.moss_config import MossFields, read_moss_config
from elocution.policies.moss_model import MossTTSDelayModel, load_moss_model
from elocution.policies.moss_prompt import LANGUAGE_NAMES, MossPrompt
from elocution.policies.moss_steps import IncrementalMoss
from elocution.policies.packing import enable_packing, packed_hidden
from elocution.policies.spoken_text import TextCheck
from elocution.policies.states import CellStates, GroupedStates
from elocution.policies.tokenizer import load_tokenizer
from elocution.types import Utterance

__all__ = ["MossPolicy"]


class MossPolicy:
    """A MossTTSDelay checkpoint: model, tokenizer and the ids that its config names."""

    lora_targets = ("language_model.layers.*.self_attn.*_proj", "language_model.layers.*.mlp.*_proj")

    def __init__(
        self,
        model: MossTTSDelayModel,
        tokenizer: PreTrainedTokenizerBase,
        compute_dtype: torch.dtype | None = None,
        settings: MossSettings | None = None,
        companions: dict[str, bytes] | None = None,
    ) -> None:
        """`companions` are files of the checkpoint that are saved with it as they are, by name.

        Raises: CheckpointError if the tokenizer lacks the config's ids; ConfigError if `compute_dtype` is fp16.
        """
        if compute_dtype is torch.float16:
            raise ConfigError("MossTTSDelay cannot compute in fp16: its activations overflow; use bf16 or fp32")
        self.settings = settings or MossSettings()
        self.model: nn.Module = model
        self.moss = model
        self.tokenizer = tokenizer
        self._compute_dtype = compute_dtype
        self._companions = companions or {}
        fields: MossFields = model.config.fields
        self.slots, self._fields = fields.slots, fields
        _check_ids(tokenizer, vars(self.slots))
        enable_packing(model.language_model)
        self._check_text = TextCheck(tokenizer)
        self._prompt = MossPrompt(tokenizer, self.slots, fields.n_vq, voice_form=self.settings.voice_form)

    @classmethod
    def from_pretrained(
        cls,
        path: Path,
        *,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        settings: MossSettings | None = None,
    ) -> Self:
        """Loads a checkpoint folder in the released layout; nothing is downloaded, and no code in it is run.

        Raises: CheckpointError if a file is missing, damaged or odd, `n_vq` is missing or not that of the tensors, or ids do
        not fit; ConfigError if the precision is fp16.
        """
        with reading_checkpoint(path):
            config = read_moss_config(path / "config.json")
            model = load_moss_model(path, config, dtype=dtype)
            tokenizer = load_tokenizer(path, config=config.language_config)
            companions = {
                file.name: file.read_bytes() for file in [*path.glob("*.py"), *path.glob("processor_config.json")]
            }
            return cls(model, tokenizer, compute_dtype, settings, companions)

    def save_pretrained(self, path: str) -> None:
        save_folder(Path(path), self.moss, self.tokenizer)
        for name, content in self._companions.items():
            (Path(path) / name).write_bytes(content)

    @property
    def compute_dtype(self) -> torch.dtype:
        """Type of matrix products, in sampling and learning alike."""
        return self._compute_dtype or self.moss.dtype

    @property
    def num_channels(self) -> int:
        return 1 + self._fields.n_vq

    @property
    def channel_sizes(self) -> tuple[int, ...]:
        return tuple(len(self.moss.head_weight(channel)) for channel in range(self.num_channels))

    @property
    def max_positions(self) -> int:
        return int(self.moss.config.language_config.max_position_embeddings)

    @property
    def num_codebooks(self) -> int:
        return self._fields.n_vq

    @property
    def codebook_size(self) -> int:
        return self._fields.audio_vocab_size

    @property
    def frame_rate(self) -> float | None:
        return self._fields.codec_frame_rate

    @property
    def stop_ids(self) -> frozenset[int]:
        """A completion is one clip: it ends with the end of audio, or with a turn that ends without any."""
        return frozenset({self.slots.audio_end, self.slots.im_end})

    @cached_property
    def legal_ids(self) -> Tensor:
        ids = torch.arange(len(self.moss.head_weight(0)), device="cpu")
        return ids[ids != self.slots.pad]

    @property
    def flush_rows(self) -> int:
        return self._fields.n_vq

    def check_text(self, utterance: Utterance) -> str | None:
        if utterance.language not in LANGUAGE_NAMES:
            return f"the family moss has no name for the language {utterance.language!r}"
        for kind, words in (("instruction", utterance.instruction), ("emotion", utterance.emotion)):
            if words and (reason := self._check_text.reading(words)):
                return f"its {kind} {words!r:.80}: {reason}"
        return self._check_text(utterance.text, utterance.language)

    def prompt_ids(self, utterance: Utterance) -> NDArray[np.int64]:
        return self._prompt.rows(utterance)

    def codes(self, completion_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The frames of its clip that are whole, the last one left out if so configured. Shapes: [T, 1 + Q] -> [F, Q]."""
        clips = split_frames(completion_ids[:, 1:], self.slots.pad_code)
        if not clips:
            return np.empty((0, self.num_codebooks), dtype=np.int64)
        return clips[0][:-1] if self._drops_last_frame(completion_ids) else clips[0]

    def illegal_cells(self, completion_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return illegal_cells(completion_ids, self.slots)

    def actions(self, completion_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        text = torch.from_numpy(completion_ids[None, :, 0])
        drawn: NDArray[np.bool_] = replay(text, self.num_codebooks, self.slots).is_drawn()[0].numpy()
        if self._drops_last_frame(completion_ids):
            start = int(np.flatnonzero(completion_ids[:, 0] == self.slots.audio_start)[-1])
            books = np.arange(self.num_codebooks)
            last = len(completion_ids) - 1 - self.num_codebooks  # the row that holds its first code
            if last > start:
                drawn[last + books, 1 + books] = False
        return drawn

    def _drops_last_frame(self, completion_ids: NDArray[np.int64]) -> bool:
        """No model was taught the codes of the row that ends the clip, nor the rest of that frame."""
        return self.settings.drop_last_frame and int(completion_ids[-1, 0]) == self.slots.audio_end

    def states(self, batch: PolicyBatch) -> GroupedStates:
        mask, ids = batch.completion_mask, batch.completion_ids
        found = replay(ids[..., 0], self.num_codebooks, self.slots)
        drawn = mask & found.is_drawn()
        rows = mask.any(dim=-1)
        with torch.autocast(mask.device.type, self.compute_dtype, enabled=self.compute_dtype != self.moss.dtype):
            hidden = packed_hidden(self.moss.language_model, batch, self.moss.embed)

        def part(cells: Tensor, channel: int, legal: Tensor) -> CellStates:
            own = torch.zeros_like(mask)
            own[..., channel] = cells
            weight = self.moss.head_weight(channel)
            return CellStates(hidden[cells[rows]], weight, legal, ids[..., channel][cells], own)

        text = [
            part(drawn[..., 0] & (found.text_rules == int(rule)), 0, legal) for rule, legal in self._legal_text.items()
        ]
        codes = torch.arange(self.codebook_size, device="cpu")
        return GroupedStates(
            [*text, *(part(drawn[..., channel], channel, codes) for channel in range(1, self.num_channels))]
        )

    @cached_property
    def _legal_text(self) -> dict[TextRule, Tensor]:
        """Ids among which text is drawn, by the rules that leave a choice."""
        ids = torch.arange(len(self.moss.head_weight(0)), device="cpu")
        legal = {}
        for rule in (TextRule.FRAMES, TextRule.EARLY_TEXT, TextRule.TEXT):
            required = required_ids(rule, self.slots)
            banned = torch.tensor(banned_ids(rule, self.slots), device="cpu")
            legal[rule] = ids[~torch.isin(ids, banned)] if required is None else torch.tensor(required, device="cpu")
        return legal

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        return self.states(batch).logprobs(temperature=temperature, entropy_grad=entropy_grad)

    def incremental(self, *, compiled: bool = True) -> IncrementalModel:
        return IncrementalMoss(self.moss, self.slots, self.compute_dtype, compiled=compiled)


def _check_ids(tokenizer: PreTrainedTokenizerBase, slots: dict[str, int]) -> None:
    for name, id in slots.items():
        if name == "pad_code":
            continue
        token = tokenizer.added_tokens_decoder.get(id)
        if token is None or tokenizer.encode(token.content, add_special_tokens=False) != [id]:
            raise CheckpointError(
                f"the config's {name} is id {id}, which is no added token of the tokenizer that it reads as one; config and "
                "tokenizer do not belong together"
            )
