"""A full disk makes writers wait."""

import errno

import pytest

from soliton.errors import StorageFullError
from soliton.runtime.clock import VirtualClock
from soliton.runtime.local.disk import when_there_is_space


def test_a_write_waits_until_there_is_space_and_says_so_once():
    clock, tries, alarms = VirtualClock(0), [], []

    def write() -> None:
        tries.append(clock.now())
        if len(tries) < 4:
            raise (
                OSError(errno.ENOSPC, "No space left on device", "/run/x")
                if len(tries) < 3
                else StorageFullError("full")
            )

    clock.run(when_there_is_space(write, what="the checkpoint of step 3", clock=clock, alarm=alarms.append))
    assert tries == [0.0, 1.0, 2.0, 3.0]
    assert alarms == [
        "the disk is full: the checkpoint of step 3 waits until there is space, and goes on by itself "
        "([Errno 28] No space left on device: '/run/x')"
    ]


def test_any_other_error_is_an_error():
    def write() -> None:
        raise OSError(errno.EACCES, "Permission denied")

    clock = VirtualClock(0)
    with pytest.raises(PermissionError):
        clock.run(when_there_is_space(write, what="x", clock=clock, alarm=print))
