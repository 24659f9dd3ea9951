"""Curves of one or several runs as a PNG: `python -m soliton.report.curve RUN... --out curves.png`.

One panel per question (does it learn, how stale is its data, how much of it is trusted, does the critic know
anything). Runs with the same label (the algorithm, unless labels are given) share a colour: one thin line each and a
thick line for their mean, so that a figure never hides its seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from soliton.errors import ConfigError
from soliton.report.folder import read_series, read_summary

FloatArray = NDArray[np.float64]

SMOOTHING_STEPS = 9
COLOURS = ("#0b6e99", "#d1495b", "#2e933c", "#8e5ea2", "#e08e0b", "#5c6b73")
INK, GRID = "#22303c", "#dde3e8"


@dataclass(frozen=True)
class Panel:
    """One panel: a metric of the training stage.

    Attributes:
        title: the question it answers.
        axis: label of the y axis, with its unit.
        metric: name in `soliton.metrics`.
        stage: whose lines are read; None takes all stages.
        marks: draw points instead of a smoothed line (few values).
        share: the axis is the whole range [0, 1].
        never_negative: the axis begins at 0.
    """

    title: str
    axis: str
    metric: str
    stage: str | None = "train"
    marks: bool = False
    share: bool = False
    never_negative: bool = True


PANELS = (
    Panel("Reward of the training batch", "mean reward", "reward/mean", share=True),
    Panel("Held-out pass@1", "pass@1 (95 % interval)", "eval/pass_at_1", stage=None, marks=True, share=True),
    Panel("Staleness when consumed", "learner steps, mean", "staleness/mean"),
    Panel("Outside the trust band", "share of action tokens", "trust_mask/share"),
    Panel("Distance from the sampling policy", "mean |log ratio|", "log_ratio/abs_mean"),
    Panel("Critic", "explained variance (pre-fit)", "critic/explained_var", never_negative=False),
)


def draw_curves(
    runs: Sequence[Path], out: Path, *, labels: Sequence[str] | None = None, title: str | None = None
) -> list[str]:
    """Draw the panels that any of `runs` has data for; returns their titles.

    Args:
        runs: run folders.
        out: PNG to write; its folder is made.
        labels: one per run; runs with equal labels are seeds of one arm. Default: the algorithm of each run.
        title: above all panels.

    Raises:
        ConfigError: no run, a folder that is no run, as many labels as there are not runs, or nothing to draw.
    """
    if not runs:
        raise ConfigError("no run was given; name at least one run folder")
    if labels is not None and len(labels) != len(runs):
        raise ConfigError(f"got {len(labels)} labels for {len(runs)} runs; give one label per run")
    arms: dict[str, list[Path]] = {}
    for i, run in enumerate(runs):
        arms.setdefault(labels[i] if labels is not None else _default_label(run), []).append(run)
    panels = [panel for panel in PANELS if any(len(points_of(run, panel)[0]) for run in runs)]
    if not panels:
        raise ConfigError(f"the metrics of {', '.join(str(run) for run in runs)} have nothing to draw yet")

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.1 * rows + 0.5), dpi=140, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, ax in zip(panels, axes, strict=False):
        _draw_panel(ax, panel, arms)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    if len(arms) > 1:
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(6, len(arms)), frameon=False)
    if title is not None:
        figure.suptitle(title, color=INK, fontweight="bold")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return [panel.title for panel in panels]


def smooth(values: FloatArray, window: int = SMOOTHING_STEPS) -> FloatArray:
    """Centred moving average; near the ends the window shrinks on both sides, so that a straight line stays one."""
    i = np.arange(len(values))
    reach = np.minimum(window // 2, np.minimum(i, len(values) - 1 - i))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    smoothed: FloatArray = (sums[i + reach + 1] - sums[i - reach]) / (2 * reach + 1)
    return smoothed


def mean_over_runs(series: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """(steps, mean) over the steps that EVERY run has: a run that ended early must not shift the others' mean."""
    common = series[0][0]
    for steps, _ in series[1:]:
        common = np.intersect1d(common, steps)
    values = [v[np.isin(steps, common)] for steps, v in series]
    return common, np.mean(values, axis=0)


