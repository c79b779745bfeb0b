"""The tokens that CosyVoice gives to the text tokenizer of Qwen2: special ones first, then those of speech.

Source: `QwenTokenizer` and `CosyVoice3Tokenizer` of FunAudioLLM/CosyVoice. Order decides ids and must not change.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from elocution.errors import CheckpointError
from elocution.policies.cosyvoice import CHAT_TEMPLATE
from elocution.policies.cosyvoice_ids import Layout, SpeechIds, read_ids, speech_tokens

__all__ = ["V2_SPECIAL", "V3_SPECIAL", "build_tokenizer", "describe_v3"]

V2_SPECIAL = tuple(
    "<|im_start|> <|im_end|> <|endofprompt|> [breath] <strong> </strong> [noise] [laughter] [cough] [clucking] [accent] "
    "[quick_breath] <laughter> </laughter> [hissing] [sigh] [vocalized-noise] [lipsmack] [mn]".split()
)
_PHONEMES = """
AA AA0 AA1 AA2 AE AE0 AE1 AE2 AH AH0 AH1 AH2 AO AO0 AO1 AO2 AW AW0 AW1 AW2 AY AY0 AY1 AY2 B CH D DH EH EH0 EH1 EH2 ER ER0
ER1 ER2 EY EY0 EY1 EY2 F G HH IH IH0 IH1 IH2 IY IY0 IY1 IY2 JH K L M N NG OW OW0 OW1 OW2 OY OY0 OY1 OY2 P R S SH T TH UH
UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH
a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié iòng ióng iù iú iā iān
iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p q r s sh t u uang ue un uo uà uài uàn uàng uá uái uán
uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi
èn èng èr é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn ēng ě ěi ěn ěng ěr ī īn īng
ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ
"""
V3_SPECIAL = (*V2_SPECIAL, "<|endofsystem|>", *(f"[{phoneme}]" for phoneme in _PHONEMES.split()))


def build_tokenizer(text_model: Path, layout: Layout, num_codes: int) -> tuple[PreTrainedTokenizerBase, SpeechIds]:
    """The tokenizer in `text_model` with the special and speech tokens of `layout` behind its own.

    Raises: CheckpointError if it cannot be loaded, or has speech tokens already.
    """
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(text_model, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a damaged file may end in any error of the libraries that read it
        raise CheckpointError(f"cannot load the tokenizer in {text_model}: {type(error).__name__}: {error}") from error
    if "<|s_0|>" in tokenizer.get_vocab():
        raise CheckpointError(
            f"the tokenizer in {text_model} has speech tokens already; name the folder of the text model"
        )
    special = V2_SPECIAL if layout == "v2" else V3_SPECIAL
    end = "<|endoftext|>"
    tokenizer.add_special_tokens({"eos_token": end, "pad_token": end, "additional_special_tokens": list(special)})
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in speech_tokens(layout, num_codes)])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer, read_ids(tokenizer)


def describe_v3(ids: SpeechIds, *, base_vocab_size: int, padded_vocab_size: int, dtype: str) -> str:
    """The metadata file that the converter for TensorRT-LLM writes beside a CosyVoice3 folder, as JSON."""
    numbers = {
        "original_vocab_size": base_vocab_size,
        "text_vocab_size": ids.first_code,
        "base_speech_token_size": ids.num_codes,
        "embedding_size": len(ids.rows),
        "padded_vocab_size": padded_vocab_size,
        "eos_token_id": ids.eos,
        "speech_token_offset": ids.first_code,
        "dtype": dtype,
    }
    return json.dumps(numbers, indent=2) + "\n"
