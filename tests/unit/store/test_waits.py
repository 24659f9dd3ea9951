import pytest

from soliton.store.waits import WaitTime


class HandClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    async def sleep_until(self, when: float) -> None:
        self.time_s = max(self.time_s, when)


def test_overlapping_waits_count_once_and_a_running_one_counts_already():
    clock = HandClock()
    wait = WaitTime(clock, total_s=100.0)
    with wait:
        clock.time_s = 2
        with wait:
            clock.time_s = 5
            assert wait.running
            assert wait.total_s == 105
            assert wait.for_s == 5
        clock.time_s = 6
    assert not wait.running
    clock.time_s = 50
    assert wait.total_s == 106
    assert wait.for_s == 0
    with wait:
        clock.time_s = 51
    assert wait.total_s == 107


def test_a_wait_that_fails_is_over():
    clock = HandClock()
    wait = WaitTime(clock)

    def fail_inside() -> None:
        with wait:
            clock.time_s = 3
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail_inside()
    assert not wait.running
    assert wait.total_s == 3
