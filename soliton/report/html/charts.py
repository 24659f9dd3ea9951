"""The curves of the page: which metrics share a panel, and their points, few enough to draw."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from soliton.metrics import METRICS
from soliton.report.html.run import RunRecord

MAX_POINTS = 600
"""Points of one curve; longer ones are averaged in bins."""
Points = tuple[list[float], list[float]]
Panel = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """One panel.

    Attributes:
        title: the question it answers.
        series: (label, metric) each.
        stage: whose rows.
        share: values are shares: shown in per cent.
        zero: the axis begins at 0.
        note: what to read in it; by default the table's words on the first metric.
    """

    title: str
    series: tuple[tuple[str, str], ...]
    stage: str = "train"
    share: bool = False
    zero: bool = True
    note: str = ""


SIDES = (
    ("over, advantage > 0", "trust_mask/share_high_positive"),
    ("over, advantage < 0", "trust_mask/share_high_negative"),
    ("under, advantage > 0", "trust_mask/share_low_positive"),
    ("under, advantage < 0", "trust_mask/share_low_negative"),
)
CHARTS = (
    Chart("Reward of the training batch", (("mean reward", "reward/mean"),)),
    Chart("Staleness", (("mean", "staleness/mean"), ("max", "staleness/max"))),
    Chart(
        "Outside the trust band",
        SIDES,
        share=True,
        note="Share of action tokens, by side of the band and sign of their advantage. Healthy: < 5 % together",
    ),
    Chart(
        "Outside the trust band",
        (("over the upper bound", "trust_mask/share_high"), ("under the lower bound", "trust_mask/share_low")),
        share=True,
        note="Share of action tokens, by side of the band. Healthy: < 5 % together",
    ),
    Chart("Log-ratio", (("mean of |log ratio|", "log_ratio/abs_mean"), ("mean", "log_ratio/mean")), zero=False),
    Chart("Critic: explained variance", (("explained variance", "critic/explained_var"),), zero=False),
    Chart("Gradient norm, actor", (("before the clip", "actor/grad_norm"),)),
    Chart("Gradient norm, critic", (("mean of the fits", "critic/grad_norm"), ("largest", "critic/grad_norm_max"))),
    Chart("Entropy", (("nats per action token", "actor/entropy"),)),
    Chart("Length", (("tokens per trajectory", "trajectory/length_mean"),)),
    Chart("Warm start: loss", (("cross-entropy", "sft/loss"),), stage="sft"),
    Chart("Value pretraining: loss", (("squared error", "value_pretraining/loss"),), stage="value_pretraining"),
    Chart(
        "Value pretraining: explained variance",
        (("held out", "value_pretraining/explained_var"),),
        stage="value_pretraining",
        zero=False,
    ),
)


def panels_of(run: RunRecord) -> list[Panel]:
    """The panels that the run has data for, in their order."""
    by_sign = any(run.series("train", metric)[0] for _, metric in SIDES)
    panels = []
    for chart in CHARTS:
        if chart.title == "Outside the trust band" and (chart.series is SIDES) != by_sign:
            continue
        series = [(label, run.series(chart.stage, metric)) for label, metric in chart.series]
        note = chart.note or _note(chart.series[0][1])
        panel = _panel(chart.title, series, note, share=chart.share, zero=chart.zero)
        if panel["series"]:
            panels.append(panel)
    bound = run.summary.get("staleness", {}).get("bound")
    for panel in panels:
        if panel["title"] == "Staleness" and isinstance(bound, int):
            panel["line"] = {"y": bound, "label": f"max_staleness {bound}"}
    panels[1:1] = [panel for panel in (_held_out(run), *_by_environment(run)) if panel is not None]
    return panels + [panel for panel in (_waits(run), _throughput(run)) if panel is not None]


def other_panels(run: RunRecord) -> list[Panel]:
    """Everything else that was measured, one panel each, under its own name."""
    shown = {(chart.stage, metric) for chart in CHARTS for _, metric in chart.series} | {("eval", "eval/pass_at_1")}
    shown |= {(stage, name) for _, stage, metric, _ in BY_ENVIRONMENT for name in _of_environments(run, stage, metric)}
    panels = []
    for stage in run.stages:
        for name in run.names(stage):
            if (stage, name) not in shown and (stage, name) != ("eval", "train/policy_step"):
                zero = name.startswith(("ledger/", "wait/", "tokens/"))
                panel = _panel(name, [(name, run.series(stage, name))], _note(name), share=False, zero=zero)
                if panel["series"]:
                    panels.append(panel)
    return panels


def _held_out(run: RunRecord) -> Panel | None:
    """pass@1 during training, and before and after it with their intervals."""
    points = dict(zip(*run.series("eval", "eval/pass_at_1"), strict=True))
    last = float(run.train[-1]["step"]) if run.train else 0.0
    whiskers = []
    for step, key in ((0.0, "pass_at_1_before"), (last, "pass_at_1_after")):
        estimate = run.summary.get(key)
        if estimate:
            points[step] = estimate["mean"]
            whiskers.append({"x": step, "low": estimate["low"], "high": estimate["high"]})
    steps = sorted(points)
    if not steps:
        return None
    note = "Share of held-out prompts solved by one sample; bars are 95 % intervals. Healthy: rises with the reward"
    series = [("pass@1", (steps, [points[step] for step in steps]))]
    panel = _panel("Held-out pass@1", series, note, share=True, zero=True)
    return panel | {"whiskers": whiskers, "marks": True}


BY_ENVIRONMENT = (
    ("Held-out pass@1 by environment", "eval", "eval/pass_at_1", "Each environment's held-out prompts"),
    ("Reward by environment", "train", "reward/mean", "Mean over each environment's trajectories in the batch"),
)
"""Title, stage, metric under `env/NAME/`, note of the panels of a run of several environments."""
MOST_ENVIRONMENTS = 6
"""Curves in one panel: there are as many colours. The others stand among the other metrics."""


def _of_environments(run: RunRecord, stage: str, metric: str) -> dict[str, str]:
    """Metric's full name -> environment, of the first environments."""
    found = {
        name: name.removeprefix("env/").removesuffix(f"/{metric}")
        for name in run.names(stage)
        if name.startswith("env/") and name.endswith(f"/{metric}")
    }
    return dict(list(found.items())[:MOST_ENVIRONMENTS])


