"""Trajectories as bytes: msgpack, with each array as its raw little-endian bytes.

Guarantees: decoding gives back every bit, NaN included, and re-runs every check of `Trajectory`; nothing in the bytes
can name code to run. Knows neither files nor networks.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from soliton.types import Trajectory

Record = TypeVar("Record")

Arrival = tuple[Trajectory, bytes]
"""A trajectory and the bytes of which `decode_trajectory` makes it: stored as they came, not encoded once more."""


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


def decode_arrivals(data: bytes) -> list[Arrival]:
    """The trajectories of a list, each with its part of `data`.

    Raises:
        ValueError: as `decode_record`.
    """
    decode = _decoder(Trajectory).decode
    try:
        parts = [bytes(part) for part in _PARTS.decode(data)]
        return [(decode(part), part) for part in parts]
    except msgspec.MsgspecError:  # is said again with its place in the list
        return [(each, encode_trajectory(each)) for each in decode_record(data, list[Trajectory])]


def _encode_array(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.astype(_little_endian(value.dtype), copy=False).tobytes()
    raise TypeError(f"a record holds a {type(value).__name__}; only msgpack types and arrays can be written")


def _decode_array(kind: Any, value: Any) -> NDArray[Any]:
    """`kind` is `NDArray[dtype]` as the record's annotation says; its last argument holds the element type."""
    dtype = _dtype(kind)
    if not isinstance(value, bytes) or len(value) % dtype.itemsize:
        raise ValueError(f"expected the raw bytes of a {dtype.name} array, got {type(value).__name__}")
    return np.frombuffer(value, dtype)


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


_PARTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_array)
