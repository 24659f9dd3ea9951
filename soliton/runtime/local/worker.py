"""The rollout role as a process: an embedded engine, its weights, and many episodes in flight.

engine     waits for a request                          unblocked by rollouts
weights    wait for the next look at the folder         unblocked by the clock
rollouts   wait for leases, and for the weights that a lease was given under      unblocked by the hub, weights
           wait for a sampled turn, a tool, the acknowledgement of a commit       unblocked by engine, world, hub
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from soliton.config import load_config
from soliton.engines.engine import Engine
from soliton.failpoints import failpoint
from soliton.models.load import load_causal_lm
from soliton.rollout.worker import Worker
from soliton.runtime.clock import RealClock
from soliton.runtime.local.channel import Channel
from soliton.runtime.local.connection import Connection
from soliton.runtime.local.events import Progress
from soliton.runtime.phases import RunPhases
from soliton.runtime.run_folder import START_MODEL, RunFolder
from soliton.runtime.setup import make_setup
from soliton.runtime.tasks import until_done
from soliton.store.client import HubStore
from soliton.store.limits import ClientLimits
from soliton.store.store import BatchItem, CommitAck, Store, StoreStatus
from soliton.types import AttemptId, Clock, Lease, Publication, Trajectory
from soliton.weights import PublishedVersions, load_published

LOOK_EVERY_S = 0.01
"""Between two looks at the folder of versions; a look costs microseconds."""
PROGRESS_EVERY_S = 1.0
"""Between two signs of life to the controller."""
GATHER_S = 0.1
"""How long a finished attempt waits for others to be committed with. Without this the hub takes 8 to 10 % of a core in
the demo, with it 4 to 5 %: the demo ends some 90 attempts a second, and a request costs 0.3 ms."""


def run(name: str, run_dir: Path, channel: Channel) -> None:
    """Roll out until the store has no more work."""
    asyncio.run(_run(name, RunFolder(run_dir), channel))


async def _run(name: str, folder: RunFolder, channel: Channel) -> None:
    config = load_config(folder.config)
    connection = Connection.read(folder.connection)
    clock = RealClock(connection.clock_origin_s)
    setup = make_setup(config, folder.weights / START_MODEL)
    model = load_causal_lm(folder.weights / START_MODEL)
    versions = PublishedVersions(folder.weights)
    publication, tensors = versions.load_newest()
    load_published(model, tensors)
    engine = setup.new_engine(model, publication.version)
    weights = FollowedWeights(versions, engine, clock, publication.step)
    phases = RunPhases(config.env.shifts, folder.phases)
    limits = ClientLimits(gather_s=GATHER_S)
    async with HubStore(connection.url, connection.token, connection.run_id, name, clock, limits) as hub:
        worker = Worker(
            store=WorkersStore(hub, weights, channel, clock),
            engine=engine,
            prompts=setup.prompts,
            make_environment=setup.environment_factory(config.env.latency, lambda _: phases.at_step(weights.step)),
            renderer=setup.renderer,
            clock=clock,
            limits=config.limits,
            sampling=config.sampling.record(),
            run_seed=config.seed,
            max_episodes=-(-config.rollout.max_in_flight // config.local.workers),
        )
        rollouts = asyncio.create_task(worker.run(), name="rollouts")
        pump = asyncio.create_task(engine.run(clock, 0.0), name="engine")
        following = asyncio.create_task(weights.run(), name="weights")
        await until_done(rollouts, pump, following)
        pump.cancel()
        following.cancel()


class FollowedWeights:
    """Loads each newly published version into an engine, between two decode steps.

    Args:
        versions: where they are published.
        engine: takes them.
        clock: of the run.
        step: learner step of the version that the engine has.
    """

    def __init__(self, versions: PublishedVersions, engine: Engine, clock: Clock, step: int = 0) -> None:
        self.step = step
        self._versions = versions
        self._engine = engine
        self._clock = clock
        self._loaded = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            newest = self._versions.newest()
            if newest is not None and newest > self._engine.version:
                failpoint("worker.between_publish_and_load")
                publication, tensors = self._versions.load_newest()
                await self._engine.load_weights(tensors, publication.version)
                self.step = publication.step
                self._loaded.set()
                self._loaded.clear()
            await self._clock.sleep_until(self._clock.now() + LOOK_EVERY_S)

    async def reached(self, version: int) -> None:
        """Wait until the engine samples from `version` or a newer one."""
        while self._engine.version < version:
            await self._loaded.wait()


class WorkersStore:
    """The hub's store as a worker uses it: no attempt begins before the engine has the weights that its lease names.

    So no token is older than `Lease.version`, which the store counts on.
    """

    def __init__(self, store: Store, weights: FollowedWeights, channel: Channel, clock: Clock) -> None:
        self._store = store
        self._weights = weights
        self._channel = channel
        self._clock = clock
        self._reported_s = float("-inf")

    async def lease(self, limit: int, holder: str = "") -> list[Lease]:
        """See `Store`."""
        leases = await self._store.lease(limit, holder)
        failpoint("worker.between_lease_and_first_token")
        await self._weights.reached(max((lease.version for lease in leases), default=0))
        return leases

    async def commit(self, trajectory: Trajectory) -> CommitAck:
        """See `Store`."""
        failpoint("worker.before_commit")
        ack = await self._store.commit(trajectory)
        failpoint("worker.after_commit")
        if self._clock.now() - self._reported_s >= PROGRESS_EVERY_S:
            self._reported_s = self._clock.now()
            self._channel.send(Progress())
        return ack

    async def take(self) -> list[BatchItem]:
        """See `Store`."""
        return await self._store.take()

    async def finish_step(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """See `Store`."""
        await self._store.finish_step(trained, publication)

    async def status(self) -> StoreStatus:
        """See `Store`."""
        return await self._store.status()
