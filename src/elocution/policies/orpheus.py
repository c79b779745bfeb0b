"""Orpheus: a Llama that writes seven codes of SNAC for each frame, one codebook's part of the vocabulary after the other.

Source: the decoders in use with canopylabs' Orpheus-TTS. Not verified: the size of the released vocabulary beyond the codes,
and how the pre-trained model takes a voice from a recording, which is therefore refused.
"""

from transformers import PreTrainedTokenizerBase

from elocution.policies.speech_tokens import PromptStyle, SpeechSpec, SpeechTokenPolicy
from elocution.types import Utterance

__all__ = ["OrpheusPolicy"]

_ANSWER = "<custom_token_4><custom_token_5><custom_token_1>"


def _render(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, style: PromptStyle) -> str:
    speaker = f"{style.speaker}: " if style.speaker else ""
    return f"<custom_token_3>{tokenizer.bos_token}{speaker}{utterance.text}<|eot_id|>{_ANSWER}"


class OrpheusPolicy(SpeechTokenPolicy):
    """An Orpheus checkpoint; its codec is `snac`, and `speaker` is a name that it was taught, for example tara."""

    spec = SpeechSpec(
        family="orpheus",
        model_types=("llama",),
        code_token="<custom_token_{}>",
        stop_token="<custom_token_2>",
        render=_render,
        text_tags=("", "<|eot_id|>"),
        answer_start=_ANSWER,
        num_slots=7,
        first_number=10,
        slot_size=4096,
        frame_rate=24_000 / 2048,
        voice="none",
    )
