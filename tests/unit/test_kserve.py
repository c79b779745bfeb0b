"""KServe v2 messages: the bytes that a Triton client writes and reads, and what is no such message."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.http import InferInput, InferRequestedOutput, InferResult
from tritonclient.http._utils import _get_inference_request

from elocution.errors import ProtocolError
from elocution.kserve import (
    Message,
    Tensor,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    text_tensor,
    texts_of,
)

CODES = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


def _triton_request(*, binary: bool, outputs: list[InferRequestedOutput] | None = None) -> tuple[bytes, int | None]:
    codes, text = InferInput("TOKENS", [2, 3], "INT32"), InferInput("GT_TEXT", [2, 1], "BYTES")
    codes.set_data_from_numpy(CODES, binary_data=binary)
    text.set_data_from_numpy(np.array([["grüne"], [""]], dtype=object), binary_data=binary)
    return _get_inference_request(
        inputs=[codes, text],
        request_id="r1",
        outputs=outputs,
        sequence_id=0,
        sequence_start=False,
        sequence_end=False,
        priority=0,
        timeout=None,
        custom_parameters=None,
    )


def _body(**tensor: Any) -> bytes:
    return json.dumps({"inputs": [{"name": "A", "shape": [2], "datatype": "INT32"} | tensor]}).encode()


@pytest.mark.parametrize("binary", [False, True])
def test_a_triton_request_reads_the_same_in_json_and_in_binary(binary: bool) -> None:
    outputs = [InferRequestedOutput("REWARDS", binary_data=True), InferRequestedOutput("STATUS", binary_data=False)]
    request = decode_request(*_triton_request(binary=binary, outputs=outputs))
    assert request.id == "r1"
    assert request.inputs["TOKENS"].values.dtype == np.int32
    assert request.inputs["TOKENS"].values.tolist() == CODES.tolist()
    assert texts_of(request.inputs["GT_TEXT"]) == ["grüne", ""]
    assert request.outputs == ("REWARDS", "STATUS")
    assert request.binary == {"REWARDS"}


def test_a_triton_request_without_outputs_wants_them_in_binary() -> None:
    request = decode_request(*_triton_request(binary=True))
    assert request.outputs == ()
    assert request.binary_default


@pytest.mark.parametrize("binary", [(), ("REWARDS",), ("REWARDS", "TEXT")])
def test_triton_reads_our_response(binary: tuple[str, ...]) -> None:
    outputs = [Tensor("REWARDS", "FP32", np.array([[0.5], [np.nan]], np.float32)), text_tensor("TEXT", ["grün", ""])]
    message = encode_response(outputs, model_name="m", model_version="1", request_id="r1", binary=binary)
    read = InferResult.from_response_body(message.body, header_length=message.json_length)
    assert read.get_response()["id"] == "r1"
    assert read.get_response()["outputs"][0]["name"] == "REWARDS"
    np.testing.assert_array_equal(read.as_numpy("REWARDS"), outputs[0].values)
    texts = read.as_numpy("TEXT").ravel().tolist()
    assert [text if isinstance(text, str) else text.decode() for text in texts] == ["grün", ""]


def test_json_says_null_where_there_is_no_number() -> None:
    message = encode_response(
        [Tensor("REWARDS", "FP32", np.array([[np.nan]], np.float32))],
        model_name="m",
        model_version="1",
        request_id="",
        binary=(),
    )
    assert json.loads(message.body)["outputs"][0]["data"] == [None]
    assert b"NaN" not in message.body
    assert np.isnan(decode_response(message.body, None).outputs["REWARDS"].values[0, 0])


@given(st.lists(st.text(), min_size=1), st.lists(st.floats(width=64), min_size=1))
def test_what_is_written_is_read_back_to_the_bit(texts: list[str], numbers: list[float]) -> None:
    tensors = [text_tensor("T", texts), Tensor("X", "FP64", np.array(numbers)[:, None])]
    sent = encode_request(tensors, outputs=["Y"], request_id="1")
    request = decode_request(sent.body, sent.json_length)
    answered = encode_response(
        list(request.inputs.values()), model_name="m", model_version="1", request_id="1", binary=("T", "X")
    )
    outputs = decode_response(answered.body, answered.json_length).outputs
    assert texts_of(outputs["T"]) == texts
    assert outputs["X"].values.tobytes() == tensors[1].values.tobytes()
    assert request.outputs == ("Y",)


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]])
def test_data_may_be_flat_or_nested(data: list[Any]) -> None:
    assert decode_request(_body(shape=[2, 3], data=data), None).inputs["A"].values.tolist() == CODES.tolist()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no KServe v2 message"),
        (b"[]", "no KServe v2 message"),
        (b"{", "no KServe v2 message"),
        (b"{}", "inputs: Field required"),
        (b'{"inputs": []}', "inputs: List should have at least 1 item"),
        (b"[" * 100_000, "no KServe v2 message"),
        (b'{"inputs": [{"name": "A\\ud800", "shape": [1], "datatype": "INT32", "data": [1]}]}', "no KServe v2 message"),
        (_body(shape=[], data=[]), "inputs.0.shape"),
        (_body(shape=["2"], data=[1, 2]), "inputs.0.shape.0"),
        (_body(shape=[-1, -2], data=[1, 2]), "negative or too large"),
        (_body(shape=[2**62, 4], data=[1, 2]), "negative or too large"),
        (_body(shape=[2**30, 2**30], data=[1, 2]), f"needs {2**60} elements, there are 2"),
        (_body(data=[1]), "needs 2 elements, there are 1"),
        (_body(shape=[2, 2], data=[[1, 2], [3]]), "do not have the shape"),
        (_body(shape=[2, 1], data=[[1, 2]]), "do not have the shape"),
        (_body(shape=[2, 1], data=[[[1]], [[2]]]), "must be a whole number"),
        (_body(data=[1, 2.5]), "must be a whole number, got 2.5"),
        (_body(data=[1, True]), "must be a whole number, got True"),
        (_body(data=[1, None]), "must be a whole number, got None"),
        (_body(data=["1" * 100_000, 2]), "must be a whole number"),
        (_body(data=[1, 2**31]), "does not fit INT32"),
        (_body(data=[1, 2**70]), "does not fit INT32"),
        (_body(datatype="FP32", data=[1, "2"]), "must be a number or null"),
        (_body(datatype="BYTES", data=["a", 1]), "must be text, got 1"),
        (_body(datatype="COMPLEX", data=[1, 2]), "unknown datatype 'COMPLEX'"),
        (_body(), "either data or the parameter binary_data_size"),
        (_body(data=[1, 2], parameters={"binary_data_size": 8}), "either data or the parameter binary_data_size"),
        (_body(parameters={"binary_data_size": 8}), "8 bytes of binary data were announced, but 0 are left"),
        (_body(parameters={"binary_data_size": -1}), "were announced"),
        (_body(parameters={"binary_data_size": "8"}), "must be a whole number"),
        (_body(parameters={"binary_data_size": True}), "must be a whole number"),
        (_body(data=[1, 2], parameters={"shared_memory_region": "r"}), "shared memory is not supported"),
    ],
)
def test_what_is_no_request_is_named(body: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message.replace("[", r"\[")):
        decode_request(body, None)


def test_an_input_given_twice_is_refused() -> None:
    one = {"name": "A", "shape": [1], "datatype": "INT32", "data": [1]}
    with pytest.raises(ProtocolError, match="tensor A is given twice"):
        decode_request(json.dumps({"inputs": [one, one]}).encode(), None)


@given(st.data())
def test_a_request_cut_anywhere_is_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    body, json_length = _triton_request(binary=True)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ProtocolError):
        decode_request(body[:end], json_length)


@given(st.data())
def test_bytes_turned_over_are_a_request_or_refused(data: st.DataObject) -> None:
    body, json_length = _triton_request(binary=True)
    damaged = bytearray(body)
    damaged[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = decode_request(bytes(damaged), json_length)
    except ProtocolError:
        return
    assert all(isinstance(tensor, Tensor) for tensor in request.inputs.values())


@pytest.mark.parametrize("extra", [-1, 1])
def test_bytes_that_belong_to_no_tensor_are_refused(extra: int) -> None:
    sent = encode_request([text_tensor("T", ["a"])], outputs=(), request_id="")
    body = sent.body + b"\0" if extra > 0 else sent.body[:-1]
    with pytest.raises(ProtocolError, match="belong to no tensor" if extra > 0 else "are left"):
        decode_request(body, sent.json_length)


def test_a_json_length_beyond_the_body_is_refused() -> None:
    with pytest.raises(ProtocolError, match="is 3, but the body has 2 bytes"):
        decode_request(b"{}", 3)


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="T holds bytes that are not UTF-8"):
        texts_of(Tensor("T", "BYTES", np.array([b"\xff"], dtype=object)))


def test_the_headers_say_where_the_json_ends() -> None:
    assert Message(b"{}", None).headers == {"Content-Type": "application/json"}
    assert Message(b"{}1", 2).headers["Inference-Header-Content-Length"] == "2"
