"""Places where a test kills a process."""

import os
import signal
import subprocess
import sys

import pytest

SCRIPT = "from soliton.failpoints import failpoint\nfor i in range(3): failpoint('a'); print('a', i); failpoint('b')"


@pytest.mark.parametrize(
    ("wanted", "lines", "dies"),
    [(None, 3, False), ("c:1", 3, False), ("a:2", 1, True), ("b:1", 1, True), ("a:9,b:3", 3, True)],
)
def test_a_process_dies_where_and_when_it_is_told_to(wanted, lines, dies):
    environment = {name: value for name, value in os.environ.items() if name != "SOLITON_FAILPOINT"}
    if wanted is not None:
        environment["SOLITON_FAILPOINT"] = wanted
    done = subprocess.run([sys.executable, "-uc", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == lines
    assert done.returncode == (-signal.SIGKILL if dies else 0)
