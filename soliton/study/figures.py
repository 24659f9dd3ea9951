"""One figure per study, drawn from its results: thin lines are seeds, thick ones their mean, so that no seed is hidden.

An arm and its control (`sao` and `sao-low-lag`) share a colour; the control is dashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from soliton.report.curve import GRID, INK, FloatArray, mean_over_runs, smooth
from soliton.study.outcomes import StudyResults
from soliton.study.result import RunResult
from soliton.study.study import Panel, Study

COLOURS = (
    "#0b6e99",
    "#d1495b",
    "#2e933c",
    "#8e5ea2",
    "#e08e0b",
    "#5c6b73",
    "#17a2a2",
    "#a1662f",
    "#c44e9b",
    "#7a8b00",
    "#3450b4",
    "#111111",
)
CONTROL = "-low-lag"
"""How the name of an arm's control ends."""
MEAN_LAYER, REFERENCE_LAYER = 3.0, 4.0
"""Means lie over seeds, and that of the reference over all, for the others are compared with it."""
COLUMNS = 3
SMOOTHING_POINTS = 3
EVALUATIONS = "eval/pass_at_1"

Series = tuple[FloatArray, FloatArray]


def draw_study(results: StudyResults, out: Path) -> list[str]:
    """Draw every panel that any run has data for; returns their titles.

    Args:
        results: at least one run.
        out: PNG to write.
    """
    study = results.study
    runs = [run for by_seed in results.runs.values() for run in by_seed.values()]
    panels = [panel for panel in study.panels if any(len(points(run, panel)[0]) for run in runs)]
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(4.6 * COLUMNS, 3.2 * rows + 0.8), dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for panel, ax in zip(panels, axes, strict=False):
        for name, colour, style in styles(study):
            found = [points(run, panel) for run in results.runs.get(name, {}).values()]
            layer = REFERENCE_LAYER if name == study.reference else MEAN_LAYER
            _draw_arm(ax, [series for series in found if len(series[0])], name, colour, style, layer)
        _finish(ax, panel, study)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(6, len(names)), frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return [panel.title for panel in panels]


def styles(study: Study) -> list[tuple[str, str, str]]:
    """(arm, colour, line style) in the order of the arms; a control has the colour of its arm."""
    families = list(dict.fromkeys(arm.name.removesuffix(CONTROL) for arm in study.arms))
    return [
        (
            arm.name,
            COLOURS[families.index(arm.name.removesuffix(CONTROL)) % len(COLOURS)],
            "--" if arm.name.endswith(CONTROL) else "-",
        )
        for arm in study.arms
    ]


def points(run: RunResult, panel: Panel) -> Series:
    """(steps, values) of one run in a panel; steps without a value are left out."""
    if panel.metric == EVALUATIONS:
        known = list(run.evaluations)
    elif panel.metric in run.held_out:
        known = run.held_out[panel.metric]
    else:
        curve = run.curves.get(panel.metric, [])
        known = [(step, value) for step, value in zip(run.curve_steps, curve, strict=False) if value is not None]
    steps = np.asarray([step for step, _ in known], dtype=np.float64)
    values = np.asarray([value for _, value in known], dtype=np.float64)
    return steps, 1.0 - values if panel.complement else values


def _draw_arm(ax: Any, series: Sequence[Series], name: str, colour: str, style: str, layer: float) -> None:
    if not series:
        ax.plot([], [], color=colour, linestyle=style, label=name)
        return
    for steps, values in series:
        ax.plot(steps, values, color=colour, linestyle=style, alpha=0.22, linewidth=0.8)
    steps, mean = mean_over_runs(series)
    smoothed = smooth(mean, SMOOTHING_POINTS)
    ax.plot(steps, smoothed, color=colour, linestyle=style, linewidth=1.9, label=name, zorder=layer)


def _finish(ax: Any, panel: Panel, study: Study) -> None:
    ax.set_title(panel.title, loc="left", fontsize=10, color=INK, fontweight="bold")
    ax.set_ylabel(panel.axis, fontsize=9, color=INK)
    ax.set_xlabel("step", fontsize=9, color=INK)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if panel.share:
        ax.set_ylim(0, 1)
    for step, text in study.marks:
        ax.axvline(step, color=INK, linewidth=0.8, linestyle=":")
        ax.annotate(text, (step, 1), xycoords=("data", "axes fraction"), fontsize=7, color=INK, va="top")
    ax.grid(color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8, colors=INK, length=0)
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(side == "bottom")
