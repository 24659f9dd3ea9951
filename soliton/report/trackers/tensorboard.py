"""TensorBoard event files, written by the `tensorboard` package alone (neither TensorFlow nor torch).

The files are made anew each time: they always hold what metrics.jsonl holds, whatever was rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from soliton.report.trackers.tracker import TrackerRun


class TensorBoardTracker:
    """One scalar per metric; the stage's own steps.

    Args:
        run: event files of its folder are replaced.
    """

    def __init__(self, run: TrackerRun) -> None:
        for file in run.folder.glob("events.out.tfevents.*"):
            file.unlink()
        self._began_s = run.began_s
        self._writer = EventFileWriter(str(run.folder), flush_secs=10)

    def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `Tracker`."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(Event(wall_time=self._began_s + time_s, step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """See `Tracker`."""
        self._writer.close()
