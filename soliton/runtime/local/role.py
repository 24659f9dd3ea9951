"""What every role does, forked or as `python -m soliton.runtime.local.role NAME RUN_DIR`, until its exit code.

Exit codes: 0 it is done, or was asked to stop; 3 the run cannot go on (the controller was told why); 70 a mistake of
ours, with the traceback in the log and at the controller. SIGUSR1 writes all stacks to the log.
"""

from __future__ import annotations

import errno
import faulthandler
import importlib
import logging
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from soliton.errors import ConfigError, RunError
from soliton.runtime.local.channel import Channel, StopWanted
from soliton.runtime.local.events import Alarm, Crash, Fatal, Stopped
from soliton.runtime.local.leftovers import alive

EXIT_FATAL = 3
EXIT_CRASH = 70
MODULES = {kind: f"soliton.runtime.local.{kind}" for kind in ("learner", "worker", "evaluator")}
"""Kind of role -> the module whose `run(name, run_dir, channel)` it is."""


class _FullDiskToController(logging.Handler):
    """Says at the controller that this role waits for space: on a full disk its own log may stay empty."""

    def __init__(self, name: str, channel: Channel) -> None:
        super().__init__(logging.WARNING)
        self._name = name
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Pass it on."""
        message = record.getMessage()
        if "no space left" in message:
            self._channel.send(Alarm(f"the disk is full: {self._name} waits until there is space ({message})"))


def main(name: str, run_dir: Path) -> int:
    """Run the role `name` ("learner", "worker-<i>", "evaluator") of the run in `run_dir`; returns the exit code."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    channel = Channel()
    logging.getLogger("soliton.store.connection").addHandler(_FullDiskToController(name, channel))
    try:
        with alive(run_dir):
            _run(name, run_dir, channel)
    except StopWanted:
        channel.send(Stopped())
    except (RunError, ConfigError) as error:
        logging.getLogger(__name__).exception("%s cannot go on", name)
        channel.send(Fatal(str(error), is_config=isinstance(error, ConfigError)))
        return EXIT_FATAL
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            channel.send(Fatal(f"no space left: {error}; free some and go on with --resume", is_config=False))
            return EXIT_FATAL
        text = traceback.format_exc()
        with suppress(OSError):  # the log may be on a full disk
            sys.stderr.write(text)
        channel.send(Crash(text))
        return EXIT_CRASH
    return 0


def _run(name: str, run_dir: Path, channel: Channel) -> None:
    kind = name.partition("-")[0]
    if kind not in MODULES:
        raise ConfigError(f"no role is called {name!r}; there are learner, worker-0, worker-1, ... and evaluator")
    import torch
    from transformers.utils.logging import disable_progress_bar

    torch.set_num_threads(1)  # several threads on tiny operations are slower, and one makes results reproducible
    disable_progress_bar()  # the log is no terminal
    importlib.import_module(MODULES[kind]).run(name, run_dir, channel)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
