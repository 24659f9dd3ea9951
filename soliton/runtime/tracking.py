"""Feeds trackers from metrics.jsonl, whoever wrote its lines, in a thread of their own.

    feed   waits for: a poke (a line was written)   unblocked by the run, which never waits for a tracker

Owns `logs/tracking.json`: what each tracker has got. Guarantees: a tracker gets every row once, also across a resume
(a kill between a row and its note may repeat that row); a step that was rolled back and made again is not sent twice,
except to TensorBoard, whose files are made anew; a tracker that fails is an alarm and gets nothing more.
"""

from __future__ import annotations

import json
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from soliton.atomic import atomic_file
from soliton.config import RunConfig
from soliton.report.folder import NOT_METRICS
from soliton.report.trackers import Tracker, TrackerRun, open_tracker
from soliton.runtime.clock import date_s
from soliton.runtime.run_folder import RunFolder

CLOSE_WITHIN_S = 60.0
"""How long the end of a run waits for slow trackers."""
ALWAYS = "tensorboard"
Open = Callable[[str, TrackerRun, dict[str, str]], Tracker]


class Tracked(msgspec.Struct):
    """`logs/tracking.json`.

    Attributes:
        run_id: of this run, for trackers.
        sent: tracker -> stage -> last step that it got.
        memory: tracker -> what it noted.
    """

    run_id: str
    sent: dict[str, dict[str, int]] = {}
    memory: dict[str, dict[str, str]] = {}


@contextmanager
def tracked(
    config: RunConfig, folder: RunFolder, alarm: Callable[[str], None], elapsed_s: Callable[[], float]
) -> Iterator[None]:
    """While the block runs, every row of metrics goes to TensorBoard files and the trackers of the recipe."""
    state = read_tracked(folder.tracking)
    run = TrackerRun(
        project=config.track.project,
        name=config.track.name or folder.path.resolve().name,
        run_id=state.run_id,
        config=config.model_dump(mode="json", exclude_none=True),
        folder=folder.logs,
        began_s=date_s() - elapsed_s(),
    )
    feed = Feed(folder.metrics, folder.tracking, (ALWAYS, *config.track.trackers), run, state, alarm)
    folder.on_row = feed.poke
    try:
        yield
    finally:
        folder.on_row = lambda: None
        feed.close()


def read_tracked(path: Path) -> Tracked:
    """What was sent so far; nothing for a new run, or if the note cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Tracked)
    except (FileNotFoundError, msgspec.MsgspecError):
        return Tracked(uuid.uuid4().hex)


def has_unsent_rows(config: RunConfig, folder: RunFolder) -> bool:
    """Whether rows were written after the trackers were closed."""
    sent = read_tracked(folder.tracking).sent
    names = (ALWAYS, *config.track.trackers)
    return any(
        row["step"] > sent.get(name, {}).get(row["stage"], -1) for row in folder.read_all_metrics() for name in names
    )


class Feed:
    """Reads rows as they are written and hands them on.

    Args:
        metrics: the file of rows.
        note: where to keep what was sent.
        names: the trackers.
        run: what they track.
        state: what was sent before.
        alarm: told of a tracker that fails, in the thread that pokes or closes.
        opener: makes a tracker.
    """

    def __init__(
        self,
        metrics: Path,
        note: Path,
        names: Sequence[str],
        run: TrackerRun,
        state: Tracked,
        alarm: Callable[[str], None],
        opener: Open = open_tracker,
    ) -> None:
        self._metrics = metrics
        self._note = note
        self._names = list(names)
        self._run = run
        self._state = state
        self._state.sent.pop(ALWAYS, None)  # its files are made anew
        self._alarm = alarm
        self._open = opener
        self._trackers: dict[str, Tracker] = {}
        self._is_open = False
        self._file: tuple[int, int] = (0, 0)
        self._failed: list[str] = []
        self._poked = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="trackers", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """There is a new row."""
        self._say()
        self._poked.set()

    def close(self) -> None:
        """Send what is left; gives slow trackers `CLOSE_WITHIN_S`."""
        self._closing = True
        self._poked.set()
        self._thread.join(CLOSE_WITHIN_S)
        if self._thread.is_alive():
            self._failed.append(f"trackers were not done after {CLOSE_WITHIN_S:g} s; the run does not wait for them")
        self._say()

    def _say(self) -> None:
        while self._failed:
            self._alarm(self._failed.pop(0))

    def _work(self) -> None:
        while True:
            self._poked.wait()
            self._poked.clear()
            closing = self._closing
            rows = self._new_rows()
            if rows:
                self._send(rows)
            if closing:
                for name in list(self._trackers):
                    self._try(name, lambda tracker: tracker.close())
                return

    def _send(self, rows: list[dict[str, Any]]) -> None:
        if not self._is_open:
            self._is_open = True
            for name in self._names:
                self._open_one(name)
        for name in list(self._trackers):
            sent = self._state.sent.setdefault(name, {})
            for row in rows:
                if name in self._trackers and row["step"] > sent.get(row["stage"], -1):
                    self._try(name, partial(_log, row))
                    sent[row["stage"]] = row["step"]
        try:
            with atomic_file(self._note) as file:
                file.write_bytes(msgspec.json.encode(self._state))
        except OSError as error:
            self._failed.append(f"what the trackers got could not be noted: {error}")

    def _open_one(self, name: str) -> None:
        run = replace(self._run, folder=self._run.folder / name)
        try:
            self._trackers[name] = self._open(name, run, self._state.memory.setdefault(name, {}))
        except Exception as error:
            self._fail(name, error)

    def _try(self, name: str, call: Callable[[Tracker], None]) -> None:
        try:
            call(self._trackers[name])
        except Exception as error:
            del self._trackers[name]
            self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            cause = f"its package is not installed ({error}); pip install 'soliton[{name}]'"
        self._failed.append(f"tracker {name} gets nothing more in this run: {cause}")

    def _new_rows(self) -> list[dict[str, Any]]:
        """Whole lines that were not read yet; all of them if the file was replaced (a stage began again)."""
        try:
            with self._metrics.open("rb") as file:
                inode, offset = self._file
                now = os.fstat(file.fileno())
                if now.st_ino != inode or now.st_size < offset:
                    inode, offset = now.st_ino, 0
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._file = (inode, offset + len(whole))
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _log(row: dict[str, Any], tracker: Tracker) -> None:
    metrics = {
        name: float(value)
        for name, value in row.items()
        if name not in NOT_METRICS and isinstance(value, int | float) and math.isfinite(value)
    }
    tracker.log(row["stage"], row["step"], row["time_s"], metrics)
