"""An episode parked at any moment, saved, and gone on with elsewhere ends as if nothing had happened."""

import asyncio

import msgspec
import numpy as np
import pytest

from soliton.envs.environment import Message, StepResult
from soliton.envs.latency import LatencyConfig
from soliton.errors import RunError
from soliton.prompts.stream import make_prompt
from soliton.reasons import DropReason, Status, TruncationReason
from soliton.rollout.episode import EpisodeState, Parked
from soliton.types import AttemptId, Lease, Role, Trajectory
from tests.fakes.manual_clock import ManualClock
from tests.fakes.scripted_environment import GO_ON, HANG, WON, ScriptedEnvironment
from tests.fakes.scripted_policy import ScriptedPolicy, solve
from tests.unit.rollout.kit import TOKENIZER, calculator_with, make_episode

LATENCY = LatencyConfig(kind="heavy_tailed", low_s=0.5, high_s=8.0)
MAKE = calculator_with(LATENCY)


def saved_and_read(state: EpisodeState) -> EpisodeState:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=EpisodeState)


async def park_at(clock, episode, when: float) -> EpisodeState | Trajectory:
    task = asyncio.ensure_future(episode.run())
    await clock.advance(when)
    state = await clock.drive(episode.park())
    if state is None:
        return await task
    with pytest.raises(Parked):
        await task
    return state


def run_with_parks(when: list[float], *, environment=MAKE, say=solve, tick_s=0.25, **limits) -> Trajectory:
    """Park at each of these times, and go on in a new process: new episode, engine, environment, clock."""
    state: EpisodeState | None = None
    now = 0.0
    for park_s in when:
        clock = ManualClock(start=now)
        engine = ScriptedPolicy(TOKENIZER, say, clock=clock, tick_s=tick_s)
        episode = make_episode(clock, engine, environment=environment, state=state, **limits)
        result = asyncio.run(park_at(clock, episode, park_s))
        if isinstance(result, Trajectory):
            return result
        state, now = saved_and_read(result), clock.now()
        assert now == park_s  # parking takes no time
    clock = ManualClock(start=now)
    engine = ScriptedPolicy(TOKENIZER, say, clock=clock, tick_s=tick_s)
    return asyncio.run(clock.drive(make_episode(clock, engine, environment=environment, state=state, **limits).run()))


def assert_equal(one: Trajectory, other: Trajectory) -> None:
    for name in Trajectory.__struct_fields__:
        if name == "times":
            for time in ("issued_s", "started_s", "tool_wait_s"):
                assert getattr(one.times, time) == pytest.approx(getattr(other.times, time))
        else:
            np.testing.assert_equal(getattr(one, name), getattr(other, name), err_msg=name)


UNPARKED = run_with_parks([])
LAST_S = UNPARKED.times.finished_s


@pytest.mark.parametrize("park_s", np.linspace(0.0, LAST_S - 0.01, 23).tolist())
def test_parking_at_any_moment_changes_no_token_no_reward_and_no_tool_wait(park_s):
    assert_equal(run_with_parks([park_s]), UNPARKED)


def test_an_episode_can_be_parked_again_and_again():
    times = np.linspace(0.1, LAST_S - 0.01, 17).tolist()
    assert_equal(run_with_parks(times), UNPARKED)


def test_parking_twice_at_the_same_moment_loses_nothing():
    assert_equal(run_with_parks([LAST_S / 2] * 3), UNPARKED)


def test_a_pending_tool_call_waits_only_for_its_remainder():
    fixed = calculator_with(LatencyConfig(kind="fixed", low_s=10.0))
    say = lambda _: "=48"  # noqa: E731
    whole = run_with_parks([], environment=fixed, say=say, tick_s=0.0)
    parked = run_with_parks([3.0, 7.5, 9.0], environment=fixed, say=say, tick_s=0.0)
    assert whole.times.finished_s == parked.times.finished_s == 10.0
    assert parked.times.tool_wait_s == 10.0


def test_a_rebuilt_environment_sees_the_times_of_its_first_life():
    lives = []

    def make(clock, _seed):
        lives.append(ScriptedEnvironment([GO_ON, GO_ON, GO_ON, WON], clock=clock, wait_s=2.0))
        return lives[-1]

    run_with_parks([9.5], environment=make, say=lambda _: "x", tick_s=0.5)
    assert lives[0].step_times == [1.0, 4.0, 7.0]
    assert lives[1].step_times == [1.0, 4.0, 7.0, 10.0]


def test_a_partial_action_is_kept_and_continued():
    clock = ManualClock()
    engine = ScriptedPolicy(TOKENIZER, solve, clock=clock, tick_s=1.0)
    state = asyncio.run(park_at(clock, make_episode(clock, engine), 3.5))
    assert state.phase == "generating"
    assert TOKENIZER.decode(state.token_ids[state.action_start :]) == "78-"
    assert engine.aborted == ["d5s0a1"]

    again = ScriptedPolicy(TOKENIZER, solve, clock=clock, tick_s=1.0)
    again.version = 4
    trajectory = asyncio.run(clock.drive(make_episode(clock, again, state=saved_and_read(state)).run()))
    (first, *_) = again.requests
    assert len(first.token_ids) - first.action_start == 3
    assert trajectory.versions[trajectory.action_mask].tolist()[:6] == [0, 0, 0, 4, 4, 4]
    assert trajectory.total_reward == 1.0


