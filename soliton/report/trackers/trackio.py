"""trackio: a local dashboard, or one in a Hugging Face Space (`TRACKIO_SPACE_ID`)."""

from __future__ import annotations

from collections.abc import Mapping

import trackio

from soliton.report.trackers.tracker import TrackerRun


class TrackioTracker:
    """One trackio run per run; a resumed one goes on with it.

    Args:
        run: its name gets the start of its id: trackio finds a run to go on with by name.
    """

    def __init__(self, run: TrackerRun) -> None:
        self._run = trackio.init(
            project=run.project,
            name=f"{run.name}-{run.run_id[:6]}",
            config=dict(run.config),
            resume="allow",
        )

    def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `Tracker`."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """See `Tracker`."""
        self._run.finish()
