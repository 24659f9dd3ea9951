"""An OpenAI-compatible endpoint that answers from a script and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(frozen=True)
class Answer:
    """One answer; `delay_s` seconds of the loop's time before it, or none at all (`drop`: the connection is cut)."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False


def says(content: Any) -> Answer:
    """A chat completion."""
    return Answer(body=json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}))


@dataclass
class Asked:
    """What the server was asked, in order: body and headers."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


@asynccontextmanager
async def llm_server(script: Sequence[Answer]) -> AsyncIterator[Asked]:
    """Serve `script`, its last answer again and again."""
    asked = Asked()

    async def complete(request: web.Request) -> web.StreamResponse:
        answer = script[min(len(asked.bodies), len(script) - 1)]
        asked.bodies.append(await request.json())
        asked.headers.append(dict(request.headers))
        await asyncio.sleep(answer.delay_s)
        if answer.drop:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=answer.status, text=answer.body, headers=answer.headers)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    server = TestServer(app)
    await server.start_server()
    asked.url = str(server.make_url("/v1"))
    try:
        yield asked
    finally:
        await server.close()
