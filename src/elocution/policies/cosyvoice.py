"""CosyVoice2 and 3: a Qwen2 that reads text between a start and a task token and writes one speech code at a time.

Source: the published Hugging Face layouts, see `cosyvoice_ids`. A voice's text and codes stand before the text and at the start
of the answer, as in native zero-shot inference; the speaker vector and the voice's spectrum reach the codec alone.
"""

from typing import Any

from transformers import PreTrainedTokenizerBase

from elocution.errors import CheckpointError
from elocution.policies.cosyvoice_ids import read_ids
from elocution.policies.speech_tokens import PromptStyle, SpeechBlock, SpeechSpec, SpeechTokenPolicy
from elocution.types import Utterance

__all__ = ["CHAT_TEMPLATE", "V3_PREFIX", "CosyVoice2Policy", "CosyVoice3Policy"]

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message['role'] == 'user' %}{{- '<|sos|>' + message['content'] + '<|task_id|>' }}"
    "{%- elif message['role'] == 'assistant' %}{{- message['content'] }}{%- endif %}"
    "{%- endfor %}"
)
V3_PREFIX = "You are a helpful assistant.<|endofprompt|>"
"""What every text of CosyVoice3 begins with; the model was never taught one without it."""


def _render(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, prefix: str) -> str:
    words, codes = utterance.text, ""
    if utterance.voice is not None:
        words = utterance.voice.text + words
        codes = "".join(f"<|s_{code}|>" for code in utterance.voice.codes[:, 0])
    rendered: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": prefix + words}, {"role": "assistant", "content": codes}], tokenize=False
    )
    return str(rendered)


def _render_v2(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, style: PromptStyle) -> str:
    return _render(tokenizer, utterance, "")


def _render_v3(tokenizer: PreTrainedTokenizerBase, utterance: Utterance, style: PromptStyle) -> str:
    return _render(tokenizer, utterance, V3_PREFIX)


def _block(tokenizer: PreTrainedTokenizerBase, spec: SpeechSpec) -> SpeechBlock:
    ids = read_ids(tokenizer)
    if spec.family != f"cosyvoice{ids.generation}":
        raise CheckpointError(
            f"the tokenizer has the layout {ids.layout} of CosyVoice{ids.generation}, but the family is {spec.family}; "
            f"set model.family = 'cosyvoice{ids.generation}'"
        )
    return SpeechBlock(ids.first_code, ids.num_codes, ids.eos, tuple(id for id in ids.stops if id != ids.eos))


def _no_speaker(style: PromptStyle) -> str | None:
    return "voices are recordings here, not names" if style.speaker else None


class CosyVoice2Policy(SpeechTokenPolicy):
    """A CosyVoice2 checkpoint in the layout that the published recipe trains, with or without the bias of its speech head."""

    spec = SpeechSpec(
        family="cosyvoice2",
        model_types=("qwen2",),
        code_token="<|s_{}|>",
        render=_render_v2,
        text_tags=("<|sos|>", "<|task_id|>"),
        answer_start="<|task_id|>",
        frame_rate=25.0,
        check_style=_no_speaker,
        find_block=_block,
        head_bias=True,
    )


class CosyVoice3Policy(SpeechTokenPolicy):
    """A CosyVoice3 checkpoint in either of its published layouts; its speech head has no bias."""

    spec = SpeechSpec(
        family="cosyvoice3",
        model_types=("qwen2",),
        code_token="<|s_{}|>",
        render=_render_v3,
        text_tags=(f"<|sos|>{V3_PREFIX}", "<|task_id|>"),
        answer_start="<|task_id|>",
        frame_rate=25.0,
        check_style=_no_speaker,
        find_block=_block,
    )
