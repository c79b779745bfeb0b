"""Spark-TTS: a Qwen2 that is told a speaker in 32 global codes and writes one semantic code of BiCodec at a time.

Source: SparkAudio/Spark-TTS, `cli/SparkTTS.py`, `sparktts/utils/token_parser.py`. Not verified: the number of global codes and
their range, the number of semantic codes and their rate, and the stop token, which the source leaves to the checkpoint's
generation config. BiCodec itself does not ship: name a class of your own as the codec.
"""

from transformers import PreTrainedTokenizerBase

from elocution.policies.speech_tokens import PromptStyle, SpeechSpec, SpeechTokenPolicy
from elocution.types import Utterance

__all__ = ["SparkPolicy"]

_NUM_GLOBAL = 32
_GLOBAL_SIZE = 4096
_ANSWER = "<|start_semantic_token|>"


def _render(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, style: PromptStyle) -> str:
    words, codes = utterance.text, ""
    if utterance.voice is not None:
        words = utterance.voice.text + words
        codes = "".join(f"<|bicodec_semantic_{code}|>" for code in utterance.voice.codes[:, 0])
    speaker = "".join(f"<|bicodec_global_{code}|>" for code in style.speaker.split())
    return (
        f"<|task_tts|><|start_content|>{words}<|end_content|>"
        f"<|start_global_token|>{speaker}<|end_global_token|>{_ANSWER}{codes}"
    )


def _check_style(style: PromptStyle) -> str | None:
    codes = style.speaker.split()
    if len(codes) == _NUM_GLOBAL and all(code.isdecimal() and int(code) < _GLOBAL_SIZE for code in codes):
        return None
    return f"must be the speaker's {_NUM_GLOBAL} global codes, each below {_GLOBAL_SIZE}, with spaces between them"


class SparkPolicy(SpeechTokenPolicy):
    """The `LLM` folder of a Spark-TTS checkpoint; `speaker` is the global codes of the one voice of a run."""

    spec = SpeechSpec(
        family="spark",
        model_types=("qwen2",),
        code_token="<|bicodec_semantic_{}|>",
        stop_token="<|im_end|>",
        render=_render,
        text_tags=("<|start_content|>", "<|end_content|>"),
        answer_start=_ANSWER,
        frame_rate=50.0,
        needs_speaker=True,
        check_style=_check_style,
    )