def _default_label(run: Path) -> str:
    summary = read_summary(run)
    return str(summary["algorithm"]) if summary is not None else run.name


def points_of(run: Path, panel: Panel) -> tuple[FloatArray, FloatArray]:
    """(steps, values) that a panel draws for one run, in the order of the steps."""
    points = dict(zip(*read_series(run, panel.metric, panel.stage), strict=True))
    if panel.metric == "eval/pass_at_1":
        points |= {step: estimate["mean"] for step, estimate in _measured_pass_at_1(run).items()}
    steps = sorted(points)
    return np.asarray(steps, dtype=np.float64), np.asarray([points[step] for step in steps], dtype=np.float64)


def _measured_pass_at_1(run: Path) -> dict[float, dict[str, float]]:
    """Step -> estimate: before training (step 0) and after it (the last step), as far as the run has them."""
    summary = read_summary(run) or {}
    steps, _ = read_series(run, "reward/mean", "train")
    last = steps[-1] if steps else 0.0
    ends = {0.0: summary.get("pass_at_1_before"), last: summary.get("pass_at_1_after")}
    return {step: estimate for step, estimate in ends.items() if estimate is not None}


def _draw_panel(ax: Any, panel: Panel, arms: dict[str, list[Path]]) -> None:
    for i, (label, runs) in enumerate(arms.items()):
        colour = COLOURS[i % len(COLOURS)]
        series = [points for points in (points_of(run, panel) for run in runs) if len(points[0])]
        if not series:
            ax.plot([], [], color=colour, label=label)
            continue
        if panel.marks:
            _draw_marks(ax, runs, panel, colour, label)
        else:
            _draw_lines(ax, series, colour, label)
    ax.set_title(panel.title, loc="left", fontsize=10, color=INK, fontweight="bold")
    ax.set_ylabel(panel.axis, fontsize=9, color=INK)
    ax.set_xlabel("step", fontsize=9, color=INK)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.ticklabel_format(axis="y", useOffset=False)
    if panel.share:
        ax.set_ylim(0, 1)
    elif panel.never_negative:
        ax.set_ylim(0, 1.05 * ax.get_ylim()[1])
    else:
        ax.axhline(0, color=INK, linewidth=0.8, alpha=0.4)
    ax.grid(color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8, colors=INK, length=0)
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(side == "bottom")
    ax.spines["bottom"].set_color(GRID)


def _draw_lines(ax: Any, series: Sequence[tuple[FloatArray, FloatArray]], colour: str, label: str) -> None:
    alone = len(series) == 1
    for steps, values in series:
        ax.plot(steps, values if alone else smooth(values), color=colour, alpha=0.35, linewidth=1)
    steps, mean = mean_over_runs(series)
    ax.plot(steps, smooth(mean), color=colour, linewidth=2.2, label=label)


def _draw_marks(ax: Any, runs: Sequence[Path], panel: Panel, colour: str, label: str) -> None:
    for run in runs:
        steps, values = points_of(run, panel)
        ax.plot(steps, values, color=colour, alpha=0.9, linewidth=1.4, marker="o", markersize=4, label=label)
        label = "_nolegend_"
        for step, estimate in _measured_pass_at_1(run).items():
            ax.vlines(step, estimate["low"], estimate["high"], color=colour, alpha=0.5, linewidth=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m soliton.report.curve`."""
    parser = argparse.ArgumentParser(prog="python -m soliton.report.curve", description="Draw the curves of runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("--out", type=Path, required=True, help="PNG to write")
    parser.add_argument("--label", action="append", dest="labels", help="one per run; default: its algorithm")
    parser.add_argument("--title", help="above all panels")
    options = parser.parse_args(arguments)
    try:
        draw_curves(options.runs, options.out, labels=options.labels, title=options.title)
    except ConfigError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
