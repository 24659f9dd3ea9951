"""No process of an earlier start of a run may still write into its folder when the next one begins (fault K8).

Each role holds a shared lock on `roles.lock` for as long as it lives, however it ends; a controller begins once nobody
holds it. Roles end with their controller, so that takes moments, unless one is suspended.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from soliton.errors import RunError
from soliton.types import Clock

LOCK = "roles.lock"
"""In the run folder."""
PATIENCE_S = 10.0
LOOK_EVERY_S = 0.05


@contextmanager
def alive(run_dir: Path) -> Iterator[None]:
    """Show that a role of this run lives; for the whole life of its process."""
    with (run_dir / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


async def nobody_left(run_dir: Path, clock: Clock) -> None:
    """Wait until no role of an earlier start is alive.

    Raises:
        RunError: one still is after some seconds.
    """
    deadline_s = clock.now() + PATIENCE_S
    with (run_dir / LOCK).open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if clock.now() >= deadline_s:
                    raise RunError(
                        f"a process of an earlier start of {run_dir} is still alive after {PATIENCE_S:.0f} s and would "
                        f"write into it; end it (`fuser -v {run_dir / LOCK}` names it), then resume"
                    ) from None
                await clock.sleep_until(clock.now() + LOOK_EVERY_S)
            else:
                return
