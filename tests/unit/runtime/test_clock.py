import asyncio

import pytest

from soliton.errors import RunError
from soliton.runtime import clock as clock_module
from soliton.runtime.clock import RealClock, VirtualClock


def wake_order(seed: int) -> list[int]:
    clock = VirtualClock(seed)
    order: list[int] = []

    async def sleeper(i: int) -> None:
        await clock.sleep_until(1.0)
        order.append(i)

    async def main() -> None:
        await asyncio.gather(*(sleeper(i) for i in range(20)))

    clock.run(main())
    return order


def test_virtual_time_passes_only_when_everybody_waits_and_costs_nothing():
    clock = VirtualClock(0)
    seen = []

    async def main() -> None:
        for when in (1e6, 2e6, 2e6, 1e6):
            await clock.sleep_until(when)
            seen.append(clock.now())

    clock.run(main())
    assert seen == [1e6, 2e6, 2e6, 2e6]


def test_the_order_of_simultaneous_wakes_is_a_function_of_the_seed():
    assert wake_order(1) == wake_order(1)
    assert sorted(wake_order(1)) == list(range(20))
    assert wake_order(1) != wake_order(2)
    assert wake_order(1) != list(range(20))


def test_earlier_sleepers_wake_first_whatever_the_seed():
    clock = VirtualClock(3, start=5.0)
    order = []

    async def sleeper(when: float) -> None:
        await clock.sleep_until(when)
        order.append((when, clock.now()))

    async def main() -> None:
        await asyncio.gather(*(sleeper(w) for w in (7.0, 6.0, 6.5, 5.0)))

    clock.run(main())
    assert order == [(5.0, 5.0), (6.0, 6.0), (6.5, 6.5), (7.0, 7.0)]


def test_asyncio_timeouts_are_virtual_too():
    clock = VirtualClock(0)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await clock.sleep_until(7200)

    clock.run(main())
    assert clock.now() == 3600


def test_a_deadlock_is_an_error_and_not_a_hang(monkeypatch):
    monkeypatch.setattr(clock_module, "STUCK_AFTER_S", 0.05)
    clock = VirtualClock(0)

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RunError, match="nobody can move"):
        clock.run(main())


def test_real_time_passes_by_itself():
    clock = RealClock()

    async def main() -> None:
        await clock.sleep_until(0.02)

    asyncio.run(main())
    assert clock.now() >= 0.02
