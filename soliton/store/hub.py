"""The hub: the five store calls and rewards from outside over HTTP, for the processes of one run.

Owns how much is read and how long anybody is kept waiting; `guard.py` decides who may call, `serving.py` listens. Does
not know what the store decides, nor which role calls. Guarantees: a refused request has changed nothing; nothing is
dropped for want of room, the caller is told when to come again; a lease that was granted but not delivered is granted
again to the same call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from soliton.errors import ConfigError, RunError, StorageFullError
from soliton.store import wire
from soliton.store.codec import decode_arrivals, decode_record
from soliton.store.group_commit import GroupCommit
from soliton.store.guard import Guard
from soliton.store.limits import HubLimits
from soliton.store.replies import answer, failure, http_failure
from soliton.store.reward_routes import RewardedStore, RewardRoutes
from soliton.store.store import CommitAck, Store
from soliton.types import Lease, Trajectory

Result = TypeVar("Result")
Body = TypeVar("Body")

CLOSE = {"connection": "close"}


class ServedStore(Store, RewardedStore, Protocol):
    """A store as a hub needs it: one that never keeps a request waiting for room."""

    def must_wait(self, trajectory: Trajectory) -> bool:
        """Whether there is no room for it now."""
        ...

    def commit_many(self, trajectories: Sequence[Trajectory], encoded: Sequence[bytes] = ()) -> list[CommitAck]:
        """Several commits at once, whether there is room or not; all of them or, if one is refused, none."""
        ...


def hub_app(store: ServedStore, *, token: str, run_id: str, limits: HubLimits | None = None) -> Starlette:
    """The application that answers for `store`.

    Raises:
        ConfigError: an empty token or run id; everybody could call.
    """
    if not token or not run_id:
        raise ConfigError(f"token and run_id must not be empty, got {len(token)} characters and {run_id!r}")
    limits = limits or HubLimits()
    hub = Hub(store, limits)
    rewards = RewardRoutes(store, hub.read_body, hub.retry_after)
    app = Starlette(
        routes=[
            Route(wire.LEASE, hub.lease, methods=["POST"]),
            Route(wire.COMMIT, hub.commit, methods=["POST"]),
            Route(wire.TAKE, hub.take, methods=["POST"]),
            Route(wire.FINISH_STEP, hub.finish_step, methods=["POST"]),
            Route(wire.STATUS, hub.status, methods=["GET"]),
            Route(wire.REWARD, rewards.awaiting, methods=["GET"]),
            Route(wire.REWARD, rewards.reward, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, token=token, run_id=run_id, hosts=limits.hosts)],
        exception_handlers={
            HTTPException: http_failure,
            ValueError: lambda _, error: failure(422, str(error), kind="ValueError"),
            RunError: lambda _, error: failure(409, str(error)),
            StorageFullError: lambda _, error: failure(507, str(error), headers=hub.retry_after),
            TimeoutError: lambda _, __: failure(503, "the store took too long", headers=hub.retry_after),
        },
    )
    app.router.redirect_slashes = False
    app.state.hub, app.state.limits = hub, limits
    return app


class _Call:
    """A lease call of a client: what it was granted, until the next call of its slot shows that this arrived."""

    def __init__(self) -> None:
        self.number = -1
        self.leases: list[Lease] = []
        self.asking: asyncio.Task[list[Lease]] | None = None


class Hub:
    """The routes."""

    def __init__(self, store: ServedStore, limits: HubLimits) -> None:
        self._store = store
        self._limits = limits
        self._commits = GroupCommit(store)
        self._calls: dict[tuple[str, str, int], _Call] = {}
        self._waits: set[asyncio.Task[Any]] = set()
        self.retry_after = {"retry-after": f"{limits.retry_after_s:g}"}

    async def lease(self, request: Request) -> Response:
        """`Store.lease`; repeated under the same number it grants the same leases again."""
        ask = await self._read(request, partial(decode_record, kind=wire.LeaseRequest))
        call = self._calls.setdefault((ask.client, ask.holder, ask.slot), _Call())
        while call.asking is not None and not call.asking.done():  # the client gave up on an earlier request
            call.asking.cancel()
            await asyncio.wait({call.asking})
        if ask.number != call.number:
            call.number, call.leases = ask.number, []
        if call.leases:
            return answer(wire.LeaseAnswer(call.leases))
        call.asking = asyncio.create_task(self._grant(call, ask))
        leases = await self._wait(request, call.asking, ask.wait_s)
        return Response(status_code=204) if leases is None else answer(wire.LeaseAnswer(leases))

    async def commit(self, request: Request) -> Response:
        """`Store.commit` for each trajectory of a list; 429 if there is room for none of them.

        Requests that arrive together may pass the store's byte limit, as each is carried out whole.
        """
        arrivals = await self._read(request, decode_arrivals)
        admitted = [arrival for arrival in arrivals if not self._store.must_wait(arrival[0])]
        if arrivals and not admitted:
            raise HTTPException(429, "the store is full until the learner takes a batch", self.retry_after)
        answers = await self._commits.commit(admitted)
        if len(admitted) < len(arrivals):
            answered = {answer.attempt: answer for answer in answers}
            attempts = [trajectory.attempt for trajectory, _ in arrivals]
            answers = [answered.get(attempt) or wire.CommitAnswer(attempt) for attempt in attempts]
        return answer(wire.CommitAnswers(answers, self._limits.retry_after_s))

    async def take(self, request: Request) -> Response:
        """`Store.take`."""
        ask = await self._read(request, partial(decode_record, kind=wire.TakeRequest))
        items = await self._wait(request, asyncio.create_task(self._store.take()), ask.wait_s)
        return Response(status_code=204) if items is None else answer(wire.TakeAnswer(items))

    async def finish_step(self, request: Request) -> Response:
        """`Store.finish_step`."""
        ask = await self._read(request, partial(decode_record, kind=wire.FinishRequest))
        async with asyncio.timeout(self._limits.answer_s):
            await self._store.finish_step(ask.trained, ask.publication)
        return answer(wire.Done())

    async def status(self, _: Request) -> Response:
        """`Store.status`."""
        async with asyncio.timeout(self._limits.answer_s):
            return answer(await self._store.status())

    def release(self) -> None:
        """Everybody who waits is told "nothing yet"; for the end of the hub."""
        for task in self._waits:
            task.cancel()

    async def _grant(self, call: _Call, ask: wire.LeaseRequest) -> list[Lease]:
        call.leases = await self._store.lease(ask.limit, ask.holder)
        return call.leases

    async def _read(self, request: Request, decode: Callable[[bytes], Body]) -> Body:
        """The body, decoded and valid."""
        try:
            return decode(await self.read_body(request))
        except ValueError as error:
            raise HTTPException(400, str(error)) from error

    async def read_body(self, request: Request) -> bytes:
        """The body, read no further than the limit."""
        limit, body = self._limits.max_body_bytes, bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise HTTPException(413, f"more than {limit} bytes in one request; send less at once", CLOSE)
        except (TimeoutError, ClientDisconnect) as error:
            raise HTTPException(408, f"no whole body within {self._limits.body_s:g} s", CLOSE) from error
        return bytes(body)

    async def _wait(self, request: Request, task: asyncio.Task[Result], wait_s: float) -> Result | None:
        """The result, or None once time is up or the client has gone; a cancelled store call has done nothing."""
        gone = asyncio.ensure_future(request.receive())  # the body is read: what can still come is a disconnect
        self._waits.add(task)
        try:
            timeout = min(max(wait_s, 0.0), self._limits.long_poll_s)
            await asyncio.wait({task, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            task.cancel()
            self._waits.discard(task)
        await asyncio.wait({task})
        return None if task.cancelled() else task.result()
