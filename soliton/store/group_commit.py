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
from soliton.store.store import CommitAck
from soliton.types import Trajectory

Answers = list[wire.CommitAnswer]


class CommitsMany(Protocol):
    """The store's side."""

    def commit_many(self, trajectories: Sequence[Trajectory]) -> list[CommitAck]:
        """Several commits at once, whether there is room or not; all of them or, if one is refused, none."""
        ...


class GroupCommit:
    """Gathers commits.

    Args:
        store: takes them.
    """

    def __init__(self, store: CommitsMany) -> None:
        self._store = store
        self._waiting: list[tuple[list[Trajectory], asyncio.Future[Answers]]] = []

    async def commit(self, trajectories: list[Trajectory]) -> Answers:
        """An answer per trajectory, in their order.

        Raises:
            StorageFullError: nothing could be written.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[Answers] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._write)
        self._waiting.append((trajectories, written))
        return await written

    def _write(self) -> None:
        group, self._waiting = self._waiting, []
        try:
            answers = iter(self._commit([each for trajectories, _ in group for each in trajectories]))
        except Exception as error:  # for every caller: it is raised where it is awaited
            for _, written in group:
                if not written.done():
                    written.set_exception(error)
            return
        for trajectories, written in group:
            own = [next(answers) for _ in trajectories]
            if not written.done():  # its client may have gone
                written.set_result(own)

    def _commit(self, trajectories: list[Trajectory]) -> Answers:
        """All together; one by one if that is refused, so that each has its own answer."""
        try:
            acks = self._store.commit_many(trajectories)
        except StorageFullError:
            raise
        except (RunError, ValueError) as error:
            if len(trajectories) > 1:
                return [answer for trajectory in trajectories for answer in self._commit([trajectory])]
            kind = "RunError" if isinstance(error, RunError) else "ValueError"
            return [wire.CommitAnswer(trajectories[0].attempt, failure=wire.Failure(kind, str(error)))]
        return [wire.CommitAnswer(each.attempt, ack) for each, ack in zip(trajectories, acks, strict=True)]
