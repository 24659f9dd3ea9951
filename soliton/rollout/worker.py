"""The rollout role: keep many episodes in flight over one engine.

    run        waits for: an episode or a lease call to end
    _lease     waits for: the store (work, at the admission limit)      unblocked by the learner, or the end of the run
    _attempt   waits for: engine and environment (see `episode`), then the store's acknowledgement
    park       waits for: all of these to end                           unblocked by itself: it interrupts them

It owns the tasks of the episodes. It knows no algorithm and no learner: everything it makes goes to the store.

Guarantees: never more than `max_episodes` in flight; every lease ends as a commit or as a parked state; a task that
ends unexpectedly ends `run` with its traceback; no order depends on a set, so a virtual clock makes it deterministic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from soliton.engines.engine import Engine
from soliton.errors import RunError
from soliton.prompts.stream import PromptStream
from soliton.rollout.episode import Episode, EpisodeState, MakeEnvironment, Parked
from soliton.rollout.limits import Limits
from soliton.rollout.renderer import Renderer
from soliton.store.store import Store
from soliton.types import AttemptId, Clock, Lease, Sampling


class Worker:
    """Runs episodes until the store has no more work; can be parked and run again.

    Args:
        store: gives leases and takes trajectories. Cancelling its `lease` must not lose a lease: it grants and returns
            without an await in between.
        engine: shared by all episodes.
        prompts: the prompt of each draw.
        make_environment, renderer, clock, limits, sampling, run_seed: see `Episode`.
        max_episodes: in flight at once, those that wait for a tool included; >= 1.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        prompts: PromptStream,
        make_environment: MakeEnvironment,
        renderer: Renderer,
        clock: Clock,
        limits: Limits,
        sampling: Sampling,
        run_seed: int,
        max_episodes: int,
    ) -> None:
        if max_episodes < 1:
            raise ValueError(f"max_episodes = {max_episodes}; it must be >= 1")
        self._store = store
        self._engine = engine
        self._prompts = prompts
        self._make_environment = make_environment
        self._renderer = renderer
        self._clock = clock
        self._limits = limits
        self._sampling = sampling
        self._run_seed = run_seed
        self._max_episodes = max_episodes
        self._episodes: dict[AttemptId, Episode] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._leasing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_over = False
        self._is_parking = False
        self._parked: list[EpisodeState] = []
        self._failure: BaseException | None = None

    @property
    def num_in_flight(self) -> int:
        """Episodes that have begun and not ended."""
        return len(self._episodes)

    async def run(self, parked: Sequence[EpisodeState] = ()) -> None:
        """Go on with `parked` in the order of their attempts, then lease and run until the store is done.

        Returns when no work is left and everything is committed, or after `park`.

        Raises:
            Exception: whatever ended an episode, a lease or a commit unexpectedly; the rest is cancelled first.
        """
        assert self._idle.is_set(), "the worker already runs"
        self._idle.clear()
        self._is_over = self._is_parking = False
        self._parked, self._failure = [], None
        try:
            for state in sorted(parked, key=lambda state: state.lease.attempt):
                self._begin(state.lease, state)
            while True:
                self._reap()
                if self._leasing is None and self._may_lease():
                    self._leasing = self._spawn(self._lease(self._max_episodes - len(self._episodes)))
                if not self._tasks:
                    return
                await self._changed.wait()
                self._changed.clear()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            await self._cancel_all()
            self._idle.set()

    async def park(self) -> list[EpisodeState]:
        """Stop leasing, park every episode, and end `run`; returns their states in the order of their attempts.

        Raises:
            RunError: `run` has failed; its own task raises the cause.
        """
        self._is_parking = True
        self._changed.set()
        if self._leasing is not None:
            self._leasing.cancel()
        if not self._idle.is_set():
            for attempt in sorted(self._episodes):
                self._spawn(self._park(self._episodes[attempt]))
        await self._idle.wait()
        if self._failure is not None:
            raise RunError(f"the worker ended with {self._failure!r} and cannot be parked") from self._failure
        return sorted(self._parked, key=lambda state: state.lease.attempt)

    async def _park(self, episode: Episode) -> None:
        await episode.park()

    def _may_lease(self) -> bool:
        return not self._is_over and not self._is_parking and len(self._episodes) < self._max_episodes

    async def _lease(self, limit: int) -> None:
        leases = await self._store.lease(limit)
        self._is_over = not leases
        for lease in leases:
            if self._is_parking:
                self._parked.append(EpisodeState(lease=lease, prompt_id=self._prompts.at(lease.attempt.draw).id))
            else:
                self._begin(lease, None)

    def _begin(self, lease: Lease, state: EpisodeState | None) -> None:
        episode = Episode(
            lease,
            self._prompts.at(lease.attempt.draw),
            make_environment=self._make_environment,
            engine=self._engine,
            renderer=self._renderer,
            clock=self._clock,
            limits=self._limits,
            sampling=self._sampling,
            run_seed=self._run_seed,
            state=state,
        )
        self._episodes[lease.attempt] = episode
        self._spawn(self._attempt(lease.attempt, episode))

    async def _attempt(self, attempt: AttemptId, episode: Episode) -> None:
        try:
            await self._store.commit(await episode.run())
        except Parked:
            self._parked.append(episode.state)
        finally:
            await self._engine.release(str(attempt))
            del self._episodes[attempt]

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        task.add_done_callback(lambda _: self._changed.set())
        self._tasks.append(task)
        return task

    def _reap(self) -> None:
        """Forget the tasks that have ended; raise the error of the first that failed."""
        done = [task for task in self._tasks if task.done()]
        self._tasks = [task for task in self._tasks if not task.done()]
        for task in done:
            if task is self._leasing:
                self._leasing = None
                if self._is_parking and task.cancelled():
                    continue
            task.result()

    async def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._leasing = [], None
