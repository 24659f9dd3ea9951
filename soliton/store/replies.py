"""Answers of the hub as HTTP responses: a record with status 200, or a refusal with its reason."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from soliton.store import wire
from soliton.store.codec import encode_record


def answer(record: msgspec.Struct) -> Response:
    """Status 200 with a record."""
    return Response(encode_record(record), media_type=wire.MEDIA_TYPE)


def failure(status: int, message: str, *, kind: str = "RunError", headers: dict[str, str] | None = None) -> Response:
    """A refusal and its reason."""
    return Response(encode_record(wire.Failure(kind, message)), status, headers, wire.MEDIA_TYPE)


def http_failure(_: Request, error: Exception) -> Response:
    """The refusal that an `HTTPException` asks for."""
    assert isinstance(error, HTTPException)
    kind = "ValueError" if error.status_code in (400, 413) else "RunError"
    return failure(error.status_code, error.detail, kind=kind, headers=dict(error.headers or {}))
