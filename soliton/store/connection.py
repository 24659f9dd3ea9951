"""One caller's side of the conversation with a hub: requests, patience, checked answers.

Does not know what a call means. Guarantees: an answer comes from this run's hub, is no larger than allowed and decodes
to what was expected; nothing waits for ever on a hub that is gone, and everything waits on one that is full.

Patience, by kind of failure (fault K1):

    no connection, reset, no whole answer in time   the hub is gone: again with growing pauses, until `gone_after_s`
                                                    have passed since the first of them; then `HubGoneError`
    408, 429, 503, 507 (late, full, busy, disk)     the hub is there: again when it says, for as long as it takes
    any other refusal                               never again: raised here as the store raised it
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp
import msgspec
import numpy as np

from soliton.errors import RunError
from soliton.store import wire
from soliton.store.codec import decode_record, encode_record
from soliton.store.limits import ClientLimits
from soliton.types import Clock, stable_seed

Answer = TypeVar("Answer")
Request = Callable[[float], Any]
"""The body of a request, given how long the hub may wait before it answers; a record, or a list of encoded ones."""

WAIT_STATUSES = frozenset({408, 429, 503, 507})
PROBE_WAIT_S = 1.0
"""Longest wait that is asked of a hub that does not answer, so that a dead one is noticed soon."""
PAUSES_S = (0.05, 1.0)
"""First and longest pause between two tries; each is twice the one before, times a random factor from 0.5 to 1.5."""
MAX_FAILURE_BYTES = 2**16

_log = logging.getLogger(__name__)


class HubGoneError(RunError):
    """Nobody answered at the hub's address for as long as patience lasts."""


class NotNow(msgspec.Struct, frozen=True):
    """The hub has no room, and says when to ask again."""

    retry_after_s: float
    reason: str


class HubConnection:
    """Requests to one hub; it opens as many connections as there are calls at once.

    Args:
        url: `http://HOST:PORT` of the hub.
        token: of the run.
        run_id: of the run.
        name: of the caller; its jitter depends on it.
        clock: real time.
        limits: patience and sizes.
    """

    def __init__(self, url: str, token: str, run_id: str, name: str, clock: Clock, limits: ClientLimits) -> None:
        self._url = url.rstrip("/")
        self._run_id = run_id
        self._clock = clock
        self._limits = limits
        self._headers = {"Authorization": f"Bearer {token}", wire.RUN_HEADER: run_id, "Content-Type": wire.MEDIA_TYPE}
        self._session: aiohttp.ClientSession | None = None
        self._jitter = np.random.Generator(np.random.PCG64(stable_seed(0, "hub connection", run_id, name)))
        self._failing_since: float | None = None
        self._waiting_since: dict[str, float] = {}

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def ask(self, path: str, kind: type[Answer], request: Request | None = None, wait_s: float = 0.0) -> Answer:
        """The hub's answer to a request (GET without one), however long it takes until there is room for it.

        Args:
            path: of the route.
            kind: record of the answer.
            request: makes the body.
            wait_s: how long the hub may wait before it says "nothing yet", whereupon it is asked again.

        Raises:
            HubGoneError: nobody answers.
            ValueError: the store found the request invalid.
            RunError: the hub or its store refused, or what answers is not this run's hub.
        """
        while True:
            answer = await self.ask_once(path, kind, request, wait_s)
            if isinstance(answer, NotNow):
                await self.sleep(answer.retry_after_s)
            elif answer is not None:
                return answer

    async def ask_once(
        self, path: str, kind: type[Answer], request: Request | None = None, wait_s: float = 0.0
    ) -> Answer | NotNow | None:
        """As `ask`, but it is the caller who waits for room, and who asks again after "nothing yet" (None)."""
        pause_s = PAUSES_S[0]
        while True:
            asked_s = wait_s if self._failing_since is None else min(wait_s, PROBE_WAIT_S)
            try:
                async with asyncio.timeout(asked_s + self._answer_s()):
                    status, headers, body = await self._send(path, None if request is None else request(asked_s))
            except (aiohttp.ClientError, OSError, EOFError) as error:  # a timeout is an OSError
                await self._pause(pause_s, error)
                pause_s = min(2 * pause_s, PAUSES_S[1])
                continue
            self._failing_since = None
            if status in WAIT_STATUSES:
                return self._note_no_room(
                    path, NotNow(_seconds(headers.get("retry-after", "")), _failure(body).message)
                )
            self._note_room(path)
            if status >= 300:
                store_said_it = status in (409, 422)
                raise _failure(body).error("" if store_said_it else f"{self._url}{path} answered {status}")
            if headers.get(wire.RUN_HEADER) != self._run_id:
                raise RunError(
                    f"{self._url} answered as run {headers.get(wire.RUN_HEADER)!r}, this is run {self._run_id!r}; "
                    "another program has taken the hub's port"
                )
            return None if status == 204 else self._decode(body, kind, path)

    async def _send(self, path: str, request: Any) -> tuple[int, Any, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        data = None if request is None else encode_record(request)
        async with self._session.request(
            "GET" if data is None else "POST",
            self._url + path,
            data=data,
            headers=self._headers,
            allow_redirects=False,
        ) as response:
            limit = self._limits.max_answer_bytes if response.status < 300 else MAX_FAILURE_BYTES
            size = response.content_length or 0
            if size > limit:
                raise RunError(f"{self._url}{path} answered {response.status} with {size} bytes, allowed are {limit}")
            body = await response.content.readexactly(size) if size else b""
            return response.status, response.headers, body

    def _answer_s(self) -> float:
        """Time for an answer; no more than patience has left once the hub fails to answer."""
        if self._failing_since is None:
            return self._limits.answer_s
        left = self._failing_since + self._limits.gone_after_s - self._clock.now()
        return min(self._limits.answer_s, max(left, PAUSES_S[1]))

    async def _pause(self, pause_s: float, error: Exception) -> None:
        now = self._clock.now()
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + self._limits.gone_after_s - now
        if left <= 0:
            raise HubGoneError(
                f"no answer from the hub at {self._url} for {now - self._failing_since:.1f} s "
                f"({type(error).__name__}: {error}); its process has ended or hangs"
            ) from error
        await self._clock.sleep_until(now + min(pause_s * self._jitter.uniform(0.5, 1.5), left))

    async def sleep(self, seconds: float) -> None:
        """Wait a little longer than told, so that not everybody comes back together."""
        await self._clock.sleep_until(self._clock.now() + seconds * self._jitter.uniform(1.0, 1.25))

    def _note_no_room(self, path: str, answer: NotNow) -> NotNow:
        """Say once per wait that, and why, this process waits."""
        if path not in self._waiting_since:
            self._waiting_since[path] = self._clock.now()
            _log.warning("waiting: %s%s says: %s", self._url, path, answer.reason)
        return answer

    def _note_room(self, path: str) -> None:
        if (since := self._waiting_since.pop(path, None)) is not None:
            _log.info("going on with %s after %.1f s of waiting", path, self._clock.now() - since)

    def _decode(self, body: bytes, kind: type[Answer], path: str) -> Answer:
        try:
            return decode_record(body, kind)
        except ValueError as error:
            raise RunError(f"{self._url}{path} answered with something invalid: {error}") from error


def _seconds(retry_after: str) -> float:
    try:
        seconds = float(retry_after)
    except ValueError:
        return 1.0
    return min(max(seconds, 0.01), 60.0) if math.isfinite(seconds) else 1.0


def _failure(body: bytes) -> wire.Failure:
    try:
        return decode_record(body, wire.Failure)
    except ValueError:
        return wire.Failure("RunError", body[:200].decode("ascii", "replace"))
