import asyncio
import hashlib

import msgspec
import pytest

from soliton.envs.calculator import Calculator
from soliton.envs.latency import LatencyConfig
from soliton.errors import RunError
from soliton.prompts.calculator import CalculatorPrompts
from soliton.reasons import Status
from soliton.rollout.episode import EpisodeState
from soliton.rollout.limits import Limits
from soliton.rollout.worker import Worker
from soliton.runtime.clock import VirtualClock
from soliton.types import AttemptId, Lease, Sampling, Trajectory
from tests.fakes.manual_clock import ManualClock
from tests.fakes.scripted_environment import HANG, ScriptedEnvironment
from tests.fakes.scripted_policy import ScriptedPolicy, solve
from tests.unit.rollout.kit import PROMPTS, RENDERER, TOKENIZER, calculator_with

HEAVY = LatencyConfig(kind="heavy_tailed", low_s=0.1, high_s=5.0)


class ScriptedStore:
    """Grants draws 0 .. num_draws - 1, at most `admission` outstanding; remembers commits in their order."""

    def __init__(self, clock, num_draws: int, *, admission: int = 10**6, granted: int = 0):
        self.clock = clock
        self.num_draws = num_draws
        self.admission = admission
        self.granted = granted
        self.committed: list[Trajectory] = []
        self.limits: list[int] = []
        self.max_outstanding = 0
        self.outstanding = 0
        self.changed = asyncio.Event()

    async def lease(self, limit: int) -> list[Lease]:
        self.limits.append(limit)
        while self.granted < self.num_draws and self.outstanding >= self.admission:
            self.changed.clear()
            await self.changed.wait()
        count = min(limit, self.num_draws - self.granted, self.admission - self.outstanding)
        leases = [Lease(AttemptId(self.granted + i), self.clock.now(), 0) for i in range(count)]
        self.granted += count
        self.outstanding += count
        self.max_outstanding = max(self.max_outstanding, self.outstanding)
        return leases

    async def commit(self, trajectory: Trajectory) -> str:
        self.committed.append(trajectory)
        self.outstanding -= 1
        self.changed.set()
        return "queued"


def make_worker(store, engine, clock, *, environment=None, max_episodes=8, prompts=PROMPTS, **limits) -> Worker:
    return Worker(
        store=store,
        engine=engine,
        prompts=prompts,
        make_environment=environment or calculator_with(HEAVY),
        renderer=RENDERER,
        clock=clock,
        limits=Limits(**limits),
        sampling=Sampling(),
        run_seed=3,
        max_episodes=max_episodes,
    )


def digest(trajectories) -> str:
    text = [(str(t.attempt), t.token_ids.tobytes(), t.reward_values.tobytes(), t.times) for t in trajectories]
    return hashlib.sha256(repr(text).encode()).hexdigest()


def run_all(seed: int, num_draws: int = 40):
    clock = VirtualClock(seed)
    store = ScriptedStore(clock, num_draws)
    engine = ScriptedPolicy(TOKENIZER, solve, clock=clock, tick_s=0.01)
    clock.run(make_worker(store, engine, clock).run())
    return store, engine


def test_every_draw_is_committed_once_and_its_session_released():
    store, engine = run_all(0)
    assert sorted(t.attempt.draw for t in store.committed) == list(range(40))
    assert all(t.status is Status.TERMINATED and t.total_reward == 1.0 for t in store.committed)
    assert sorted(engine.released) == sorted(str(t.attempt) for t in store.committed)
    assert store.max_outstanding == 8
    assert store.limits[0] == 8


def test_two_runs_under_the_same_clock_are_equal():
    assert digest(run_all(1)[0].committed) == digest(run_all(1)[0].committed)


def test_trajectories_finish_in_another_order_than_they_began():
    draws = [t.attempt.draw for t in run_all(0)[0].committed]
    assert draws != sorted(draws)


def test_the_admission_limit_of_the_store_is_waited_for():
    clock = VirtualClock(0)
    store = ScriptedStore(clock, 20, admission=3)
    clock.run(make_worker(store, ScriptedPolicy(TOKENIZER, solve), clock).run())
    assert len(store.committed) == 20
    assert store.max_outstanding == 3


