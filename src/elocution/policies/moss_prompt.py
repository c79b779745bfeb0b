"""The prompt of the MOSS family: chat turns as rows of text and codes. The one renderer for rollouts and learner.

Source: MOSS-TTS, MossTTSDelayProcessor; the turn that speaks in the reference's voice is LAION's GRPO recipe.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from elocution.errors import DataError
from elocution.policies.delay_pattern import SlotIds, audio_slots, fill_rows
from elocution.types import Utterance

__all__ = ["LANGUAGE_NAMES", "MossPrompt", "clean_text", "user_content"]

LANGUAGE_NAMES = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "zh": "Chinese",
}

_AUDIO = "<|audio|>"
_CONTENT = """\
<user_inst>
- Reference(s):
{reference}
- Instruction:
{instruction}
- Tokens:
{tokens}
- Quality:
{quality}
- Sound Event:
{sound_event}
- Ambient Sound:
{ambient_sound}
- Language:
{language}
- Text:
{text}
</user_inst>"""
_FIELDS = ("reference", "instruction", "tokens", "quality", "sound_event", "ambient_sound", "language", "text")

_SPACES = re.compile(r"\s+")
_DROPPED = re.compile(r'["“”_~「」『』《》【】〈〉]')
_JOINTS = re.compile(r"(?<=\w)-+(?=\w)")


def clean_text(text: str) -> str:
    """The text as a prompt has it: what the SGLang server would take out is out already, so that it changes nothing.

    A hyphen between two words becomes a space, where the server would join them.
    """
    text = _JOINTS.sub(" ", text).replace("-", "")
    text = _DROPPED.sub("", text).replace(";", ",").replace(":", ",").replace("’", "'").replace("‘", "'")
    text = _SPACES.sub(" ", text).strip()
    return re.sub(r"[,，]+$", ".", text)


def user_content(**fields: str | None) -> str:
    """The content of a user turn; fields that are absent print the word None, as the release does.

    Raises: TypeError if there is no such field.
    """
    if unknown := fields.keys() - set(_FIELDS):
        raise TypeError(f"a user turn has no field {', '.join(sorted(unknown))}")
    return _CONTENT.format(**dict.fromkeys(_FIELDS) | fields)


class MossPrompt:
    """Renders utterances for a tokenizer and its ids.

    `voice_form` says where a recording goes: `turn` is an earlier turn of the model itself, after an empty one of the user;
    `reference` a field of the one user turn.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        ids: SlotIds,
        num_codebooks: int,
        *,
        voice_form: Literal["turn", "reference"],
    ) -> None:
        self._tokenizer, self._ids, self._books = tokenizer, ids, num_codebooks
        self._voice_form = voice_form

    def rows(self, utterance: Utterance) -> NDArray[np.int64]:
        """The whole prompt, the opening of the model's turn included. Shapes: [L, 1 + Q].

        Raises: DataError if the voice's codes are not [F, Q] of this family.
        """
        voice = utterance.voice
        target = user_content(
            reference=f"[S1]:\n{_AUDIO}" if voice and self._voice_form == "reference" else None,
            instruction=utterance.instruction or utterance.emotion or None,
            language=LANGUAGE_NAMES.get(utterance.language),
            text=clean_text(utterance.text),
        )
        clips = []
        if voice is not None:
            if voice.codes.ndim != 2 or voice.codes.shape[1] != self._books or voice.codes.max() >= self._ids.pad_code:
                raise DataError(
                    f"the voice {voice.id} has codes {voice.codes.shape} up to {voice.codes.max()}, expected "
                    f"[F, {self._books}] below {self._ids.pad_code}"
                )
            clips = [voice.codes]
        if voice is not None and self._voice_form == "turn":
            turns = [
                self._turn("user", user_content(), []),
                self._turn("assistant", _AUDIO, clips),
                self._turn("user", target, []),
            ]
        else:
            turns = [self._turn("user", target, clips)]
        return np.concatenate([*turns, self._encode(f"{self._token(self._ids.im_start)}assistant\n", [])])

    def _turn(self, role: Literal["user", "assistant"], content: str, clips: Sequence[NDArray[np.int64]]) -> Any:
        """One message, encoded in one go: a tokenizer may merge what stands on both sides of a seam."""
        for clip in clips:
            slots = audio_slots(len(clip), self._books, self._ids, speaker=role)
            content = content.replace(_AUDIO, "".join(map(self._token, slots)), 1)
        start, end = self._token(self._ids.im_start), self._token(self._ids.im_end)
        return self._encode(f"{start}{role}\n{content}{end}\n", clips)

    def _encode(self, text: str, clips: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if clips:
            return fill_rows(ids, list(clips), self._ids)
        rows = np.full((len(ids), 1 + self._books), self._ids.pad_code, dtype=np.int64)
        rows[:, 0] = ids
        return rows

    def _token(self, id: int) -> str:
        # Tokenizers of this family name their added tokens in different ways; the id is what counts.
        token: Any = self._tokenizer.convert_ids_to_tokens(id)
        return str(token)
