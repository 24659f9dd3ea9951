"""The tracker protocol, what a tracker is told of its run, and how one is made by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class TrackerRun:
    """What a tracker is told when it opens.

    Attributes:
        project: of the user's recipe.
        name: of the run, for people.
        run_id: the same for a run and each of its resumes, and for no other run.
        config: the resolved configuration.
        folder: where files of the tracker go.
        began_s: when the run began, seconds since the epoch, so that rows of a resumed run keep their times.
    """

    project: str
    name: str
    run_id: str
    config: Mapping[str, Any]
    folder: Path
    began_s: float


class Tracker(Protocol):
    """Takes rows, in the order of their steps within a stage."""

    def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
        """One row: finite values by metric name, `time_s` after the run began."""
        ...

    def close(self) -> None:
        """No more rows."""
        ...


def open_tracker(name: str, run: TrackerRun, memory: dict[str, str]) -> Tracker:
    """A tracker by name.

    Args:
        name: tensorboard, wandb, trackio or mlflow.
        run: what it tracks.
        memory: what it noted when it was opened for this run before; it may add to it.

    Raises:
        Exception: whatever the package raises; ImportError if it is not installed.
    """
    return _OPENERS[name](run, memory)


def _tensorboard(run: TrackerRun, _: dict[str, str]) -> Tracker:
    from soliton.report.trackers.tensorboard import TensorBoardTracker

    return TensorBoardTracker(run)


def _wandb(run: TrackerRun, _: dict[str, str]) -> Tracker:
    from soliton.report.trackers.wandb import WandbTracker

    return WandbTracker(run)


def _trackio(run: TrackerRun, _: dict[str, str]) -> Tracker:
    from soliton.report.trackers.trackio import TrackioTracker

    return TrackioTracker(run)


def _mlflow(run: TrackerRun, memory: dict[str, str]) -> Tracker:
    from soliton.report.trackers.mlflow import MlflowTracker

    return MlflowTracker(run, memory)


_OPENERS: dict[str, Callable[[TrackerRun, dict[str, str]], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}