def test_workers_on_the_same_prompt_get_other_seeds():  # fault F11
    clock = VirtualClock(0)
    engine = ScriptedPolicy(TOKENIZER, solve)
    one_prompt = CalculatorPrompts(0, num_prompts=1)
    seeds = []

    def make(_clock, seed):
        seeds.append(seed)
        return Calculator()

    store = ScriptedStore(clock, 6)
    clock.run(make_worker(store, engine, clock, prompts=one_prompt, environment=make).run())
    assert len({t.prompt_id for t in store.committed}) == 1
    assert len(set(seeds)) == 6
    assert len({request.seed for request in engine.requests}) == 6


def test_a_failed_attempt_is_committed_as_failed_and_the_rest_goes_on():  # faults F10, H1
    clock = VirtualClock(0)
    count = iter(range(100))

    def make(_clock, _seed):
        return ScriptedEnvironment([RuntimeError("x")]) if next(count) == 2 else Calculator()

    store = ScriptedStore(clock, 6)
    clock.run(make_worker(store, ScriptedPolicy(TOKENIZER, solve), clock, environment=make).run())
    assert sorted(t.status for t in store.committed) == ["failed"] + ["terminated"] * 5


def test_a_task_that_ends_unexpectedly_ends_the_run_with_its_error_and_closes_the_rest():  # faults H3, G5, K8
    clock = ManualClock()
    environments = []

    def make(_clock, _seed):
        environments.append(ScriptedEnvironment([HANG]))
        return environments[-1]

    class BrokenStore(ScriptedStore):
        async def commit(self, trajectory):
            raise ZeroDivisionError("a mistake of ours")

    say = iter(["x", "x", "x" * 40])  # the third is cut at its limit and committed
    store = BrokenStore(clock, 3)
    worker = make_worker(store, ScriptedPolicy(TOKENIZER, lambda _: next(say)), clock, environment=make)
    with pytest.raises(ZeroDivisionError, match="a mistake of ours"):
        asyncio.run(clock.drive(worker.run()))
    assert [environment.num_closed for environment in environments] == [1, 1, 1]
    assert worker.num_in_flight == 0


@pytest.mark.parametrize("what", ["lease", "prompt"])
def test_a_failing_lease_or_prompt_ends_the_run(what):
    clock = ManualClock()
    store = ScriptedStore(clock, 3)
    prompts = PROMPTS
    if what == "lease":

        async def broken(limit):
            raise ZeroDivisionError

        store.lease = broken
    else:
        prompts = CalculatorPrompts(0, num_prompts=1, visits=1)
    worker = make_worker(store, ScriptedPolicy(TOKENIZER, solve), clock, prompts=prompts)
    with pytest.raises((ZeroDivisionError, ValueError)):
        asyncio.run(clock.drive(worker.run()))


def test_a_cancelled_run_closes_everything():
    clock = ManualClock()
    environments = []

    def make(_clock, _seed):
        environments.append(ScriptedEnvironment([HANG]))
        return environments[-1]

    async def run():
        worker = make_worker(ScriptedStore(clock, 5), ScriptedPolicy(TOKENIZER, solve), clock, environment=make)
        task = asyncio.ensure_future(worker.run())
        await clock.advance(1.0)
        assert worker.num_in_flight == 5
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert [environment.num_closed for environment in environments] == [1] * 5


def run_in_segments(boundaries: list[float], num_draws: int = 25):
    """Run, park at each boundary, save, and go on with new objects; returns all commits and parked counts."""
    states: list[EpisodeState] = []
    committed: list[Trajectory] = []
    parked: list[int] = []
    granted, now = 0, 0.0
    for boundary in [*boundaries, None]:
        clock = VirtualClock(0, now)
        store = ScriptedStore(clock, num_draws, granted=granted)
        store.outstanding = len(states)
        engine = ScriptedPolicy(TOKENIZER, solve, clock=clock, tick_s=0.01)

        async def segment(clock, store, engine, boundary, states):
            worker = make_worker(store, engine, clock)
            running = asyncio.ensure_future(worker.run(states))
            if boundary is None:
                await running
                return []
            await clock.sleep_until(boundary)
            parked = await worker.park()
            await running
            return parked

        states = clock.run(segment(clock, store, engine, boundary, states))
        assert [state.lease.attempt for state in states] == sorted(state.lease.attempt for state in states)
        assert len(store.committed) + len(states) == store.granted - granted + (parked[-1] if parked else 0)
        states = msgspec.msgpack.decode(msgspec.msgpack.encode(states), type=list[EpisodeState])
        committed += store.committed
        parked.append(len(states))
        granted, now = store.granted, clock.now()
    return committed, parked


