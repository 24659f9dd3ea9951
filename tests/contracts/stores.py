"""The stores that the contract is checked with, and what its tests do to them. A new store is one more entry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from soliton.runtime.clock import VirtualClock
from soliton.store.config import StoreConfig
from soliton.store.limits import HubLimits
from soliton.store.memory import MemoryStore
from soliton.store.store import BatchItem, Store
from soliton.types import AttemptId, Clock, Lease, Publication
from tests.fakes.hub import over_http
from tests.fakes.sqlite import open_sqlite
from tests.fakes.trajectories import publication, trajectory


class OwnedStore(Store, Protocol):
    def close(self) -> None: ...

    def lose(self, holder: str | None) -> list[AttemptId]: ...


Body = Callable[[OwnedStore, Clock], Awaitable[None]]
Make = Callable[[StoreConfig, Clock, Publication | None], Any]
Run = Callable[[StoreConfig, Publication | None, Body], None]


def run_memory(config: StoreConfig, initial: Publication | None, body: Body) -> None:
    clock = VirtualClock(0)

    async def main() -> None:
        await body(MemoryStore(config, clock, initial), clock)

    clock.run(main())


def run_sqlite(config: StoreConfig, initial: Publication | None, body: Body) -> None:
    clock = VirtualClock(0)

    async def main() -> None:
        store = open_sqlite(config, clock, initial)
        await body(store, clock)
        store.close_file()

    clock.run(main())


def over_hub(make: Make) -> Run:
    """The same store, reached through a real hub on loopback; virtual time jumps when nothing is under way on it."""

    def run_over_hub(config: StoreConfig, initial: Publication | None, body: Body) -> None:
        clock = VirtualClock(0, quiet_s=0.02)

        async def main() -> None:
            async with over_http(make(config, clock, initial), clock, hub=HubLimits(retry_after_s=0.01)) as store:
                await body(store, clock)

        clock.run(main())

    return run_over_hub


IMPLEMENTATIONS = {
    "memory": run_memory,
    "sqlite": run_sqlite,
    "memory over HTTP": over_hub(MemoryStore),
    "sqlite over HTTP": over_hub(open_sqlite),
}


async def commit(store: Store, lease: Lease, *versions: int) -> str:
    return await store.commit(trajectory(lease.attempt, versions or (lease.version,)))


async def commit_all(store: Store, leases: list[Lease]) -> None:
    for lease in leases:
        await commit(store, lease)


async def finish(store: Store, items: list[BatchItem], step: int | None) -> None:
    await store.finish_step(ids(items), None if step is None else publication(step))


def ids(items: list[BatchItem]) -> list[AttemptId]:
    return [item.trajectory.attempt for item in items]


def attempts(leases: list[Lease]) -> list[str]:
    return [str(lease.attempt) for lease in leases]


async def start(clock: Clock, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a call and give it time to finish or to block."""
    task = asyncio.create_task(call)
    await clock.sleep_until(clock.now() + 0.01)
    return task


async def blocks(clock: Clock, call: Coroutine[Any, Any, Any]) -> bool:
    """Whether a call waits; it is cancelled then."""
    task = await start(clock, call)
    waits = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return waits


async def train_batches(store: Store, first_step: int, count: int) -> None:
    """Lease, commit and train `count` whole batches of new draws."""
    for step in range(first_step, first_step + count):
        items: list[BatchItem] = []
        while not items:
            await commit_all(store, await store.lease(2))
            items = await store.take()
        await finish(store, items, step)
