"""Waiting for space on a full disk, instead of losing work."""

from __future__ import annotations

import errno
from collections.abc import Callable

from soliton.errors import StorageFullError
from soliton.types import Clock

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says then."""
RETRY_S = 1.0
"""Between two tries."""


async def when_there_is_space(
    write: Callable[[], object], *, what: str, clock: Clock, alarm: Callable[[str], None]
) -> None:
    """Call `write`, again and again while the disk is full.

    Args:
        write: leaves nothing behind when it fails.
        what: for the message.
        clock: of the run.
        alarm: told once.
    """
    told = False
    while True:
        try:
            write()
        except (OSError, StorageFullError) as error:
            if isinstance(error, OSError) and error.errno not in FULL:
                raise
            if not told:
                alarm(f"the disk is full: {what} waits until there is space, and goes on by itself ({error})")
            told = True
            await clock.sleep_until(clock.now() + RETRY_S)
        else:
            return
