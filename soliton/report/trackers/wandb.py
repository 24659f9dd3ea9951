"""Weights & Biases. `WANDB_MODE=offline` keeps everything on this machine."""

from __future__ import annotations

from collections.abc import Mapping

import wandb

from soliton.report.trackers.tracker import TrackerRun


class WandbTracker:
    """One W&B run per run; a resumed one goes on with it. Each metric is drawn over the steps of its own stage.

    Args:
        run: its id is the W&B run's.
    """

    def __init__(self, run: TrackerRun) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.run_id,
            resume="allow",
            config=dict(run.config),
            dir=str(run.folder),
        )
        self._defined: set[str] = set()

    def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
        """See `Tracker`. W&B's own step only counts rows: stages begin again at 1, and its step must not go back."""
        axis = f"{stage}/step"
        for name in metrics.keys() - self._defined:
            self._run.define_metric(name, step_metric=axis)
        self._defined |= metrics.keys()
        self._run.log({**metrics, axis: step, "time/elapsed_s": time_s})

    def close(self) -> None:
        """See `Tracker`."""
        self._run.finish()
