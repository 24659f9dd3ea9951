"""The `inline` runtime: all roles in one process, as coroutines over a store and a virtual clock; bit-exact.

    engine     waits for a request                    unblocked by rollouts
    rollouts   wait at the admission limit            unblocked by learning (a finished step)
               wait for a sampled turn or a tool      unblocked by engine, clock
    learning   waits for a full batch                 unblocked by rollouts (a commit)

A run is a chain of segments. Between two of them everything in flight is parked: KV caches are dropped, and tokens,
log-probs, versions and pending tool calls become data. The next segment is built from that data alone, whether the
process was killed in between or not. That is why an interrupted run ends bit-equal to one that was not. Another kind of
processor, or another version of torch, rounds differently: there the run is reproducible too, with other bits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from torch import Tensor

from soliton.engines.local import LocalEngine
from soliton.learner.learner import Learner
from soliton.rollout.episode import EpisodeState
from soliton.rollout.worker import Worker
from soliton.runtime.clock import VirtualClock
from soliton.runtime.learning import Learning, OnStep, Pace
from soliton.runtime.phases import PhaseBegun, PhaseHistory
from soliton.runtime.setup import Setup
from soliton.runtime.tasks import until_done
from soliton.store.memory import MemoryStore
from soliton.types import Publication, stable_seed
from soliton.weights import published_state, weights_sha256


@dataclass(frozen=True)
class Boundary:
    """All of a run between two segments, apart from the learner.

    Attributes:
        step: learner steps published.
        batches: batches consumed, those included that moved only the critic.
        now_s: virtual time.
        store: `MemoryStore.snapshot()`.
        episodes: what was in flight, parked, in the order of its attempts.
        phases: when each phase began.
    """

    step: int
    batches: int
    now_s: float
    store: bytes
    episodes: tuple[EpisodeState, ...]
    phases: tuple[PhaseBegun, ...] = ()


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
        on_step: told of each batch.
    """

    def __init__(self, setup: Setup, learner: Learner, start: Boundary, on_step: OnStep) -> None:
        config = setup.config
        self._config = config
        self._start = start
        self._clock = VirtualClock(stable_seed(config.seed, "order", start.step), start.now_s)
        self._store = MemoryStore.restore(start.store, config.store_config(), self._clock)
        self._phases = PhaseHistory(config.env.shifts, start.phases)
        self._engine: LocalEngine = setup.new_engine(learner.actor.model, self._store.newest.version)
        self._worker = Worker(
            store=self._store,
            engine=self._engine,
            prompts=setup.prompts,
            make_environment=setup.environment_factory(config.env.latency, self._phases.at),
            renderer=setup.renderer,
            clock=self._clock,
            limits=config.limits,
            sampling=config.sampling.record(),
            run_seed=config.seed,
            max_episodes=config.rollout.max_in_flight,
        )
        self._learning = Learning(
            config=config,
            learner=learner,
            store=self._store,
            clock=self._clock,
            publish=self._load,
            on_step=on_step,
            newest=self._store.newest,
            batches=start.batches,
            pace=Pace(config.inline.actor_update_s, config.inline.critic_updates_s),
        )

    def run(self, until_step: int) -> Boundary:
        """Train until `until_step` steps are published; returns the next boundary."""
        return self._clock.run(self._run(until_step))

    async def _run(self, until_step: int) -> Boundary:
        engine = asyncio.create_task(self._engine.run(self._clock, self._config.inline.tick_s), name="engine")
        rollouts = asyncio.create_task(self._worker.run(self._start.episodes), name="rollouts")
        learning = asyncio.create_task(self._learning.run(until_step), name="learning")
        await until_done(learning, engine, rollouts)
        episodes = await self._worker.park()
        engine.cancel()
        await asyncio.gather(engine, rollouts, return_exceptions=True)
        return Boundary(
            step=self._store.newest.step,
            batches=self._learning.batches,
            now_s=self._clock.now(),
            store=self._store.snapshot(),
            episodes=tuple(episodes),
            phases=tuple(self._phases.begun),
        )

    async def _load(self, weights: dict[str, Tensor], publication: Publication) -> None:
        await self._engine.load_weights(weights, publication.version)
        self._phases.reached(publication.step, self._clock.now())
