"""KServe v2 inference messages over HTTP, as Triton speaks them: JSON, with tensors as JSON or in binary behind it.

Pure functions between bytes and tensors. Knows no model and no HTTP library.
Source: KServe "Open Inference Protocol" v2, and Triton's binary tensor extension.
"""

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elocution.errors import ProtocolError

__all__ = [
    "JSON_LENGTH_HEADER",
    "InferRequest",
    "InferResponse",
    "Message",
    "Tensor",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "text_tensor",
    "texts_of",
]

JSON_LENGTH_HEADER = "Inference-Header-Content-Length"
"""HTTP header that says how many bytes of a body are JSON; the binary tensors follow."""

_NUMPY_TYPES = {
    "BOOL": np.dtype(bool),
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
_LENGTH_BYTES = 4  # before each element of a BYTES tensor, little-endian


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named array; the elements of datatype BYTES are `bytes` in an array of objects."""

    name: str
    datatype: str
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class InferRequest:
    """Inputs by name, and the outputs that were asked for by name (none: the model's default ones).

    `binary` are the requested outputs to be answered in binary; `binary_default` holds where none was requested.
    """

    id: str
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...] = ()
    binary: frozenset[str] = frozenset()
    binary_default: bool = False


@dataclass(frozen=True, eq=False)
class InferResponse:
    """Outputs by name, in the order of the message."""

    model_name: str
    id: str
    outputs: dict[str, Tensor]


@dataclass(frozen=True)
class Message:
    """A body to send. `json_length` is the value of `JSON_LENGTH_HEADER`, None where the whole body is JSON."""

    body: bytes
    json_length: int | None

    @property
    def headers(self) -> dict[str, str]:
        if self.json_length is None:
            return {"Content-Type": "application/json"}
        return {"Content-Type": "application/octet-stream", JSON_LENGTH_HEADER: str(self.json_length)}


def text_tensor(name: str, texts: Sequence[str]) -> Tensor:
    """A BYTES tensor [B, 1] of UTF-8."""
    values = np.empty((len(texts), 1), dtype=object)
    values[:, 0] = [text.encode() for text in texts]
    return Tensor(name, "BYTES", values)


def texts_of(tensor: Tensor) -> list[str]:
    """The elements of a BYTES tensor as text, row by row.

    Raises: ProtocolError if one is not UTF-8.
    """
    try:
        return [value.decode() for value in tensor.values.ravel()]
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{tensor.name} holds bytes that are not UTF-8: {error}") from error


def encode_request(inputs: Sequence[Tensor], *, outputs: Sequence[str], request_id: str) -> Message:
    """A request with binary inputs that asks for binary outputs."""
    heads, chunks = _binary_tensors(inputs)
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    return _with_binary({"id": request_id, "inputs": heads, "outputs": wanted}, chunks)


def encode_response(
    outputs: Sequence[Tensor], *, model_name: str, model_version: str, request_id: str, binary: Collection[str]
) -> Message:
    """A response in the order of `outputs`; those named in `binary` travel in binary.

    NaN, which JSON cannot say, becomes null.
    """
    head: dict[str, Any] = {"model_name": model_name, "model_version": model_version}
    if request_id:
        head["id"] = request_id
    heads, chunks = [], list[bytes]()
    for tensor in outputs:
        if tensor.name in binary:
            (one,), data = _binary_tensors([tensor])
            chunks += data
        else:
            one = _head(tensor) | {"data": _json_values(tensor)}
        heads.append(one)
    head["outputs"] = heads
    return _with_binary(head, chunks) if chunks else Message(json.dumps(head, allow_nan=False).encode(), None)


def decode_request(body: bytes, json_length: int | None) -> InferRequest:
    """The request in `body`.

    Raises: ProtocolError naming the field or tensor if it is no such message, is cut short, or a tensor's data do not
    fit its shape and datatype.
    """
    head, tensors = _decode(_RequestHead, body, json_length, lambda head: head.inputs)
    for output in head.outputs:
        if "classification" in output.parameters or "shared_memory_region" in output.parameters:
            raise ProtocolError(f"output {output.name}: classification and shared memory are not supported")
    return InferRequest(
        id=head.id,
        inputs=tensors,
        outputs=tuple(output.name for output in head.outputs),
        binary=frozenset(output.name for output in head.outputs if output.parameters.get("binary_data") is True),
        binary_default=head.parameters.get("binary_data_output") is True,
    )


def decode_response(body: bytes, json_length: int | None) -> InferResponse:
    """The response in `body`.

    Raises: ProtocolError if it is no such message, is cut short, or a tensor's data do not fit its shape and datatype.
    """
    head, tensors = _decode(_ResponseHead, body, json_length, lambda head: head.outputs)
    return InferResponse(head.model_name, head.id, tensors)


class _Wire(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


Head = TypeVar("Head", bound=_Wire)


class _TensorHead(_Wire):
    name: str
    shape: list[int] = Field(min_length=1, max_length=8)
    datatype: str
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class _OutputHead(_Wire):
    name: str
    parameters: dict[str, Any] = {}


class _RequestHead(_Wire):
    id: str = ""
    parameters: dict[str, Any] = {}
    inputs: list[_TensorHead] = Field(min_length=1)
    outputs: list[_OutputHead] = []


class _ResponseHead(_Wire):
    model_name: str
    id: str = ""
    outputs: list[_TensorHead]


@dataclass
class _Binary:
    """What follows the JSON; read from its start."""

    data: memoryview
    position: int = field(default=0)

    def take(self, size: int, name: str) -> memoryview:
        if size < 0 or self.position + size > len(self.data):
            raise ProtocolError(
                f"tensor {name}: {size} bytes of binary data were announced, "
                f"but {len(self.data) - self.position} are left; the body is cut short or the sizes are wrong"
            )
        self.position += size
        return self.data[self.position - size : self.position]


def _decode(
    kind: type[Head], body: bytes, json_length: int | None, tensors_of: Callable[[Head], list[_TensorHead]]
) -> tuple[Head, dict[str, Tensor]]:
    length = len(body) if json_length is None else json_length
    if not 0 <= length <= len(body):
        raise ProtocolError(f"{JSON_LENGTH_HEADER} is {length}, but the body has {len(body)} bytes")
    try:
        head = kind.model_validate_json(body[:length])
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise ProtocolError(f"no KServe v2 message: {place + ': ' if place else ''}{problem['msg']}") from error
    binary = _Binary(memoryview(body)[length:])
    tensors: dict[str, Tensor] = {}
    for one in tensors_of(head):
        if one.name in tensors:
            raise ProtocolError(f"tensor {one.name} is given twice")
        tensors[one.name] = _read_tensor(one, binary)
    if binary.position != len(binary.data):
        raise ProtocolError(f"{len(binary.data) - binary.position} bytes of the body belong to no tensor")
    return head, tensors


def _read_tensor(head: _TensorHead, binary: _Binary) -> Tensor:
    if head.datatype not in _NUMPY_TYPES and head.datatype != "BYTES":
        raise ProtocolError(
            f"tensor {head.name}: unknown datatype {head.datatype!r:.40}; known: {', '.join(_NUMPY_TYPES)}, BYTES"
        )
    if min(head.shape) < 0 or max(head.shape) >= 2**31:
        raise ProtocolError(f"tensor {head.name}: the shape {head.shape} has a dimension that is negative or too large")
    if "shared_memory_region" in head.parameters:
        raise ProtocolError(f"tensor {head.name}: shared memory is not supported")
    size = head.parameters.get("binary_data_size")
    if (size is None) == (head.data is None):
        raise ProtocolError(f"tensor {head.name} must have either data or the parameter binary_data_size")
    if head.data is not None:
        flat = _from_json(head, _flat(head, head.data))
    elif type(size) is int:
        flat = _from_binary(head, binary.take(size, head.name))
    else:
        raise ProtocolError(f"tensor {head.name}: binary_data_size must be a whole number, got {size!r:.40}")
    return Tensor(head.name, head.datatype, flat.reshape(head.shape))


def _flat(head: _TensorHead, data: list[Any]) -> list[Any]:
    """The elements row by row; they may come in nested lists of the tensor's shape, or in one."""
    if data and isinstance(data[0], list):
        fits = len(data) == head.shape[0]
        for size in head.shape[1:]:
            if not fits or not all(isinstance(row, list) and len(row) == size for row in data):
                raise ProtocolError(f"tensor {head.name}: the nested data do not have the shape {head.shape}")
            data = list(chain.from_iterable(data))
    _check_count(head, len(data))
    return data


def _check_count(head: _TensorHead, count: int) -> None:
    if count != math.prod(head.shape):
        raise ProtocolError(
            f"tensor {head.name}: the shape {head.shape} needs {math.prod(head.shape)} elements, there are {count}"
        )


def _from_json(head: _TensorHead, flat: list[Any]) -> NDArray[Any]:
    # Types are looked at before numpy sees the list: it would turn numbers beside a text into texts of that length.
    if head.datatype == "BYTES":
        _check_types(head, flat, {str}, "text")
        return _object_array([text.encode() for text in flat])
    kind = _NUMPY_TYPES[head.datatype]
    if kind.kind == "b":
        _check_types(head, flat, {bool}, "true or false")
    elif kind.kind == "f":
        _check_types(head, flat, {int, float, type(None)}, "a number or null")
    else:
        _check_types(head, flat, {int}, "a whole number")
    try:
        with np.errstate(over="ignore"):
            return np.array(flat, dtype=kind)
    except OverflowError as error:
        raise ProtocolError(f"tensor {head.name}: an element does not fit {head.datatype}: {error}") from error


def _check_types(head: _TensorHead, flat: list[Any], allowed: set[type], meaning: str) -> None:
    wrong = [value for value in flat if type(value) not in allowed]
    if wrong:
        raise ProtocolError(
            f"tensor {head.name}: an element of datatype {head.datatype} must be {meaning}, got {wrong[0]!r:.40}"
        )


def _from_binary(head: _TensorHead, data: memoryview) -> NDArray[Any]:
    if head.datatype == "BYTES":
        return _object_array(_split_bytes(head, data))
    kind = _NUMPY_TYPES[head.datatype]
    if len(data) != math.prod(head.shape) * kind.itemsize:
        raise ProtocolError(
            f"tensor {head.name}: the shape {head.shape} of {head.datatype} needs "
            f"{math.prod(head.shape) * kind.itemsize} bytes, there are {len(data)}"
        )
    return np.frombuffer(data, dtype=kind)


def _split_bytes(head: _TensorHead, data: memoryview) -> list[bytes]:
    elements, position = list[bytes](), 0
    while position < len(data):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        if position > len(data):
            raise ProtocolError(f"tensor {head.name}: element {len(elements)} is cut short")
        elements.append(bytes(data[start:position]))
    _check_count(head, len(elements))
    return elements


def _object_array(elements: Sequence[bytes]) -> NDArray[Any]:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def _head(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.values.shape)}


def _json_values(tensor: Tensor) -> list[Any]:
    flat = tensor.values.ravel().tolist()
    if tensor.datatype == "BYTES":
        return [value.decode() for value in flat]
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in flat]


def _binary_tensors(tensors: Sequence[Tensor]) -> tuple[list[dict[str, Any]], list[bytes]]:
    heads, chunks = [], []
    for tensor in tensors:
        if tensor.datatype == "BYTES":
            data = b"".join(len(value).to_bytes(_LENGTH_BYTES, "little") + value for value in tensor.values.ravel())
        else:
            data = np.ascontiguousarray(tensor.values, dtype=_NUMPY_TYPES[tensor.datatype]).tobytes()
        heads.append(_head(tensor) | {"parameters": {"binary_data_size": len(data)}})
        chunks.append(data)
    return heads, chunks


def _with_binary(head: dict[str, Any], chunks: Sequence[bytes]) -> Message:
    encoded = json.dumps(head, allow_nan=False).encode()
    return Message(b"".join([encoded, *chunks]), len(encoded))
