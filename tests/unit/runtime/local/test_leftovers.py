"""Processes of an earlier start."""

import asyncio
from pathlib import Path

import pytest

from soliton.errors import RunError
from soliton.runtime.clock import VirtualClock
from soliton.runtime.local.leftovers import PATIENCE_S, alive, nobody_left


def test_a_controller_waits_for_the_last_process_of_the_start_before(tmp_path: Path):  # fault K8
    clock = VirtualClock(0)

    async def main() -> float:
        with alive(tmp_path), alive(tmp_path):
            waiting = asyncio.create_task(nobody_left(tmp_path, clock))
            await clock.sleep_until(3.0)
            assert not waiting.done()
        await waiting
        return clock.now()

    assert 3.0 <= clock.run(main()) < 4.0


def test_one_that_does_not_end_is_an_error_that_says_how_to_find_it(tmp_path: Path):  # fault K8
    clock = VirtualClock(0)
    with alive(tmp_path), pytest.raises(RunError, match=r"still alive after 10 s .*fuser -v .*roles\.lock"):
        clock.run(nobody_left(tmp_path, clock))
    assert PATIENCE_S <= clock.now() < PATIENCE_S + 1


def test_nobody_there_is_no_wait(tmp_path: Path):
    clock = VirtualClock(0)
    clock.run(nobody_left(tmp_path, clock))
    with alive(tmp_path):  # and it holds nothing afterwards
        assert clock.now() == 0
