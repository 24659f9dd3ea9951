"""A child's end of the line to its controller: events out, commands in, and a life that ends with the controller's.

Standard output carries events, standard input commands, one per line. What code of the environment prints goes to
standard error, which is the role's log. End of input means that the controller is gone: the process and everything
that it started die at once (no orphans).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from soliton.runtime.local.events import (
    STOP,
    Alarm,
    Event,
    Note,
    Result,
    Stage,
    Update,
    absent_as_none,
    encode,
)


class StopWanted(Exception):  # noqa: N818  (a wish, not an error)
    """The controller asked this process to stop, between two steps of a stage that keeps no checkpoint."""


class Channel:
    """Open it once, at the start of the process."""

    def __init__(self) -> None:
        self._events = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._arrived = threading.Condition()
        self._commands: list[str] = []
        self._stop = threading.Event()
        self._on_stop: Callable[[], object] = lambda: None
        threading.Thread(target=self._listen, name="commands", daemon=True).start()

    def send(self, event: Event) -> None:
        """Tell the controller."""
        with self._lock:
            data = encode(event)
            while data:
                data = data[os.write(self._events, data) :]

    def stop_wanted(self) -> bool:
        """Whether the controller asked this process to finish its step and stop."""
        return self._stop.is_set()

    def on_stop(self, call: Callable[[], object]) -> None:
        """Call this, from another thread, when the controller asks to stop; at once if it has asked already."""
        self._on_stop = call
        if self._stop.is_set():
            call()

    def next_command(self) -> str:
        """Wait for the next command other than `stop`; blocks the calling thread."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._commands))
            return self._commands.pop(0)

    def _listen(self) -> None:
        # Not through sys.stdin: a thread that waits inside it when the interpreter ends crashes the process.
        rest = b""
        while data := os.read(0, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._obey(line.decode().strip())
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def _obey(self, command: str) -> None:
        if command == STOP:
            self._stop.set()
            self._on_stop()
        else:
            with self._arrived:
                self._commands.append(command)
                self._arrived.notify()


class ChannelView:
    """`soliton.report.view.RunView` that shows at the controller.

    A stage keeps no checkpoint of its own unless it is named in `resumable`: a wish to stop ends it at its next update.
    """

    def __init__(self, channel: Channel, resumable: tuple[str, ...]) -> None:
        self._channel = channel
        self._resumable = resumable
        self._stage = ""

    def stage(self, name: str, total: int | None) -> None:
        """See `RunView`."""
        self._stage = name
        self._channel.send(Stage(name, total))

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """See `RunView`.

        Raises:
            StopWanted: the controller wants this process to stop.
        """
        self._channel.send(Update(step, absent_as_none(metrics)))
        if self._stage not in self._resumable and self._channel.stop_wanted():
            raise StopWanted

    def note(self, text: str) -> None:
        """See `RunView`."""
        self._channel.send(Note(text))

    def alarm(self, text: str) -> None:
        """See `RunView`."""
        self._channel.send(Alarm(text))

    def finish(self, text: str) -> None:
        """See `RunView`."""
        self._channel.send(Result(text))
