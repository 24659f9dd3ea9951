import asyncio
import logging

import pytest

from soliton.errors import ConfigError, RunError, WorldError
from soliton.reasons import DropReason
from soliton.rollout.world import GRACE_S, Late, Parked, World
from tests.fakes.manual_clock import ManualClock

ENV = DropReason.ENV_ERROR


async def answer(value):
    if isinstance(value, BaseException):
        raise value
    return value


def ask(value, **options):
    clock = ManualClock()
    return asyncio.run(clock.drive(World(clock).ask(lambda: answer(value), ENV, **options)))


def test_an_answer_comes_through():
    assert ask(7) == 7
    assert ask(7, deadline_s=0.0) == 7  # a tie is in time


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), AssertionError("x"), OSError("x"), asyncio.CancelledError()]
)
def test_any_failure_gets_the_reason_of_whoever_was_asked(error):  # faults F10, K4
    with pytest.raises(WorldError) as caught:
        ask(error)
    assert caught.value.reason == ENV


def test_a_world_error_keeps_a_reason_that_the_world_may_give():
    for reason, kept in [("env_timeout", "env_timeout"), ("stale", "env_error"), ("nonsense", "env_error")]:
        with pytest.raises(WorldError) as caught:
            ask(WorldError(reason, "x"))
        assert caught.value.reason == kept


@pytest.mark.parametrize("error", [ConfigError("x"), RunError("x")])
def test_mistakes_of_the_user_and_of_the_run_pass(error):
    with pytest.raises(type(error)):
        ask(error)


def test_a_late_call_is_cancelled_at_its_deadline():
    clock = ManualClock()
    ended = []

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(clock.now())

    with pytest.raises(Late):
        asyncio.run(clock.drive(World(clock).ask(hang, ENV, deadline_s=3.0)))
    assert ended == [3.0]
    assert clock.now() == 3.0


def test_a_call_that_ignores_its_cancellation_is_left_behind_and_reported(caplog):
    clock = ManualClock()

    async def deaf():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR), pytest.raises(Late):
        asyncio.run(clock.drive(World(clock).ask(deaf, ENV, deadline_s=3.0)))
    assert clock.now() == 3.0 + GRACE_S
    assert "ignores its cancellation" in caplog.text


def test_an_interruption_cancels_the_call_and_refuses_later_ones():
    clock = ManualClock()
    world = World(clock)

    async def run():
        asking = asyncio.ensure_future(world.ask(asyncio.Event().wait, ENV))
        await clock.advance(1.0)
        await world.interrupt()
        with pytest.raises(Parked):
            await asking
        with pytest.raises(Parked):
            await world.ask(lambda: answer(1), ENV)

    asyncio.run(run())


def test_an_interruption_before_the_call_has_begun_is_not_lost():
    world = World(ManualClock())
    called = []

    async def run():
        asking = asyncio.ensure_future(world.ask(lambda: answer(called.append(1)), ENV))
        await asyncio.sleep(0)  # the asker has made its task; the task has not run
        await world.interrupt()
        with pytest.raises(Parked):
            await asking

    asyncio.run(run())
    assert not called


def test_an_interruption_with_a_way_to_stop_still_returns_the_answer():
    world = World(ManualClock())
    stopped = asyncio.Event()

    async def run():
        async def until_stopped():
            await stopped.wait()
            return "partial"

        async def stop():
            stopped.set()

        asking = asyncio.ensure_future(world.ask(until_stopped, ENV, stop=stop))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.interrupt()
        return await asking

    assert asyncio.run(run()) == "partial"


def test_cancelling_the_asker_cancels_the_call():
    clock = ManualClock()
    ended = []

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def run():
        asking = asyncio.ensure_future(World(clock).ask(hang, ENV))
        await clock.advance(1.0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(run())
    assert ended == [True]
