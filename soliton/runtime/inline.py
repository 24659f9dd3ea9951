"""The `inline` runtime: all roles in one process, as coroutines over a store and a virtual clock; bit-exact.

    engine     waits for a request                    unblocked by rollouts
    rollouts   wait at the admission limit            unblocked by learning (a finished step)
               wait for a sampled turn or a tool      unblocked by engine, clock
    learning   waits for a full batch                 unblocked by rollouts (a commit)

A run is a chain of segments. Between two of them everything in flight is parked: KV caches are dropped, and tokens,
log-probs, versions and pending tool calls become data. The next segment is built from that data alone, whether the
process was killed in between or not. That is why an interrupted run ends bit-equal to one that was not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from soliton.engines.local import LocalEngine
from soliton.errors import RunError
from soliton.learner.learner import Learner
from soliton.rollout.episode import EpisodeState
from soliton.rollout.worker import Worker
from soliton.runtime.clock import VirtualClock
from soliton.runtime.controls import with_shuffled_rewards
from soliton.runtime.setup import Setup
from soliton.store.memory import MemoryStore
from soliton.store.staleness import dropped_long_share
from soliton.store.store import BatchItem, StoreStatus
from soliton.types import Publication, stable_seed
from soliton.weights import published_state, weights_sha256

StepMetrics = dict[str, float]


@dataclass(frozen=True)
class Boundary:
    """All of a run between two segments, apart from the learner.

    Attributes:
        step: learner steps published.
        batches: batches consumed, those included that moved only the critic.
        now_s: virtual time.
        store: `MemoryStore.snapshot()`.
        episodes: what was in flight, parked, in the order of its attempts.
    """

    step: int
    batches: int
    now_s: float
    store: bytes
    episodes: tuple[EpisodeState, ...]


def first_boundary(setup: Setup, learner: Learner) -> Boundary:
    """The state of a run that has not begun; publishes version 0."""
    initial = Publication(version=0, parent=-1, step=0, sha256=weights_sha256(published_state(learner.actor.model)))
    store = MemoryStore(setup.config.store_config(), VirtualClock(0), initial)
    return Boundary(step=0, batches=0, now_s=0.0, store=store.snapshot(), episodes=())


class InlineSegment:
    """One stretch of training between two boundaries.

    Args:
        setup: task and settings.
        learner: trains; its actor is the newest published policy at every boundary.
        start: where to go on.
        on_step: told (policy step, batches, metrics) after each batch.
    """

    def __init__(
        self, setup: Setup, learner: Learner, start: Boundary, on_step: Callable[[int, int, StepMetrics], None]
    ) -> None:
        config = setup.config
        self._config = config
        self._learner = learner
        self._on_step = on_step
        self._start = start
        self._batches = start.batches
        self._clock = VirtualClock(stable_seed(config.seed, "order", start.step), start.now_s)
        self._store = MemoryStore.restore(start.store, config.store_config(), self._clock)
        self._engine: LocalEngine = setup.new_engine(learner.actor.model, self._store.newest.version)
        self._worker = Worker(
            store=self._store,
            engine=self._engine,
            prompts=setup.prompts,
            make_environment=setup.environment_factory(config.env.latency),
            renderer=setup.renderer,
            clock=self._clock,
            limits=config.limits,
            sampling=config.sampling.record(),
            run_seed=config.seed,
            max_episodes=config.rollout.max_in_flight,
        )

    def run(self, until_step: int) -> Boundary:
        """Train until `until_step` steps are published; returns the next boundary."""
        return self._clock.run(self._run(until_step))

    async def _run(self, until_step: int) -> Boundary:
        engine = asyncio.create_task(self._engine.run(self._clock, self._config.inline.tick_s), name="engine")
        rollouts = asyncio.create_task(self._worker.run(self._start.episodes), name="rollouts")
        learning = asyncio.create_task(self._learn(until_step), name="learning")
        await _until_done(learning, engine, rollouts)
        episodes = await self._worker.park()
        engine.cancel()
        await asyncio.gather(engine, rollouts, return_exceptions=True)
        return Boundary(
            step=self._store.newest.step,
            batches=self._batches,
            now_s=self._clock.now(),
            store=self._store.snapshot(),
            episodes=tuple(episodes),
        )

    async def _learn(self, until_step: int) -> None:
        """The learner's loop: batch, critic and actor updates, publish, remaining critic updates."""
        while self._store.newest.step < until_step:
            items = await self._store.take()
            if not items:
                return
            self._learner.start_step(self._controlled(items))
            moved = self._learner.update_actor()
            await self._clock.sleep_until(self._clock.now() + self._config.inline.actor_update_s)
            publication = await self._publish() if moved else None
            await self._store.finish_step([item.trajectory.attempt for item in items], publication)
            metrics = self._learner.finish_step()
            await self._clock.sleep_until(self._clock.now() + self._config.inline.critic_updates_s)
            self._batches += 1
            metrics["ledger/draws_given_up"] = float(self._store.num_given_up)
            self._report(metrics, await self._store.status())

    async def _publish(self) -> Publication:
        parent = self._store.newest
        weights = {name: tensor.clone() for name, tensor in published_state(self._learner.actor.model).items()}
        publication = Publication(
            version=parent.version + 1, parent=parent.version, step=parent.step + 1, sha256=weights_sha256(weights)
        )
        await self._engine.load_weights(weights, publication.version)
        return publication

    def _controlled(self, items: list[BatchItem]) -> list[BatchItem]:
        if not self._config.train.shuffle_rewards:
            return items
        return with_shuffled_rewards(items, stable_seed(self._config.seed, "shuffle", self._batches))

    def _report(self, metrics: StepMetrics, status: StoreStatus) -> None:
        if status.ledger.balance != 0:
            raise RunError(f"step {status.step}: the ledger is off by {status.ledger.balance}: {status.ledger}")
        self._on_step(status.step, self._batches, {**metrics, **_store_metrics(status, self._clock.now())})


def _store_metrics(status: StoreStatus, now_s: float) -> StepMetrics:
    ledger = status.ledger
    return {
        "train/policy_step": float(status.step),
        "time/virtual_s": now_s,
        "wait/admission_s": status.admission_wait_s,
        "wait/batch_s": status.batch_wait_s,
        "wait/hold_s": status.hold_wait_s,
        "ledger/issued": float(ledger.issued),
        "ledger/trained": float(ledger.trained),
        "ledger/queued": float(ledger.queued),
        "ledger/in_flight": float(ledger.in_flight),
        "ledger/superseded": float(ledger.superseded),
        "ledger/dropped": float(sum(ledger.dropped.values())),
        **{f"ledger/dropped_{reason}": float(count) for reason, count in ledger.dropped.items()},
        "staleness/dropped_long_share": dropped_long_share(status.dropped_by_length_decile),
    }


async def _until_done(awaited: asyncio.Task[None], *others: asyncio.Task[None]) -> None:
    """Wait for `awaited`; a failure of any of the tasks ends all of them with its traceback (fault H3)."""
    pending = [awaited, *others]
    try:
        while not awaited.done():
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in pending if task.done()]:
                task.result()
                pending.remove(task)
    except BaseException:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        raise
