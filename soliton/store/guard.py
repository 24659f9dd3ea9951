"""Who may call the hub: roles of this run, from this machine or where it was told, and no browser.

Decides before any route is looked up, for every path and method alike. Writes no secret anywhere.
"""

from __future__ import annotations

import hmac

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from soliton.store import wire
from soliton.store.replies import failure


class Guard:
    """Refuses, before any route is looked up, whoever is not a role of this run (faults K3, L5, M2)."""

    def __init__(self, app: ASGIApp, token: str, run_id: str, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._secret = f"Bearer {token}".encode()
        self._run_id = run_id
        self._run_header = (wire.RUN_HEADER.encode(), run_id.encode("latin-1"))
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if (refusal := self._refusal(headers)) is not None:
            await refusal(scope, receive, send)
            return

        async def send_with_run(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self._run_header]
            await send(message)

        await self._app(scope, receive, send_with_run)

    def _refusal(self, headers: dict[bytes, bytes]) -> Response | None:
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._secret):
            return failure(401, "no or wrong token", headers={"www-authenticate": "Bearer"})
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in self._hosts and host.rpartition(":")[0] not in self._hosts:
            return failure(403, f"host {host!r} is not served; allowed are {sorted(self._hosts)}")
        if b"origin" in headers:
            return failure(403, "requests of web pages are not served")
        run_id = headers.get(wire.RUN_HEADER.encode(), b"").decode("latin-1")
        if run_id != self._run_id:
            return failure(409, f"this hub serves run {self._run_id!r}, the caller belongs to run {run_id!r}")
        return None
