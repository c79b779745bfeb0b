"""The LLaSA family: a Llama that reads text between understanding tags and writes one speech code at a time."""

from typing import Any

from transformers import PreTrainedTokenizerBase

from elocution.policies.speech_tokens import PromptStyle, SpeechSpec, SpeechTokenPolicy
from elocution.types import Utterance

__all__ = ["LlasaPolicy", "prompt_messages"]

# The Llama 3 template writes the current date into the prompt; a run must not depend on the day it is made.
PROMPT_DATE = "26 Jul 2024"
STRUCTURAL_TOKENS = tuple(
    f"<|{kind}_{edge}|>"
    for kind in ("TEXT_GENERATION", "TEXT_UNDERSTANDING", "SPEECH_GENERATION", "SPEECH_UNDERSTANDING")
    for edge in ("START", "END")
)


def prompt_messages(utterance: Utterance, style: PromptStyle) -> list[dict[str, str]]:
    """The chat of one utterance, to be rendered as a message that continues.

    The words of a voice stand before the text with nothing between them, and its codes begin the answer. Fine-tunes with
    several speakers name theirs before the speech; those with language tags wrap the words in them.
    Source: LLaSA model card; prompts and two-speaker recipe of zhenye234/LLaSA_training.
    """
    words, codes = utterance.text, ""
    if utterance.voice is not None:
        words = utterance.voice.text + words
        codes = "".join(f"<|s_{code}|>" for code in utterance.voice.codes[:, 0])
    tag = style.language_tags.get(utterance.language)
    if tag:
        words = f"<|{tag}_START|>{words}<|{tag}_END|>"
    speaker = f"Speaker {style.speaker} " if style.speaker else ""
    return [
        {
            "role": "user",
            "content": f"Convert the text to speech:<|TEXT_UNDERSTANDING_START|>{words}<|TEXT_UNDERSTANDING_END|>",
        },
        {"role": "assistant", "content": f"{speaker}<|SPEECH_GENERATION_START|>{codes}"},
    ]


def _render(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, style: PromptStyle) -> str:
    rendered: Any = tokenizer.apply_chat_template(
        prompt_messages(utterance, style), tokenize=False, continue_final_message=True, date_string=PROMPT_DATE
    )
    return str(rendered)


class LlasaPolicy(SpeechTokenPolicy):
    """A LLaSA checkpoint: `LlamaForCausalLM` plus the ids that its tokenizer gives to speech."""

    spec = SpeechSpec(
        family="llasa",
        model_types=("llama",),
        code_token="<|s_{}|>",
        stop_token="<|SPEECH_GENERATION_END|>",
        render=_render,
        text_tags=("<|TEXT_UNDERSTANDING_START|>", "<|TEXT_UNDERSTANDING_END|>"),
        answer_start="<|SPEECH_GENERATION_START|>",
        before_codes=STRUCTURAL_TOKENS,
        language_tags=True,
    )