def test_the_limit_of_a_turn_counts_the_tokens_before_the_park():
    whole = run_with_parks([], say=lambda _: "0123456789", max_turn_tokens=5)
    parked = run_with_parks([0.5, 1.0], say=lambda _: "0123456789", max_turn_tokens=5)
    assert_equal(whole, parked)
    assert parked.num_action_tokens == 5


def test_a_fresh_episode_is_parked_fresh():
    clock = ManualClock()
    episode = make_episode(
        clock, ScriptedPolicy(TOKENIZER, solve), environment=ScriptedEnvironment([WON], opening=HANG)
    )
    state = asyncio.run(park_at(clock, episode, 2.0))
    assert (state.phase, state.token_ids, state.started_s) == ("fresh", [], 0.0)


@pytest.mark.parametrize("park_s", [0.0, 2.0, 100.0])
def test_a_parked_environment_is_closed_once(park_s):  # fault F8
    clock = ManualClock()
    environment = ScriptedEnvironment([HANG])
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, solve, clock=clock, tick_s=1.0), environment=environment)
    asyncio.run(park_at(clock, episode, park_s))
    assert environment.num_closed == 1


def test_an_episode_that_ends_while_it_is_parked_gives_its_trajectory():
    clock = ManualClock()
    environment = ScriptedEnvironment([WON], closing=None, clock=clock, wait_s=1.0)
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, solve), environment=environment)
    assert isinstance(asyncio.run(park_at(clock, episode, 1.0)), Trajectory)


def test_the_time_limit_runs_from_the_first_start():
    trajectory = run_with_parks([2.0], environment=ScriptedEnvironment([HANG]), tick_s=0.0, time_limit_s=3.0)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TIME_LIMIT)
    assert trajectory.times.finished_s == 3.0


def test_the_timeout_of_a_pending_step_runs_from_its_beginning():
    trajectory = run_with_parks([2.0], environment=ScriptedEnvironment([HANG]), tick_s=0.0, step_timeout_s=3.0)
    assert (trajectory.status, trajectory.reason) == (Status.FAILED, DropReason.ENV_TIMEOUT)
    assert trajectory.times.finished_s == 3.0


def parked_after_two_turns() -> EpisodeState:
    clock = ManualClock()
    environment = ScriptedEnvironment([GO_ON, GO_ON, HANG])
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, lambda _: "x"), environment=environment)
    return asyncio.run(park_at(clock, episode, 1.0))


@pytest.mark.parametrize(
    ("steps", "opening", "named"),
    [
        ([GO_ON, StepResult(messages=(Message("tool", "no"),))], None, r"turn 1: .*content='ok'.*content='no'"),
        ([StepResult(messages=GO_ON.messages, reward=0.5)], None, r"turn 0: .*reward=0\.0.*reward=0\.5"),
        ([StepResult(messages=GO_ON.messages, terminated=True)], None, "turn 0: .*terminated=False.*terminated=True"),
        ([GO_ON], (Message("user", "other"),), "opening: .*content='go'.*content='other'"),
    ],
)
def test_a_rebuilt_environment_that_differs_ends_the_run_and_says_where(steps, opening, named):
    state = parked_after_two_turns()
    assert [turn.action for turn in state.turns] == ["x", "x"]
    environment = ScriptedEnvironment(steps, **({"opening": opening} if opening else {}))
    clock = ManualClock(start=1.0)
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, lambda _: "x"), environment=environment, state=state)
    with pytest.raises(RunError, match=f"(?s)d5s0a1, {named}"):
        asyncio.run(clock.drive(episode.run()))
    assert environment.num_closed == 1


def test_a_rebuild_that_fails_is_a_failure_of_the_world():
    environment = ScriptedEnvironment([RuntimeError("no sandbox")])
    clock = ManualClock(start=1.0)
    engine = ScriptedPolicy(TOKENIZER, lambda _: "x")
    episode = make_episode(clock, engine, environment=environment, state=parked_after_two_turns())
    trajectory = asyncio.run(clock.drive(episode.run()))
    assert (trajectory.status, trajectory.reason) == (Status.FAILED, DropReason.ENV_ERROR)


def test_a_park_while_the_environment_is_rebuilt_keeps_the_state():
    state = parked_after_two_turns()
    clock = ManualClock(start=1.0)
    environment = ScriptedEnvironment([GO_ON, HANG])
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, lambda _: "x"), environment=environment, state=state)
    before = msgspec.msgpack.encode(state)
    again = asyncio.run(park_at(clock, episode, 1.0))
    assert msgspec.msgpack.encode(again) == before


def test_a_state_of_another_attempt_or_prompt_is_refused():
    state = parked_after_two_turns()
    engine = ScriptedPolicy(TOKENIZER, solve)
    other = Lease(attempt=AttemptId(6), issued_s=0.0, version=0)
    with pytest.raises(RunError, match=r"d6s0a0.*d5s0a1"):
        make_episode(ManualClock(), engine, state=state, lease=other)
    with pytest.raises(RunError, match="prompt stream has changed"):
        make_episode(ManualClock(), engine, state=state, prompt=make_prompt({"expression": "1+1", "answer": 2}))


def test_every_sampled_token_is_trained_once_however_often_it_was_parked():  # fault D5
    trajectory = run_with_parks(np.arange(0.1, LAST_S, 0.6).tolist())
    assert (trajectory.roles == Role.ACTION).sum() == UNPARKED.num_action_tokens
