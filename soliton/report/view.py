"""The view protocol, and the one record of progress that every view draws from.

A view is told what happens and never asked anything: it cannot change a run. Views keep no thread and no clock of
their own; the time source is a callable that the caller gives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

Now = Callable[[], float]
"""Seconds of real time, never going back. Only differences are used."""

HISTORY = 512
"""Points of a curve that are kept; the views draw fewer than that."""
PACE_WINDOW = 64
"""Steps that the time left is estimated from: the last ones, because steps get slower as trajectories get longer."""

SHOWN_METRICS = {
    "reward": ("reward/mean",),
    "staleness": ("staleness/mean",),
    "trust-mask share": ("trust_mask/share",),
    "EV": ("critic/explained_var", "value_pretraining/explained_var"),
    "entropy": ("actor/entropy",),
    "pass@1": ("eval/pass_at_1",),
    "loss": ("sft/loss", "value_pretraining/loss"),
}
"""Label -> metric names (`soliton.metrics`); the first one that has been reported in the current stage is shown."""


WAITS = {
    "learner": ("wait/batch_s", "wait/hold_s"),
    "rollouts": ("wait/admission_s",),
}
"""Who waits -> counters of the clock's seconds in which it did."""
WAIT_WINDOW = 16
"""Steps over which waiting is looked at."""


class RunView(Protocol):
    """What a run tells its spectator."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins (and the one before it is over); `total` steps, None if nobody knows."""
        ...

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """`step` steps of the stage are done; `metrics` by their names in `soliton.metrics`, any subset."""
        ...

    def note(self, text: str) -> None:
        """Something worth reading once."""
        ...

    def alarm(self, text: str) -> None:
        """Something is wrong, and the run goes on."""
        ...

    def finish(self, text: str) -> None:
        """The run is over; `text` is its result. Later calls do nothing."""
        ...


@dataclass
class StageProgress:
    """One stage as a spectator saw it.

    Attributes:
        name: as announced.
        total: steps it will take; None if unknown.
        started_s, ended_s: real time; `ended_s` is None while it runs.
        step: steps done.
        metrics: newest value of each metric.
        history: finite values of each metric, oldest first, the last `HISTORY` of them.
        pace: (time, step) of the latest updates.
    """

    name: str
    total: int | None
    started_s: float
    ended_s: float | None = None
    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    history: dict[str, deque[float]] = field(default_factory=dict)
    pace: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=PACE_WINDOW))

    def update(self, step: int, metrics: dict[str, float], now_s: float) -> None:
        """Take a report."""
        self.step = step
        self.pace.append((now_s, step))
        self.metrics.update(metrics)
        for name, value in metrics.items():
            if math.isfinite(value):
                self.history.setdefault(name, deque(maxlen=HISTORY)).append(value)

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since it began, until it ended."""
        return (now_s if self.ended_s is None else self.ended_s) - self.started_s

    def time_left_s(self, now_s: float) -> float | None:
        """Seconds until it ends at the pace of its latest steps; None while nothing can be said.

        A single report says nothing: the time before it is that of the stage's preparations, too.
        """
        if self.total is None or len(self.pace) < 2 or self.ended_s is not None:
            return None
        since_s, since_step = self.pace[0]
        steps = self.step - since_step
        if steps <= 0:
            return None
        per_step_s = (self.pace[-1][0] - since_s) / steps
        waited_s = now_s - self.pace[-1][0]
        return max(0.0, (self.total - self.step) * per_step_s - waited_s)

    def waits(self) -> dict[str, float]:
        """Who waits -> share of the clock's time in the latest steps; {} while nothing can be said."""
        passed = self._grown("time/clock_s")
        if passed <= 0:
            return {}
        counted = {who: [name for name in names if name in self.history] for who, names in WAITS.items()}
        return {who: min(1.0, sum(map(self._grown, names)) / passed) for who, names in counted.items() if names}

    def _grown(self, name: str) -> float:
        """How much a counter, which begins again at 0 when its process does, grew in the latest steps."""
        points = list(self.history.get(name, ()))[-WAIT_WINDOW:]
        return sum(b - a if b >= a else b for a, b in pairwise(points))

    def shown(self, label: str) -> tuple[str, float] | None:
        """(metric name, newest value) behind a label of `SHOWN_METRICS`, if there is a number."""
        for name in SHOWN_METRICS[label]:
            if not math.isnan(self.metrics.get(name, math.nan)):  # NaN: undefined
                return name, self.metrics[name]
        return None


@dataclass
class RunProgress:
    """All stages so far, the newest last."""

    now: Now
    stages: list[StageProgress] = field(default_factory=list)

    @property
    def current(self) -> StageProgress | None:
        """The stage that runs."""
        return self.stages[-1] if self.stages else None

    def begin(self, name: str, total: int | None) -> None:
        """A new stage; ends the one before."""
        self.end()
        self.stages.append(StageProgress(name=name, total=total, started_s=self.now()))

    def end(self) -> None:
        """The current stage is over."""
        if self.current is not None and self.current.ended_s is None:
            self.current.ended_s = self.now()

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """A report for the current stage; without one it opens a stage of its own, so that nothing is lost."""
        if self.current is None:
            self.begin("run", None)
        assert self.current is not None
        self.current.update(step, metrics, self.now())


def duration(seconds: float | None) -> str:
    """`0:07`, `12:30`, `1:02:03`; an em dash for None."""
    if seconds is None:
        return "—"
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def waits_text(stage: StageProgress) -> str:
    """`learner 52 %  rollouts 3 %`; "" while nothing can be said."""
    return "  ".join(f"{who} {100 * share:.0f} %" for who, share in stage.waits().items())


def number(value: float, label: str = "") -> str:
    """A value short enough for a table: shares as percentages, everything else with three digits."""
    if not math.isfinite(value):
        return str(value)
    if label.endswith("share"):
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
