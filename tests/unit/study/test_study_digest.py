"""From a run's own files to its result: what a step is, and what it cost."""

import json
from pathlib import Path

from soliton.study.digest import _costs, _stage_costs, digest
from soliton.study.one_run import COSTS
from soliton.study.schedule import planned_runs
from tests.unit.study.small_studies import STUDY


def lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def costs_of(folder: Path, *costs: tuple[str, int, float]) -> dict[tuple[str, int], float]:
    lines(folder / COSTS, [{"stage": stage, "step": step, "cpu_s": cpu_s} for stage, step, cpu_s in costs])
    return _costs(folder)


def test_torn_lines_of_costs_are_left_out_and_repeated_steps_count_once(tmp_path):
    twice = [("start", -1, 2.0), ("train", 1, 1.0), ("train", 2, 1.5), ("start", -1, 3.0), ("train", 2, 4.0)]
    costs_of(tmp_path, *twice)
    with (tmp_path / COSTS).open("a") as file:
        file.write('{"stage": "tra')
    costs = _costs(tmp_path)
    assert costs == {("start", -1): 5.0, ("train", 1): 1.0, ("train", 2): 4.0}
    assert _stage_costs(costs, None) == {"start": 5.0, "train": 5.0}


def test_batches_without_signal_cost_something_too(tmp_path):
    made = costs_of(tmp_path, ("start", -1, 1.0), ("train", 1, 1.0), ("train", 1, 0.5), ("train", 2, 2.0))
    assert made == {("start", -1): 1.0, ("train", 1): 1.5, ("train", 2): 2.0}
    resumed = costs_of(
        tmp_path,
        *(("start", -1, 1.0), ("train", 1, 1.0), ("train", 2, 1.0), ("train", 2, 1.0), ("eval", 2, 9.0)),
        *(("start", -1, 1.0), ("train", 2, 3.0), ("train", 2, 4.0), ("eval", 2, 8.0), ("train", 3, 5.0)),
    )
    assert resumed == {("start", -1): 2.0, ("train", 1): 1.0, ("train", 2): 7.0, ("eval", 2): 8.0, ("train", 3): 5.0}


def test_steps_are_policies_not_batches(tmp_path):  # shifts go by policies: a curve over batches would be out of phase
    run = next(iter(planned_runs(STUDY, {}, out=tmp_path / "out", runs=tmp_path / "runs")))
    run.folder.mkdir(parents=True)
    policies = [1, 2, 2, 2, 3, 4]  # of six batches two had no signal
    train = [
        {
            "stage": "train",
            "step": batch + 1,
            "time_s": 1.0,
            "train/policy_step": float(policy),
            "reward/mean": float(batch),
            "staleness/max": 1.0,
            "tokens/total": 10.0,
            "tokens/action": 5.0,
        }
        for batch, policy in enumerate(policies)
    ]
    held_out = {"stage": "eval", "step": 6, "time_s": 1.0, "train/policy_step": 4.0, "eval/pass_at_1": 0.5}
    lines(run.folder / "metrics.jsonl", [*train, held_out])
    costs_of(run.folder, *(("train", policy, 1.0) for policy in policies))
    summary = {"config_sha256": "abc", "pass_at_1_before": None, "exit": {"status": "finished", "reason": None}}
    (run.folder / "summary.json").write_text(json.dumps(summary))
    made = digest(run, None, commit=None, machine="here")
    assert made.steps == 6
    assert made.evaluations == [(4, 0.5)]
    assert made.curve_steps == [1, 2, 3, 4]
    assert made.curves["reward/mean"] == [0.0, 2.0, 4.0, 5.0]
    assert made.tokens == [10, 40, 50, 60]
    assert made.cpu_s == [1.0, 4.0, 5.0, 6.0]
    assert made.stage_cpu_s == {"train": 6.0}


def test_bins_end_at_the_same_steps_whatever_batches_lay_between(tmp_path):
    from soliton.study.digest import _bins

    def ends(policies):
        batches = [{"train/policy_step": float(policy)} for policy in policies]
        return [policies[chosen[-1]] for chosen in _bins(batches)]

    plain = list(range(1, 101))
    assert ends(plain) == [*range(3, 100, 3), 100]
    assert ends([0, 0, *(policy for policy in plain for _ in range(1 + policy % 3))]) == ends(plain)
    assert ends([]) == []
