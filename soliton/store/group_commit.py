"""Group commit: what arrives while the event loop is at work is written in one transaction.

Owns nothing but the commits of one turn of the loop. Guarantees: nobody is answered before the transaction that holds
its commits is written; one that the store refuses does not spoil the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from soliton.errors import RunError, StorageFullError
from soliton.store import wire
from soliton.store.codec import Arrival
from soliton.store.store import CommitAck
from soliton.types import Trajectory

Answers = list[wire.CommitAnswer]


class CommitsMany(Protocol):
    """The store's side."""

    def commit_many(self, trajectories: Sequence[Trajectory], encoded: Sequence[bytes] = ()) -> list[CommitAck]:
        """Several commits at once, whether there is room or not; all of them or, if one is refused, none."""
        ...


class GroupCommit:
    """Gathers commits.

    Args:
        store: takes them.
    """

    def __init__(self, store: CommitsMany) -> None:
        self._store = store
        self._waiting: list[tuple[list[Arrival], asyncio.Future[Answers]]] = []

    async def commit(self, arrivals: list[Arrival]) -> Answers:
        """An answer per trajectory, in their order.

        Raises:
            StorageFullError: nothing could be written.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[Answers] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._write)
        self._waiting.append((arrivals, written))
        return await written

    def _write(self) -> None:
        group, self._waiting = self._waiting, []
        try:
            answers = iter(self._commit([each for arrivals, _ in group for each in arrivals]))
        except Exception as error:  # for every caller: it is raised where it is awaited
            for _, written in group:
                if not written.done():
                    written.set_exception(error)
            return
        for arrivals, written in group:
            own = [next(answers) for _ in arrivals]
            if not written.done():  # its client may have gone
                written.set_result(own)

    def _commit(self, arrivals: list[Arrival]) -> Answers:
        """All together; one by one if that is refused, so that each has its own answer."""
        trajectories = [trajectory for trajectory, _ in arrivals]
        try:
            acks = self._store.commit_many(trajectories, [encoded for _, encoded in arrivals])
        except StorageFullError:
            raise
        except (RunError, ValueError) as error:
            if len(arrivals) > 1:
                return [answer for arrival in arrivals for answer in self._commit([arrival])]
            kind = "RunError" if isinstance(error, RunError) else "ValueError"
            return [wire.CommitAnswer(trajectories[0].attempt, failure=wire.Failure(kind, str(error)))]
        return [wire.CommitAnswer(each.attempt, ack) for each, ack in zip(trajectories, acks, strict=True)]
