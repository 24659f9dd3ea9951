"""Commits per second through the hub to a SQLite store: `python -m benchmarks hub`.

Three processes share the machine: this one, a server (hub over a `SqliteStore` in a file, durability "process"), and a
client that commits trajectories of 600 tokens, of which two thirds were sampled. Each is encoded at the client,
validated in full and written at the server, acknowledged, and counted only when its caller has the acknowledgement.
* single: one trajectory a request, 8 requests under way.
* batched: 32 trajectories a request, 2 requests under way.
The median of three rounds counts. A lease of everything comes first and is not timed; at the end the store's ledger
must hold every commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trajectories import trajectory
from soliton.runtime.clock import RealClock
from soliton.store.client import HubStore
from soliton.store.config import StoreConfig
from soliton.store.hub import hub_app
from soliton.store.limits import ClientLimits
from soliton.store.serving import serve
from soliton.store.sqlite import SqliteStore
from soliton.types import Publication

ROUNDS = 3
COMMITS = {"single": 3_000, "batched": 12_000}
LIMITS = {
    "single": ClientLimits(max_batch=1, max_commit_requests=8),
    "batched": ClientLimits(max_batch=32, max_commit_requests=2),
}
WAITING = {"single": 8, "batched": 128}
TOKEN, RUN_ID = "token-of-the-benchmark", "benchmark"


def cpu_s() -> float:
    """CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def server(pipe: Connection, path: Path, count: int) -> None:
    """Serve until told to stop; then say what the store holds."""

    async def main() -> None:
        config = StoreConfig(batch_size=count, max_staleness=None, max_outstanding=count)
        store = SqliteStore.open(path, config, RealClock())
        await store.finish_step([], Publication(version=0, parent=-1, step=0, sha256="0" * 64))
        async with serve(hub_app(store, token=TOKEN, run_id=RUN_ID)) as url:
            pipe.send(url)
            await asyncio.to_thread(pipe.recv)  # everything is leased
            cpu = cpu_s()
            pipe.send(None)
            await asyncio.to_thread(pipe.recv)  # everything is committed
            pipe.send((cpu_s() - cpu, (await store.status()).ledger.queued))
        store.close_file()

    asyncio.run(main())


def client(pipe: Connection, kind: str, count: int) -> None:
    """Lease, then commit everything; say how long the commits took."""

    async def main() -> None:
        rng = np.random.default_rng(0)
        async with HubStore(pipe.recv(), TOKEN, RUN_ID, "worker", RealClock(), LIMITS[kind]) as store:
            trajectories = [trajectory(lease.attempt, rng) for lease in await store.lease(count)]
            assert len(trajectories) == count
            todo = iter(trajectories)

            async def commit() -> None:
                for each in todo:
                    assert await store.commit(each) == "queued"

            pipe.send(None)
            pipe.recv()
            cpu, start = cpu_s(), time.perf_counter()
            await asyncio.gather(*(commit() for _ in range(WAITING[kind])))
            pipe.send((time.perf_counter() - start, cpu_s() - cpu))

    asyncio.run(main())


def one_round(kind: str) -> dict[str, float]:
    """Commits per second, and microseconds of CPU per trajectory on each side."""
    count = COMMITS[kind]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        to_server, to_client = (
            start(stack, target, arguments)
            for target, arguments in ((server, (folder / "store.sqlite", count)), (client, (kind, count)))
        )
        to_client.send(to_server.recv())
        to_server.send(to_client.recv())
        to_client.send(to_server.recv())
        wall_s, client_s = to_client.recv()
        to_server.send(None)
        server_s, queued = to_server.recv()
    assert queued == count, f"{queued} of {count} commits are in the store"
    return {"per_s": count / wall_s, "client_us": client_s / count * 1e6, "server_us": server_s / count * 1e6}


def start(stack: contextlib.ExitStack, target: Callable[..., None], arguments: tuple[Any, ...]) -> Connection:
    """A process that ends with `stack`, and this end of its pipe."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    stack.callback(process.join, 30)
    return here


def measure() -> dict[str, float]:
    """`store_commits_per_s.*` and the CPU behind them."""
    measured: dict[str, float] = {}
    for kind in COMMITS:
        rounds = [one_round(kind) for _ in range(ROUNDS)]
        measured[f"store_commits_per_s.{kind}"] = statistics.median(each["per_s"] for each in rounds)
        for side in ("client_us", "server_us"):
            measured[f"hub.{kind}.{side}_per_commit"] = statistics.median(each[side] for each in rounds)
    return measured
