"""Curves and tables from run folders written by hand."""

import json
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from soliton.errors import ConfigError
from soliton.metrics import METRICS
from soliton.report.comparison import COLUMNS, comparison_table
from soliton.report.curve import PANELS, draw_curves, main, mean_over_runs, points_of, smooth
from soliton.report.folder import read_metrics, read_series
from soliton.report.view import SHOWN_METRICS

SUMMARY: dict[str, Any] = {
    "algorithm": "sao",
    "seed": 3,
    "steps": 100,
    "pass_at_1_before": {"mean": 0.3125, "low": 0.2588, "high": 0.3716, "n": 256},
    "pass_at_1_after": {"mean": 0.6, "low": 0.539, "high": 0.658, "n": 256},
    "pass_at_1_gain": {"mean": 0.2875, "low": 0.211, "high": 0.363, "n": 256},
    "staleness": {"mean": 2.25, "max": 8, "bound": 8},
    "masked_share": 0.0312,
    "log_ratio": {"mean": 0.001, "abs_mean": 0.0234},
    "explained_variance": 0.251,
    "wall_s": 270.0,
    "exit": {"status": "finished", "reason": None},
}


def write_run(folder: Path, steps: int = 40, seed: int = 0, **summary: Any) -> Path:
    """A run folder with a training stage of `steps` steps."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    lines = [{"stage": "sft", "step": 1, "time_s": 0.5, "sft/loss": 3.0}]
    for step in range(1, steps + 1):
        numbers = {
            "reward/mean": 0.3 + 0.3 * step / steps + 0.05 * rng.standard_normal(),
            "staleness/mean": 2 + rng.random(),
            "trust_mask/share": 0.03,
            "log_ratio/abs_mean": 0.02,
            "critic/explained_var": None if step == 1 else 0.2,
        }
        lines.append({"stage": "train", "step": step, "time_s": step / 2, **numbers})
    lines.append({"stage": "eval", "step": steps // 2, "time_s": 1.0, "eval/pass_at_1": 0.45})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "summary.json").write_text(json.dumps(SUMMARY | summary))
    return folder


def test_a_figure_of_several_runs_has_all_six_panels_and_ink_in_each(tmp_path: Path):
    runs = [write_run(tmp_path / f"sao{i}", seed=i) for i in range(3)]
    runs += [write_run(tmp_path / "grpo", steps=30, algorithm="grpo")]
    titles = draw_curves(runs, tmp_path / "figures" / "curves.png", title="calculator")
    assert len(titles) == 6
    image = matplotlib.image.imread(tmp_path / "figures" / "curves.png")[..., :3]
    assert image[0, 0].tolist() == [1, 1, 1]  # a light background
    height, width = image.shape[0] // 2, image.shape[1] // 3
    for row in range(2):
        for column in range(3):
            panel = image[row * height : (row + 1) * height, column * width : (column + 1) * width]
            coloured = np.ptp(panel, axis=2) > 0.3
            assert coloured.sum() > 100, (row, column)


def test_pass_at_1_is_drawn_before_during_and_after_training(tmp_path: Path):
    run = write_run(tmp_path / "run", steps=40)
    panel = next(panel for panel in PANELS if panel.metric == "eval/pass_at_1")
    steps, values = points_of(run, panel)
    assert (steps.tolist(), values.tolist()) == ([0.0, 20.0, 40.0], [0.3125, 0.45, 0.6])


def test_every_metric_that_is_shown_or_drawn_is_in_the_table_of_metrics():
    drawn = {panel.metric for panel in PANELS}
    shown = {name for names in SHOWN_METRICS.values() for name in names}
    assert (drawn | shown) - set(METRICS) == set()


def test_a_panel_without_data_is_left_out(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"stage": "train", "step": 1, "time_s": 1, "reward/mean": 0.5}\n')
    assert draw_curves([run], tmp_path / "x.png") == ["Reward of the training batch"]


def test_equal_labels_are_seeds_of_one_arm(tmp_path: Path):
    runs = [write_run(tmp_path / f"run{i}", seed=i) for i in range(2)]
    one_arm = draw_curves(runs, tmp_path / "one.png", labels=["a", "a"])
    assert one_arm == draw_curves(runs, tmp_path / "two.png", labels=["a", "b"])
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()


def test_the_module_draws_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture):
    run = write_run(tmp_path / "run")
    main([str(run), "--out", str(tmp_path / "x.png")])
    assert (tmp_path / "x.png").stat().st_size > 10_000
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--out", str(tmp_path / "y.png")])
    assert "no run folder" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "labels", "says"), [(0, None, "no run"), (1, ["a", "b"], "2 labels for 1 runs")])
def test_a_figure_refuses_what_it_cannot_draw(tmp_path: Path, count: int, labels: list[str] | None, says: str):
    runs = [write_run(tmp_path / f"run{i}") for i in range(count)]
    with pytest.raises(ConfigError, match=says):
        draw_curves(runs, tmp_path / "x.png", labels=labels)


def test_a_run_without_any_known_metric_has_nothing_to_draw(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"stage": "train", "step": 1, "time_s": 1}\n')
    with pytest.raises(ConfigError, match="nothing to draw"):
        draw_curves([tmp_path], tmp_path / "x.png")


def test_a_torn_last_line_is_left_out_and_a_damaged_line_is_an_error(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"stage": "train", "step": 1, "time_s": 0}\n\n{"stage": "tr')
    assert [record["step"] for record in read_metrics(tmp_path)] == [1]
    path.write_text('{"stage": "tr\n{"stage": "train", "step": 1, "time_s": 0}\n')
    with pytest.raises(ConfigError, match="line 1 is damaged"):
        list(read_metrics(tmp_path))


def test_a_step_that_a_resumed_run_repeats_counts_once_with_its_later_value(tmp_path: Path):
    values = [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25), (3, None)]
    lines = [json.dumps({"stage": "train", "step": s, "time_s": 0, "reward/mean": v}) for s, v in values]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert read_series(tmp_path, "reward/mean", "train") == ([1.0, 2.0, 3.0], [0.1, 0.25, 0.3])
    assert read_series(tmp_path, "reward/mean", "sft") == ([], [])


def test_smoothing_keeps_straight_lines_and_averages_noise():
    line = np.arange(30.0)
    assert smooth(line) == pytest.approx(line)
    assert smooth(np.array([0.0, 3.0, 0.0, 3.0, 3.0]), window=3).tolist() == [0.0, 1.0, 2.0, 2.0, 3.0]
    assert smooth(np.array([4.0])).tolist() == [4.0]
    assert smooth(np.random.default_rng(0).standard_normal(500))[4:-4].std() == pytest.approx(1 / 3, rel=0.2)


def test_the_mean_over_runs_uses_only_steps_that_every_run_has():
    steps, mean = mean_over_runs(
        [(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 90.0])), (np.array([1.0, 2.0]), np.array([3.0, 4.0]))]
    )
    assert (steps.tolist(), mean.tolist()) == ([1.0, 2.0], [2.0, 3.0])


def test_the_comparison_table_has_one_row_per_run_with_its_numbers(tmp_path: Path):
    runs = [write_run(tmp_path / "one"), write_run(tmp_path / "two", algorithm="grpo-dis", explained_variance=None)]
    header, rule, first, second = comparison_table(runs).strip().split("\n")
    assert header.count("|") == rule.count("|") == first.count("|") == len(COLUMNS) + 2
    assert first == (
        "| one | sao | 3 | 100 | 0.312 [0.259, 0.372] | 0.600 [0.539, 0.658] | 0.287 [0.211, 0.363] "
        "| 2.2 / 8 | 0.031 | 0.023 | 0.251 | 4.5 | finished |"
    )
    assert "| grpo-dis |" in second
    assert "| — | 4.5 |" in second


def test_a_run_that_stopped_early_has_dashes_for_what_it_does_not_know(tmp_path: Path):
    run = tmp_path / "stopped"
    run.mkdir()
    (run / "summary.json").write_text('{"algorithm": "grpo", "seed": 1, "exit": {"status": "stopped", "reason": "x"}}')
    row = comparison_table([run]).strip().split("\n")[-1]
    assert row == "| stopped | grpo | 1 | " + "— | " * (len(COLUMNS) - 3) + "stopped |"


def test_the_comparison_table_refuses_a_run_that_has_not_ended(tmp_path: Path):
    with pytest.raises(ConfigError, match="is no run folder"):
        comparison_table([tmp_path])
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match="has not ended"):
        comparison_table([tmp_path])
    with pytest.raises(ConfigError, match="no run"):
        comparison_table([])
