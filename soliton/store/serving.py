"""Listening: from a bound socket to HTTP connections on the running event loop.

Owns sockets, connections and the time that headers may take. Does not know the store. Guarantees: the port it reports
is the one it holds, never one that was tested and let go (fault K3); leaving the context closes every connection; no
signal handler, no access log.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from soliton.errors import ConfigError

STOP_S = 2.0
"""How long calls under way may go on when the hub stops."""
KEEP_ALIVE_S = 75
"""Idle connections are closed after this; longer than clients keep theirs, so that none is closed under a request."""


@contextlib.asynccontextmanager
async def serve(app: Starlette, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Answer for an application of `hub_app` while the context lasts; gives its URL, `http://HOST:PORT`.

    Args:
        app: what answers.
        host: address to listen on; other machines reach anything but loopback.
        port: 0 takes a free one.

    Raises:
        ConfigError: the port is taken, or the address is not one of this machine.
    """
    listener = _listen(host, port)
    hub, limits = app.state.hub, app.state.limits
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=limits.max_connections,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(config, state, limits.header_s), sock=listener)
    try:
        address, bound = listener.getsockname()[:2]
        yield f"http://{f'[{address}]' if ':' in address else address}:{bound}"
    finally:
        server.close()
        for connection in list(state.connections):
            connection.shutdown()
        hub.release()
        if state.tasks:
            _, late = await asyncio.wait(set(state.tasks), timeout=STOP_S)
            for task in late:
                task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol named, asyncio leaves Nagle's algorithm on and an answer of two writes takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(256)  # two sockets may be bound to one port while neither listens
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use, perhaps by another run or one that is still stopping "
                f"(`ss -ltnp 'sport = :{port}'` names the process); stop it, or use port 0, which takes a free one"
            ) from error
        raise ConfigError(
            f"cannot listen on host {host!r}, port {port}: {error}; give an address of this machine and a port from "
            "1024 to 65535, or 0 for a free one"
        ) from error
    listener.setblocking(False)
    return listener


class _Connection(HttpToolsProtocol):
    """An HTTP connection that is closed when a request's headers do not arrive in time (slow-loris, fault K1)."""

    def __init__(self, config: uvicorn.Config, state: ServerState, header_s: float) -> None:
        super().__init__(config, state, {})
        self._header_s = header_s
        self._expects_headers = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(OneWrite(transport, self.loop))
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._expects_headers and self._late is None:  # seldom: most requests come in one piece
            self._expect_headers()

    def on_message_begin(self) -> None:
        self._expects_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._expects_headers = False
        self._forget()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._late = self.loop.call_later(self._header_s, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class OneWrite(asyncio.Transport):
    """What is written in one turn of the event loop leaves together: headers and body of an answer in one system call.

    Otherwise each is sent, and received, by itself, which costs both sides more than making a small answer.

    Args:
        transport: sends.
        loop: whose turns count.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data` at the end of this turn."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Send what was written, then close."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """As of the transport below, as the rest."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection."""
        return self._transport.get_extra_info(name, default)
