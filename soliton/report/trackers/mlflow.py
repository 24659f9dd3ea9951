"""MLflow, at the server or folder that `MLFLOW_TRACKING_URI` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from soliton.report.trackers.tracker import TrackerRun

RUN_ID = "mlflow_run_id"
PARAMS_PER_CALL = 100
"""MLflow takes no more parameters in one call."""


class MlflowTracker:
    """One MLflow run per run, in an experiment with the project's name; a resumed one goes on with it.

    Args:
        run: what to track.
        memory: holds the id that MLflow gave the run.
    """

    def __init__(self, run: TrackerRun, memory: dict[str, str]) -> None:
        self._client = MlflowClient()
        self._began_s = run.began_s
        if RUN_ID not in memory:
            experiment = self._client.get_experiment_by_name(run.project)
            experiment_id = (
                self._client.create_experiment(run.project) if experiment is None else experiment.experiment_id
            )
            made = self._client.create_run(experiment_id, run_name=run.name, tags={"soliton.run_id": run.run_id})
            memory[RUN_ID] = made.info.run_id
            params = [Param(key, str(value)) for key, value in _leaves(run.config, "")]
            for i in range(0, len(params), PARAMS_PER_CALL):
                self._client.log_batch(memory[RUN_ID], params=params[i : i + PARAMS_PER_CALL])
        self._run_id = memory[RUN_ID]

    def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `Tracker`."""
        when_ms = int(1000 * (self._began_s + time_s))
        rows = [Metric(name, value, when_ms, step) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=rows)

    def close(self) -> None:
        """See `Tracker`."""
        self._client.set_terminated(self._run_id)


def _leaves(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