def test_a_parked_worker_loses_and_repeats_nothing():  # faults J1, J2
    committed, parked = run_in_segments([0.3, 0.9, 2.0, 2.0, 4.5])
    assert parked[0] == 8
    assert sorted(t.attempt.draw for t in committed) == list(range(25))
    reference = {t.attempt: t for t in run_in_segments([])[0]}
    for trajectory in committed:
        assert trajectory.token_ids.tolist() == reference[trajectory.attempt].token_ids.tolist()
        assert trajectory.times.tool_wait_s == pytest.approx(reference[trajectory.attempt].times.tool_wait_s)


def test_parking_is_deterministic():
    one, other = run_in_segments([0.3, 0.9, 2.0]), run_in_segments([0.3, 0.9, 2.0])
    assert digest(one[0]) == digest(other[0])
    assert one[1] == other[1]


def test_parking_while_the_store_has_nothing_to_give_loses_no_lease():
    clock = ManualClock()
    store = ScriptedStore(clock, 10, admission=4)

    async def run():
        worker = make_worker(
            store, ScriptedPolicy(TOKENIZER, solve), clock, environment=lambda c, s: ScriptedEnvironment([HANG])
        )
        running = asyncio.ensure_future(worker.run())
        await clock.advance(1.0)
        states = await worker.park()
        await running
        return states

    states = asyncio.run(run())
    assert [state.lease.attempt.draw for state in states] == [0, 1, 2, 3]
    assert store.granted == 4


def test_a_lease_granted_while_parking_becomes_a_fresh_state():
    clock = ManualClock()

    class StubbornStore(ScriptedStore):
        """Grants although it is cancelled, as a store may that has already written the lease down."""

        async def lease(self, limit):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return await super().lease(2)

    async def run():
        worker = make_worker(StubbornStore(clock, 10), ScriptedPolicy(TOKENIZER, solve), clock)
        running = asyncio.ensure_future(worker.run())
        await clock.advance(1.0)
        states = await worker.park()
        await running
        return states

    states = asyncio.run(run())
    assert [(state.lease.attempt.draw, state.phase) for state in states] == [(0, "fresh"), (1, "fresh")]
    assert [state.prompt_id for state in states] == [PROMPTS.at(0).id, PROMPTS.at(1).id]


def test_a_worker_that_does_not_run_has_nothing_to_park():
    clock = ManualClock()
    worker = make_worker(ScriptedStore(clock, 0), ScriptedPolicy(TOKENIZER, solve), clock)
    assert asyncio.run(worker.park()) == []
    asyncio.run(clock.drive(worker.run()))
    assert asyncio.run(worker.park()) == []


def test_an_engine_that_cannot_abort_fails_the_park_and_does_not_hang_it():
    clock = ManualClock()

    class Broken(ScriptedPolicy):
        async def abort(self, session):
            raise ZeroDivisionError

    async def run():
        worker = make_worker(ScriptedStore(clock, 3), Broken(TOKENIZER, solve, clock=clock, tick_s=1.0), clock)
        running = asyncio.ensure_future(worker.run())
        await clock.advance(1.5)
        with pytest.raises(RunError, match="ZeroDivisionError"):
            await worker.park()
        with pytest.raises(ZeroDivisionError):
            await running

    asyncio.run(run())


def test_a_worker_needs_room_for_an_episode():
    with pytest.raises(ValueError, match="max_episodes"):
        make_worker(None, None, None, max_episodes=0)
