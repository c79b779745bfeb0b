"""ONNX files with random weights in the layouts that sherpa-onnx reads: inputs, outputs and metadata of the released models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["save_random_paraformer", "save_random_sensevoice", "save_random_speaker_model"]

WORDS = ["<blank>", "<s>", "</s>", "一", "二", "三", "四", "五"]
_FEATURES = 560  # seven frames of 80 bands
_NORMS = {"neg_mean": ",".join(["-8.0"] * _FEATURES), "inv_stddev": ",".join(["0.2"] * _FEATURES)}
_WINDOWS = {"vocab_size": len(WORDS), "lfr_window_size": 7, "lfr_window_shift": 6}


def save_random_sensevoice(folder: Path) -> None:
    """SenseVoice: features, their lengths, language and text norm; logits that depend on the language."""
    onnx = _onnx()
    tensor, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "weights"], ["bare"]),
        node("Add", ["bare", "only_words"], ["plain"]),
        node("Cast", ["language"], ["told"], to=kind.FLOAT),
        node("Reshape", ["told", "column"], ["by_row"]),
        node("Mul", ["by_row", "leaning"], ["lean"]),
        node("Add", ["plain", "lean"], ["frames"]),
        node("Pad", ["frames", "four_in_front"], ["logits"]),
    ]
    inputs = [tensor("x", kind.FLOAT, ["N", "T", _FEATURES])]
    inputs += [tensor(name, kind.INT32, ["N"]) for name in ("x_length", "language", "text_norm")]
    lean = np.zeros(len(WORDS), np.float32)
    lean[3] = 1.0
    constants = {
        "weights": _random(_FEATURES, len(WORDS)),
        "only_words": np.array([*[-1e4] * 3, *[0.0] * 5], np.float32),
        "column": np.array([-1, 1, 1]),
        "leaning": lean,
        "four_in_front": np.array([0, 4, 0, 0, 0, 0]),
    }
    languages = {f"lang_{name}": number for name, number in _LANGUAGES.items()}
    about = {**_WINDOWS, **_NORMS, **languages, "normalize_samples": 0, "with_itn": 14, "without_itn": 15}
    _save(folder / "model.onnx", nodes, inputs, ["logits"], constants, about)
    _save_tokens(folder)


def save_random_paraformer(folder: Path) -> None:
    """Paraformer: a token for each window, and how many there are; behind a clip in a batch there are others, as in released ones."""
    onnx = _onnx()
    tensor, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["speech", "weights"], ["plain"]),
        node("Add", ["plain", "leaning"], ["logits"]),
        node("Cast", ["speech_lengths"], ["token_num"], to=kind.INT64),
    ]
    inputs = [tensor("speech", kind.FLOAT, ["N", "T", _FEATURES]), tensor("speech_lengths", kind.INT32, ["N"])]
    only_words = np.array([*[-1e4] * 3, *[0.0] * 5], np.float32)
    constants = {"weights": _random(_FEATURES, len(WORDS)), "leaning": only_words}
    _save(folder / "model.onnx", nodes, inputs, ["logits", "token_num"], constants, {**_WINDOWS, **_NORMS})
    _save_tokens(folder)


def save_random_speaker_model(folder: Path) -> None:
    """CAM++ as 3D-Speaker's models are exported: features of 80 bands in, the mean of a projection out."""
    onnx = _onnx()
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "weights"], ["frames"]),
        node("Tanh", ["frames"], ["bent"]),
        node("ReduceMean", ["bent"], ["embedding"], axes=[1], keepdims=0),
    ]
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", "T", 80])]
    about = {"framework": "3d-speaker", "language": "Chinese", "output_dim": 12, "sample_rate": 16_000}
    about |= {"normalize_samples": 1, "feature_normalize_type": "global-mean"}
    _save(folder / "campplus.onnx", nodes, inputs, ["embedding"], {"weights": _random(80, 12)}, about)


_LANGUAGES = {"auto": 0, "zh": 3, "en": 4, "yue": 7, "ja": 11, "ko": 12}


def _onnx() -> Any:
    import onnx

    return onnx


def _random(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32) * 0.1


def _save(
    file: Path, nodes: list[Any], inputs: list[Any], outputs: list[str], constants: Mapping[str, Any], about: Any
) -> None:
    onnx = _onnx()
    kinds = {"token_num": onnx.TensorProto.INT64}
    results = [
        onnx.helper.make_tensor_value_info(name, kinds.get(name, onnx.TensorProto.FLOAT), None) for name in outputs
    ]
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(nodes, "random", inputs, results, tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    onnx.helper.set_model_props(model, {key: str(value) for key, value in about.items()})
    onnx.save(model, str(file))


def _save_tokens(folder: Path) -> None:
    rows = [f"{word} {index}" for index, word in enumerate(WORDS)]
    (folder / "tokens.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
