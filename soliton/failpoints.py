"""Named places where a test may kill the process as `kill -9` would.

`SOLITON_FAILPOINT=checkpoint.before_rename:2` dies at the second time that place is reached; several places are
separated by commas. Without the variable a failpoint is one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get("SOLITON_FAILPOINT")
    if wanted is None:
        return
    _reached[name] += 1
    if f"{name}:{_reached[name]}" in wanted.split(","):
        os.kill(os.getpid(), signal.SIGKILL)