def _by_environment(run: RunRecord) -> list[Panel]:
    panels = []
    ends = run.summary.get("pass_at_1_by_environment", {})
    last = float(run.train[-1]["step"]) if run.train else 0.0
    for title, stage, metric, note in BY_ENVIRONMENT:
        series = {name: run.series(stage, full) for full, name in _of_environments(run, stage, metric).items()}
        if stage == "eval":
            for when, step in (("before", 0.0), ("after", last)):
                for name, estimate in list(ends.get(when, {}).items())[:MOST_ENVIRONMENTS]:
                    points = dict(zip(*series.get(name, ([], [])), strict=True)) | {step: estimate["mean"]}
                    series[name] = (sorted(points), [points[x] for x in sorted(points)])
        panel = _panel(title, list(series.items()), note, share=stage == "eval", zero=True)
        if panel["series"]:
            panels.append(panel | ({"marks": True} if stage == "eval" else {}))
    return panels


def increments(run: RunRecord, metric: str, per: str) -> Points:
    """Step by step, how much a counter grew per unit that another one grew; both may begin again at 0."""
    steps, values = [], []
    before = (0.0, 0.0)
    for row in run.train:
        counted, passed = row.get(metric), row.get(per)
        if counted is None or passed is None:
            continue
        grown = counted - before[0] if counted >= before[0] else counted
        elapsed = passed - before[1] if passed >= before[1] else passed
        before = (counted, passed)
        if elapsed > 0:
            steps.append(float(row["step"]))
            values.append(grown / elapsed)
    return steps, values


def _waits(run: RunRecord) -> Panel | None:
    labels = {
        "learner, for a batch": "wait/batch_s",
        "learner, for an old trajectory": "wait/hold_s",
        "rollouts, for admission": "wait/admission_s",
    }
    series = [(label, increments(run, metric, "time/clock_s")) for label, metric in labels.items()]
    note = "Share of each step's clock time. A waiting learner wants more rollouts; waiting rollouts, a faster learner"
    panel = _panel("Who waits", series, note, share=True, zero=True)
    return panel if panel["series"] else None


def _throughput(run: RunRecord) -> Panel | None:
    steps, speeds = [], []
    for before, row in pairwise(run.train):
        seconds = row["time_s"] - before["time_s"]
        if seconds > 0 and row.get("tokens/total") is not None:
            steps.append(float(row["step"]))
            speeds.append(row["tokens/total"] / seconds)
    note = "All tokens of the batch per second of real time, waiting and evaluation included"
    panel = _panel("Throughput", [("tokens per second", (steps, speeds))], note, share=False, zero=True)
    return panel if panel["series"] else None


def _panel(title: str, series: list[tuple[str, Points]], note: str, *, share: bool, zero: bool) -> Panel:
    drawn = []
    for label, points in series:
        if points[0]:
            x, y = binned(points)
            drawn.append({"label": label, "x": [rounded(v) for v in x], "y": [rounded(v) for v in y]})
    return {"title": title, "note": note, "share": share, "zero": zero, "series": drawn}


def binned(points: Points) -> Points:
    """At most `MAX_POINTS` points: the means of equal bins of neighbours, at the step of each bin's last one."""
    steps, values = points
    if len(steps) <= MAX_POINTS:
        return points
    edges = [round(i * len(steps) / MAX_POINTS) for i in range(MAX_POINTS + 1)]
    bins = list(pairwise(edges))
    return [steps[b - 1] for _, b in bins], [sum(values[a:b]) / (b - a) for a, b in bins]


def rounded(value: float) -> float | int:
    """Five digits: what a reader sees, at a fraction of the bytes."""
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) else short


def _note(metric: str) -> str:
    row = METRICS.get(metric)
    if row is None:
        return ""
    unit = "" if row.unit == "1" else f" ({row.unit})"
    note = f"{row.meaning[0].upper()}{row.meaning[1:]}{unit}. Healthy: {row.healthy}"
    return note.replace("<=", "≤").replace(">=", "≥")
