"""Trajectories as bytes: msgpack, with each array as bytes in the shortest of three little-endian forms.

    tag 0   raw          every element
    tag 1   runs         number of runs (uint32), run lengths (uint32 each), one value per run: roles, versions
    tag 2   with gaps    length (uint32), a bit per element (1: present), the present elements; absent is NaN: log-probs

So 600 tokens are about 4 KB instead of 8, and a file of them is written and verified in half the time.

Guarantees: decoding gives back every bit (absent is the one usual NaN) and re-runs every check of `Trajectory`; nothing
in the bytes can name code to run. Knows neither files nor networks.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from soliton.types import Trajectory

Record = TypeVar("Record")

RAW, RUNS, GAPS = b"\x00", b"\x01", b"\x02"
SHORTEST_PACKED = 16
"""Elements below which an array is written as it is."""
MAX_ELEMENTS = 2**27
"""A few bytes must not ask for more memory than this many elements (fault K6)."""
_COUNT = struct.Struct("<I")


def encode_record(record: msgspec.Struct) -> bytes:
    """Any record of the data plane as msgpack; arrays inside it are little-endian bytes."""
    return _ENCODER.encode(record)


def decode_record(data: bytes, kind: type[Record]) -> Record:
    """The record of type `kind` that `encode_record` wrote.

    Raises:
        ValueError: the bytes are damaged, of another type, or describe an invalid record; the message says where.
    """
    try:
        record: Record = _decoder(kind).decode(data)  # type: ignore[arg-type]  # types are hashable
        return record
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a valid {kind.__name__}: {error}") from error


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """One trajectory as bytes."""
    return encode_record(trajectory)


def decode_trajectory(data: bytes) -> Trajectory:
    """The trajectory that `encode_trajectory` wrote, validated again.

    Raises:
        ValueError: as `decode_record`.
    """
    return decode_record(data, Trajectory)


def _encode_array(value: Any) -> bytes:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a record holds a {type(value).__name__}; only msgpack types and arrays can be written")
    array = value.astype(_little_endian(value.dtype), copy=False)
    if len(array) < SHORTEST_PACKED:
        return RAW + array.tobytes()
    return _with_gaps(array) if array.dtype.kind == "f" else _in_runs(array)


def _with_gaps(array: NDArray[Any]) -> bytes:
    present = array == array  # NaN is not  # noqa: PLR0124
    if present.all():
        return RAW + array.tobytes()
    return b"".join((GAPS, _COUNT.pack(len(array)), np.packbits(present).tobytes(), array[present].tobytes()))


def _in_runs(array: NDArray[Any]) -> bytes:
    is_last = array[1:] != array[:-1]
    count = np.count_nonzero(is_last) + 1
    if count * (4 + array.itemsize) >= array.nbytes:
        return RAW + array.tobytes()
    bounds = np.empty(count + 1, np.int64)
    bounds[0], bounds[-1] = 0, len(array)
    bounds[1:-1] = is_last.nonzero()[0] + 1
    lengths = (bounds[1:] - bounds[:-1]).astype("<u4")
    return b"".join((RUNS, _COUNT.pack(count), lengths.tobytes(), array[bounds[:-1]].tobytes()))


def _decode_array(kind: Any, value: Any) -> NDArray[Any]:
    """`kind` is `NDArray[dtype]` as the record's annotation says; its last argument holds the element type."""
    dtype = _dtype(kind)
    if not isinstance(value, bytes) or not value:
        raise ValueError(f"expected the bytes of a {dtype.name} array, got {type(value).__name__}")
    tag, body = value[:1], memoryview(value)[1:]
    try:
        if tag == RAW:
            return np.frombuffer(body, dtype)
        if tag == RUNS:
            return _from_runs(body, dtype)
        if tag == GAPS and dtype.kind == "f":
            return _from_gaps(body, dtype)
    except (ValueError, struct.error) as error:
        raise ValueError(f"damaged bytes of a {dtype.name} array: {error}") from error
    raise ValueError(f"a {dtype.name} array in an unknown form {tag!r}")


def _from_runs(body: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    (count,) = _COUNT.unpack_from(body)
    lengths = np.frombuffer(body, "<u4", count, 4)
    total = int(lengths.sum())
    if total > MAX_ELEMENTS or len(body) != 4 + count * (4 + dtype.itemsize):
        raise ValueError(f"{count} runs of {total} elements in {len(body)} bytes")
    return np.repeat(np.frombuffer(body, dtype, count, 4 + 4 * count), lengths)


def _from_gaps(body: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    (length,) = _COUNT.unpack_from(body)
    if length > MAX_ELEMENTS:
        raise ValueError(f"{length} elements")
    bits = -(-length // 8)
    present = np.unpackbits(np.frombuffer(body, np.uint8, bits, 4), count=length).view(bool)
    array = np.full(length, np.nan, dtype)
    array[present] = np.frombuffer(body, dtype, offset=4 + bits)
    return array


@functools.cache
def _dtype(kind: Any) -> np.dtype[np.generic]:
    """Little-endian element type of an annotation `NDArray[element]`."""
    (element,) = get_args(get_args(kind)[-1])
    dtype: np.dtype[np.generic] = np.dtype(element).newbyteorder("<")
    return dtype


@functools.cache
def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_decode_array)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array)
