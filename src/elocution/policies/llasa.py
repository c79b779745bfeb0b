"""The LLaSA family: a Llama that reads text between understanding tags and writes one speech code at a time.

Ids come from the tokenizer and are checked when a checkpoint is loaded, never assumed. Knows no codec, engine
or reward.
"""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from elocution.errors import CheckpointError
from elocution.files import apply_umask
from elocution.policies.base import IncrementalModel, PolicyBatch
from elocution.policies.llama_config import read_llama_config
from elocution.policies.llama_steps import IncrementalLlama
from elocution.policies.lora import merged_state_dict
from elocution.policies.packing import enable_packing, packed_states
from elocution.policies.spoken_text import TextCheck
from elocution.policies.states import CellStates
from elocution.policies.weights import check_stored, check_values
from elocution.types import Utterance

__all__ = ["LlasaPolicy", "prompt_messages"]

# The Llama 3 template writes the current date into the prompt; a run must not depend on the day it is made.
PROMPT_DATE = "26 Jul 2024"
STRUCTURAL_TOKENS = tuple(
    f"<|{kind}_{edge}|>"
    for kind in ("TEXT_GENERATION", "TEXT_UNDERSTANDING", "SPEECH_GENERATION", "SPEECH_UNDERSTANDING")
    for edge in ("START", "END")
)
_CODE_TOKEN = re.compile(r"<\|s_(\d+)\|>")


def prompt_messages(text: str) -> list[dict[str, str]]:
    """The chat of one utterance, to be rendered as a message that continues.

    Source: LLaSA model card; `reference` text of zhenye234/LLaSA_training.
    """
    return [
        {
            "role": "user",
            "content": f"Convert the text to speech:<|TEXT_UNDERSTANDING_START|>{text}<|TEXT_UNDERSTANDING_END|>",
        },
        {"role": "assistant", "content": "<|SPEECH_GENERATION_START|>"},
    ]


