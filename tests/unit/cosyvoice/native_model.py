"""CosyVoice's language model and its published Hugging Face folders, written from their description and not with our code.

Small, with random weights. Key names come from the modules' own attributes, as in the original classes.
"""

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

NUM_CODES = 81
WIDTH = 16


def text_tokenizer(pieces: int = 0) -> PreTrainedTokenizerFast:
    """Bytes, `pieces` more that stand for nothing, and Qwen2's three special tokens."""
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"piece{i}" for i in range(pieces))]
    backend = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(f"<|{name}|>", special=True) for name in ("endoftext", "im_start", "im_end")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def text_config(rows: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=rows,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
    )


class Qwen2Encoder(nn.Module):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.model = Qwen2ForCausalLM(config)


class SpeechLM(nn.Module):
    """`Qwen2LM` (generation 2) or `CosyVoice3LM`."""

    def __init__(self, generation: int, config: Qwen2Config, num_codes: int = NUM_CODES) -> None:
        super().__init__()
        width, rows = config.hidden_size, num_codes + (3 if generation == 2 else 200)
        self.num_codes = num_codes
        self.llm = Qwen2Encoder(config)
        if generation == 2:
            self.llm_embedding = nn.Embedding(2, width)
        self.llm_decoder = nn.Linear(width, rows, bias=generation == 2)
        self.speech_embedding = nn.Embedding(rows, width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):  # trained biases are not 0, which would hide a lost one
                nn.init.normal_(parameter, std=2.0)

    @torch.no_grad()
    def logits(self, text_ids: list[int], codes: list[int]) -> Tensor:
        """After the prompt and after each code. Shapes: [F + 1, R]."""
        if hasattr(self, "llm_embedding"):
            sos, task = self.llm_embedding.weight[0], self.llm_embedding.weight[1]
        else:
            sos, task = self.speech_embedding.weight[self.num_codes], self.speech_embedding.weight[self.num_codes + 2]
        text = self.llm.model.model.embed_tokens(torch.tensor(text_ids, dtype=torch.long))
        speech = self.speech_embedding(torch.tensor(codes, dtype=torch.long))
        whole = torch.cat([sos[None], text, task[None], speech])[None]
        length = whole.shape[1]
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool))[None, None]
        outputs = self.llm.model.model(inputs_embeds=whole, attention_mask=mask)
        hidden: Tensor = outputs.last_hidden_state[0, len(text_ids) + 1 :]
        found: Tensor = self.llm_decoder(hidden)
        return found


def build(generation: int, seed: int = 0) -> SpeechLM:
    """The text table has more rows than the tokenizer has tokens, as the released ones do."""
    torch.manual_seed(seed)
    return SpeechLM(generation, text_config(300 if generation == 2 else 570)).eval()


def write_model_folder(model: SpeechLM, folder: Path, generation: int) -> Path:
    """`llm.pt`, the yaml and the text model's folder, as they are published."""
    folder.mkdir(parents=True)
    torch.save(model.state_dict(), folder / "llm.pt")
    (folder / f"cosyvoice{generation}.yaml").write_text("sample_rate: 24000\n")
    blank = folder / "CosyVoice-BlankEN"
    model.llm.model.config.save_pretrained(blank)
    text_tokenizer().save_pretrained(blank)
    return folder


TEMPLATE = (
    "{%- for message in messages %}{%- if message['role'] == 'user' %}{{- '<|sos|>' + message['content'] + '<|task_id|>' }}"
    "{%- elif message['role'] == 'assistant' %}{{- message['content']}}{%- endif %}{%- endfor %}"
)


def published_tokenizer(layout: str, special: list[str], num_codes: int = NUM_CODES, pieces: int = 0) -> Any:
    tokenizer = text_tokenizer(pieces)
    end = "<|endoftext|>"
    tokenizer.add_special_tokens({"eos_token": end, "pad_token": end, "additional_special_tokens": special})
    if layout == "v2":
        names = [f"<|s_{i}|>" for i in range(num_codes)] + [
            "<|eos1|>",
            "<|eos2|>",
            "<|eos3|>",
            "<|sos|>",
            "<|task_id|>",
        ]
    else:
        names = [f"<|s_{i}|>" for i in range(num_codes + 200)]
        if layout == "v3":
            names[num_codes : num_codes + 4] = ["<|sos|>", "<|eos1|>", "<|task_id|>", "<|fill|>"]
        else:
            names += ["<|sos|>", "<|eos|>", "<|task_id|>"]
    tokenizer.add_tokens(names)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def publish(model: SpeechLM, layout: str, special: list[str], folder: Path, *, shard: str = "5GB") -> Path:
    """The folder that the published converter of `layout` writes, in fp32."""
    tokenizer = published_tokenizer(layout, special)
    start, rows = tokenizer.convert_tokens_to_ids("<|s_0|>"), model.speech_embedding.num_embeddings
    whole = Qwen2ForCausalLM(Qwen2Config(**model.llm.model.config.to_dict()))
    whole.load_state_dict(model.llm.model.state_dict())
    whole.config.tie_word_embeddings = False
    whole.lm_head.weight = nn.Parameter(whole.lm_head.weight.detach().clone())
    whole.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=128)
    size = whole.get_input_embeddings().weight.shape[0]
    head = nn.Linear(WIDTH, size, bias=layout == "v2")
    with torch.no_grad():
        head.weight.zero_()
        head.weight[start : start + rows] = model.llm_decoder.weight
        table = whole.get_input_embeddings().weight
        table[start : start + rows] = model.speech_embedding.weight
        if layout == "v2":
            head.bias.fill_(-float("inf"))
            head.bias[start : start + rows] = model.llm_decoder.bias
            table[start + rows : start + rows + 2] = model.llm_embedding.weight
        elif layout == "v3-alias":
            for place, name in enumerate(["<|sos|>", "<|eos|>", "<|task_id|>"]):
                alias, source = tokenizer.convert_tokens_to_ids(name), start + model.num_codes + place
                head.weight[alias] = head.weight[source]
                table[alias] = table[source]
    whole.lm_head = head
    whole.config.vocab_size = size
    whole.config.eos_token_id = start + model.num_codes
    whole.save_pretrained(folder, max_shard_size=shard)
    tokenizer.save_pretrained(folder)
    return folder
