"""Other places that get a run's metrics: TensorBoard files, W&B, trackio, MLflow; one thin class each.

Each imports its package when it is made and not before. Knows nothing of runs; may raise anything its package raises.
"""

from soliton.report.trackers.tracker import Tracker, TrackerRun, open_tracker

__all__ = ["Tracker", "TrackerRun", "open_tracker"]