class LlasaPolicy:
    """A LLaSA checkpoint: `LlamaForCausalLM` plus the ids that its tokenizer gives to speech."""

    num_channels = num_codebooks = 1
    lora_targets = ("model.layers.*.self_attn.*_proj", "model.layers.*.mlp.*_proj")

    def __init__(
        self,
        model: LlamaForCausalLM,
        tokenizer: PreTrainedTokenizerBase,
        compute_dtype: torch.dtype | None = None,
    ) -> None:
        """`compute_dtype` is that of matrix products in sampling and learning; the weights' own if None."""
        self._compute_dtype = compute_dtype
        self.model: nn.Module = model
        self.llama = model
        self.tokenizer = tokenizer
        self._check_text = TextCheck(tokenizer)
        self.first_code_id, self.num_codes = _code_block(tokenizer)
        self.stop_id = _single_id(tokenizer, "<|SPEECH_GENERATION_END|>")
        enable_packing(model)
        rows = model.get_output_embeddings().weight.shape[0]
        if self.first_code_id + self.num_codes > rows:
            raise CheckpointError(
                f"the tokenizer's last speech id is {self.first_code_id + self.num_codes - 1}, "
                f"but the model has {rows} output rows"
            )

    @classmethod
    def from_pretrained(
        cls, path: Path, *, dtype: torch.dtype = torch.float32, compute_dtype: torch.dtype | None = None
    ) -> "LlasaPolicy":
        """Loads a checkpoint folder in the released layout; nothing is downloaded.

        Raises: CheckpointError if a file is missing, damaged or odd, a tensor is missing, all zero or not finite, or ids do not
        fit.
        """
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path} is no checkpoint folder: it has no config.json")
        config = read_llama_config(path / "config.json")
        try:
            with torch.device("meta"):
                check_stored(path, LlamaForCausalLM(config).state_dict())
            tokenizer = AutoTokenizer.from_pretrained(
                path, config=config, local_files_only=True, trust_remote_code=False
            )
            loaded: Any = LlamaForCausalLM.from_pretrained(
                path, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
            )
            model, loading = loaded
            wrong = {kind: sorted(map(str, keys)) for kind, keys in loading.items() if keys}
            if wrong:
                raise CheckpointError(f"the tensors in {path} do not fit the model: {wrong}")
            # Loaded tensors may lie in the file's own pages, at any alignment: a copy outlives the file, and sums in the
            # same order as weights that were trained in memory.
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.data = tensor.data.clone()
            check_values(path, model.state_dict().items())
            policy = cls(model, tokenizer, compute_dtype)
            policy.check_template()
        except CheckpointError:
            raise
        except Exception as error:  # a damaged file may end in any error of the libraries that read it
            raise CheckpointError(f"cannot load the checkpoint {path}: {type(error).__name__}: {error}") from error
        return policy

    def save_pretrained(self, path: str) -> None:
        self.llama.save_pretrained(path, state_dict=merged_state_dict(self.llama))
        self.tokenizer.save_pretrained(path)
        apply_umask(*Path(path).glob("*.safetensors"))

    @property
    def compute_dtype(self) -> torch.dtype:
        """Type of matrix products, in sampling and learning alike."""
        return self._compute_dtype or self.llama.dtype

    @property
    def max_positions(self) -> int:
        return int(self.llama.config.max_position_embeddings)

    @property
    def codebook_size(self) -> int:
        return self.num_codes

    @property
    def frame_rate(self) -> float | None:
        rate: float | None = self.llama.config.to_dict().get("codec_frame_rate")
        return rate

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset({self.stop_id})

    @cached_property
    def legal_ids(self) -> Tensor:
        codes = torch.arange(self.first_code_id, self.first_code_id + self.num_codes, device="cpu")
        return torch.cat([torch.tensor([self.stop_id], device="cpu"), codes]).sort().values

    def check_text(self, utterance: Utterance) -> str | None:
        return self._check_text(utterance.text, utterance.language)

    def render(self, utterance: Utterance) -> str:
        """The prompt as text; the one renderer for rollouts, log-probs, evaluation and serving."""
        rendered: Any = self.tokenizer.apply_chat_template(
            prompt_messages(utterance.text), tokenize=False, continue_final_message=True, date_string=PROMPT_DATE
        )
        return str(rendered)

    def check_template(self) -> None:
        """Raises: CheckpointError if the tokenizer's chat template does not render a prompt of this family."""
        text = "<|TEXT_UNDERSTANDING_START|>one<|TEXT_UNDERSTANDING_END|>"
        rendered = self.render(Utterance("template", "one"))
        if rendered.count(text) != 1 or not rendered.endswith("<|SPEECH_GENERATION_START|>"):
            raise CheckpointError(
                f"the tokenizer's chat template renders {rendered!r:.200}, expected one {text} and at the end "
                "<|SPEECH_GENERATION_START|>"
            )

    def prompt_ids(self, utterance: Utterance) -> NDArray[np.int64]:
        return np.array(self.tokenizer.encode(self.render(utterance), add_special_tokens=False), dtype=np.int64)

    def codes(self, completion_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        offsets = completion_ids[:, 0] - self.first_code_id
        return offsets[(offsets >= 0) & (offsets < self.num_codes)][:, None]

    def completion_ids(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids of a whole completion that speaks `codes` and stops. Shapes: [F, 1] -> [F + 1, 1]."""
        return np.concatenate([codes + self.first_code_id, [[self.stop_id]]])

    def states(self, batch: PolicyBatch) -> CellStates:
        device = batch.completion_mask.device
        weight: Tensor = self.llama.get_output_embeddings().weight
        with torch.autocast(device.type, self.compute_dtype, enabled=self.compute_dtype != self.llama.dtype):
            return packed_states(self.llama.model, batch, weight, self.legal_ids)

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        return self.states(batch).logprobs(temperature=temperature, entropy_grad=entropy_grad)

    def incremental(self) -> IncrementalModel:
        weight: Tensor = self.llama.get_output_embeddings().weight
        return IncrementalLlama(self.llama, weight[self.legal_ids.to(weight.device)], self.compute_dtype)


def _single_id(tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    ids = tokenizer.encode(token, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise CheckpointError(f"the tokenizer does not know {token} as one token, it gives {ids}")
    return int(ids[0])


def _code_block(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """First id and length of the contiguous block `<|s_0|>` … `<|s_{N-1}|>`."""
    found = {
        int(match[1]): id for token, id in tokenizer.get_vocab().items() if (match := _CODE_TOKEN.fullmatch(token))
    }
    if not found or sorted(found) != list(range(len(found))):
        raise CheckpointError(f"the tokenizer has {len(found)} speech tokens, expected <|s_0|> … without a gap")
    first = found[0]
    broken = next((code for code, id in found.items() if id != first + code), None)
    if broken is not None:
        raise CheckpointError(f"<|s_{broken}|> has id {found[broken]}, expected {first + broken} (offset {first})")
    structural = [_single_id(tokenizer, token) for token in STRUCTURAL_TOKENS]
    if structural != list(range(first - len(structural), first)):
        raise CheckpointError(
            f"the structural tokens have ids {structural}, expected the {len(structural)} before {first}"
        )
    return first, len(found)
