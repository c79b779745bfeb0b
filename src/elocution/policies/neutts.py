"""NeuTTS Air: a Qwen2 that reads the phonemes of a recording and of a text, and goes on with the recording's codes.

Source: neuphonic/neutts-air, `neuttsair/neutts.py`. Not verified: the released checkpoint's `config.json`.
"""

from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerBase

from elocution.errors import MissingDependency
from elocution.policies.speech_tokens import PromptStyle, SpeechSpec, SpeechTokenPolicy
from elocution.types import Utterance

__all__ = ["NeuTtsPolicy", "prompt_text"]


def prompt_text(words: str, codes: str) -> str:
    """The prompt of `words`, phonemes, after which speech goes on from the code tokens `codes`."""
    return (
        f"user: Convert the text to speech:<|TEXT_PROMPT_START|>{words}<|TEXT_PROMPT_END|>\n"
        f"assistant:<|SPEECH_GENERATION_START|>{codes}"
    )


def _render(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, style: PromptStyle) -> str:
    voice = utterance.voice
    words = _phonemes(utterance.text)
    if voice is None:
        return prompt_text(words, "")
    codes = "".join(f"<|speech_{code}|>" for code in voice.codes[:, 0])
    return prompt_text(f"{_phonemes(voice.text)} {words}", codes)


def _phonemes(text: str) -> str:
    return " ".join(str(_espeak().phonemize([text])[0]).split())


@cache
def _espeak() -> Any:
    """Raises: MissingDependency without `phonemizer`; what that raises without the espeak-ng library."""
    try:
        from phonemizer.backend import EspeakBackend
    except ImportError as error:
        raise MissingDependency.naming("phonemizer", "neutts") from error
    return EspeakBackend(language="en-us", preserve_punctuation=True, with_stress=True)


class NeuTtsPolicy(SpeechTokenPolicy):
    """A NeuTTS Air checkpoint; its codec is `neucodec`, its texts are English."""

    spec = SpeechSpec(
        family="neutts",
        model_types=("qwen2",),
        code_token="<|speech_{}|>",
        stop_token="<|SPEECH_GENERATION_END|>",
        render=_render,
        text_tags=("<|TEXT_PROMPT_START|>", "<|TEXT_PROMPT_END|>"),
        answer_start="<|SPEECH_GENERATION_START|>",
        frame_rate=50.0,
        voice="required",
        check_style=lambda style: "voices are recordings here, not names" if style.speaker else None,
    )
