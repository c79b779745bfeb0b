"""Whisper as transformers runs it: transcript, likelihood of the wanted text and chance of no speech, in one pass.

The likelihood conditions on `<|startoftranscript|><|language|><|transcribe|><|notimestamps|>` and scores the text and its
end, nothing of the prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    GenerationMixin,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from elocution.errors import CheckpointError, DataError
from elocution.loading import LOADING
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["Hearing", "Whisper"]

_SAMPLE_RATE = 16_000
_WINDOW = 30 * _SAMPLE_RATE
_SEARCH = 5 * _SAMPLE_RATE
_PAUSE = _SAMPLE_RATE // 10
_ENGLISH_VOCABULARY = 51_864
_LONGEST_PREFIX = 5
# Languages whose text has no blank before its first word.
_UNSPACED = frozenset({"zh", "ja", "yue", "th", "lo", "my"})


@dataclass(frozen=True, slots=True)
class Hearing:
    """What Whisper made of a clip.

    `nll` is the mean negative log-likelihood of the wanted text, nats per token, its end included; None if no text was
    given, or if the clip is longer than the 30 s that one pass hears. `no_speech` is the probability of no speech in the
    clip's first 30 s.
    """

    transcript: str
    nll: float | None
    no_speech: float


class Whisper:
    """A Whisper checkpoint folder, English or multilingual; greedy decoding, so that a clip is heard the same each time."""

    def __init__(
        self, model: WhisperForConditionalGeneration, tokenizer: Any, features: WhisperFeatureExtractor, batch_size: int
    ) -> None:
        self._model, self._tokenizer, self._features = model, tokenizer, features
        self._batch_size = batch_size
        self._start, self._end = self._id("<|startoftranscript|>"), self._id("<|endoftext|>")
        self._no_timestamps = self._id("<|notimestamps|>")
        known = set(tokenizer.get_vocab())
        self._no_speech = self._id(next(name for name in ("<|nospeech|>", "<|nocaptions|>") if name in known))
        # English-only checkpoints have one id less than the multilingual ones of their time; newer ones have more.
        self._multilingual = model.config.vocab_size > _ENGLISH_VOCABULARY
        generation: Any = model.generation_config
        # What must not be written comes with the checkpoint; how to search is decided here.
        self._generation = GenerationConfig(
            max_length=model.config.max_target_positions,
            do_sample=False,
            num_beams=1,
            suppress_tokens=generation.suppress_tokens,
            begin_suppress_tokens=generation.begin_suppress_tokens,
            decoder_start_token_id=self._start,
            bos_token_id=self._end,
            eos_token_id=self._end,
            pad_token_id=self._end,
        )

    @classmethod
    def from_pretrained(cls, path: Path, *, device: str = "cpu", batch_size: int = 16) -> Self:
        """Loads a checkpoint folder; nothing is downloaded. fp16 on a GPU, fp32 elsewhere.

        Raises: CheckpointError if a file is missing, or tensors are missing or left over.
        """
        dtype = torch.float16 if torch.device(device).type == "cuda" else torch.float32
        try:
            with LOADING:
                loaded: Any = WhisperForConditionalGeneration.from_pretrained(
                    path, dtype=dtype, local_files_only=True, output_loading_info=True
                )
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
            features = WhisperFeatureExtractor.from_pretrained(path, local_files_only=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"cannot load the recogniser {path}: {error}") from error
        model, loading = loaded
        wrong = {kind: sorted(map(str, keys)) for kind, keys in loading.items() if keys}
        if wrong:
            raise CheckpointError(f"the tensors in {path} do not fit Whisper: {wrong}")
        return cls(model.to(device).eval().requires_grad_(False), tokenizer, features, batch_size)

    def transcribe(self, audio: Audio, language: str = "en") -> str:
        """What was said in one clip, possibly nothing."""
        return self.hear([audio], language=language)[0].transcript

    @torch.inference_mode()
    def hear(
        self, clips: Sequence[Audio], texts: Sequence[str] | None = None, *, language: str = "en"
    ) -> list[Hearing]:
        """One hearing for each clip; each 30 s window of it passes the encoder once.

        Raises: DataError if the checkpoint does not know `language`, or a text is empty.
        """
        prefix = self._prefix(language)
        targets = [self._text_ids(text, language) for text in texts] if texts is not None else None
        pieces = [_windows(samples_at(clip, _SAMPLE_RATE)) for clip in clips]
        windows = [window for own in pieces for window in own]
        counts = [len(own) for own in pieces]
        firsts = np.cumsum([0, *counts[:-1]])
        target_of: dict[int, list[int]] = {}
        if targets is not None:
            target_of = {
                int(first): ids for first, count, ids in zip(firsts, counts, targets, strict=True) if count == 1
            }
        heard: list[Hearing] = []
        for start in range(0, len(windows), self._batch_size):
            chunk = windows[start : start + self._batch_size]
            heard += self._hear_windows(chunk, [target_of.get(start + row) for row in range(len(chunk))], prefix)
        return [
            Hearing(
                " ".join(filter(None, (part.transcript for part in heard[first : first + count]))),
                heard[first].nll,
                heard[first].no_speech,
            )
            for first, count in zip(firsts, counts, strict=True)
        ]

    def _hear_windows(
        self, windows: Sequence[NDArray[np.float32]], targets: Sequence[list[int] | None], prefix: list[int]
    ) -> list[Hearing]:
        device, dtype = self._model.device, self._model.dtype
        features = self._features(list(windows), sampling_rate=_SAMPLE_RATE, return_tensors="pt").input_features
        states = self._model.get_encoder()(features.to(device, dtype)).last_hidden_state
        no_speech, nll = self._score(states, targets, prefix)
        # Whisper's own `generate` would choose another prefix.
        drawn = GenerationMixin.generate(
            self._model,
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=torch.ones(states.shape[:2], device=device),
            decoder_input_ids=torch.tensor([prefix] * len(windows), device=device),
            generation_config=self._generation,
        )
        texts = self._tokenizer.batch_decode(drawn, skip_special_tokens=True)
        return [
            Hearing(text.strip(), *scores) for text, scores in zip(texts, zip(nll, no_speech, strict=True), strict=True)
        ]

    def _score(
        self, states: Tensor, targets: Sequence[list[int] | None], prefix: list[int]
    ) -> tuple[list[float], list[float | None]]:
        """Chance of no speech, and NLL of each target that is given. Shapes: `states` [B, frames, width]."""
        rows = [[*prefix, *(target or [])] for target in targets]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [self._end] * (longest - len(row)) for row in rows], device=states.device)
        # What stands behind a row's end cannot be seen from before it: the decoder is causal.
        logits = self._model(encoder_outputs=(states,), decoder_input_ids=ids).logits.float()
        silence = torch.softmax(logits[:, 0], dim=-1)[:, self._no_speech].tolist()
        nll: list[float | None] = []
        for row, target in enumerate(targets):
            if target is None:
                nll.append(None)
                continue
            wanted = torch.tensor([*target, self._end], device=logits.device)
            places = logits[row, len(prefix) - 1 : len(prefix) + len(target)]
            nll.append(float(torch.nn.functional.cross_entropy(places, wanted)))
        return silence, nll

    def _prefix(self, language: str) -> list[int]:
        if not self._multilingual:
            if language != "en":
                raise DataError(f"this Whisper checkpoint hears English only, {language!r} was asked for")
            return [self._start, self._no_timestamps]
        token = f"<|{language}|>"
        if token not in self._tokenizer.get_vocab():
            raise DataError(f"this Whisper checkpoint does not know the language {language!r}")
        return [self._start, self._id(token), self._id("<|transcribe|>"), self._no_timestamps]

    def _text_ids(self, text: str, language: str) -> list[int]:
        text = text.strip()
        if not text:
            raise DataError("an empty text has no likelihood")
        ids: list[int] = self._tokenizer.encode(text if language in _UNSPACED else f" {text}", add_special_tokens=False)
        limit = self._model.config.max_target_positions - _LONGEST_PREFIX
        if len(ids) > limit:
            raise DataError(f"a text of {len(ids)} tokens is longer than the {limit} that Whisper can score")
        return ids

    def _id(self, token: str) -> int:
        found = self._tokenizer.convert_tokens_to_ids(token)
        if found is None or (found == self._tokenizer.unk_token_id and token != self._tokenizer.unk_token):
            raise CheckpointError(f"the recogniser's tokenizer does not know {token}")
        return int(found)


def _windows(samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Pieces of at most 30 s, cut where the last 5 s of a piece are quietest."""
    pieces = []
    while len(samples) > _WINDOW:
        tail = samples[_WINDOW - _SEARCH : _WINDOW].astype(np.float64)
        energy = np.square(tail).reshape(-1, _PAUSE).sum(axis=1)
        cut = _WINDOW - _SEARCH + int(energy.argmin()) * _PAUSE + _PAUSE // 2
        pieces.append(samples[:cut])
        samples = samples[cut:]
    return [*pieces, samples]
