"""A real run of a study, small: what it says while it runs, what it costs, and the result that is made of it."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from soliton.study.digest import digest
from soliton.study.one_run import COSTS, STOPPED, CostRecorder, make_run
from soliton.study.result import read_result, write_result
from soliton.study.schedule import planned_runs
from tests.invariants.calculator_runs import WARM_START
from tests.unit.study.small_studies import STUDY

SMALL = (
    f"init.model={WARM_START}",
    "train.steps=2",
    "train.batch_size=8",
    "rollout.max_in_flight=16",
    "engine.num_slots=16",
    "eval.num_prompts=8",
    "eval.every_steps=1",
)
REAL = replace(STUDY, arms=STUDY.arms[:1], seeds=(0,), overrides=SMALL, warm_stages=())


@pytest.fixture
def planned(tmp_path: Path):
    (run,) = planned_runs(REAL, {}, out=tmp_path / "out", runs=tmp_path / "runs")
    run.folder.mkdir(parents=True)
    return run


def make(planned, *more: str, out=None) -> int:
    return make_run(planned.folder, planned.recipe, [*planned.overrides, *more], out or io.StringIO())


def test_a_run_says_where_it_is_and_becomes_a_result(planned):
    out = io.StringIO()
    assert make(planned, out=out) == 0
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["step"], line["total"]) for line in said if line["stage"] == "train"] == [
        (0, 2),
        (1, 2),
        (1, 2),
        (2, 2),
        (2, 2),
    ]
    made = digest(planned, None, commit="c0ffee", machine="here")
    assert (made.status, made.steps, made.num_eval_prompts) == ("finished", 2, 8)
    assert [step for step, _ in made.evaluations] == [1, 2]
    assert made.curve_steps == [1, 2]
    assert made.cpu_s[1] > made.cpu_s[0] > 0
    assert made.stage_cpu_s["train"] >= made.cpu_s[1]
    assert made.stage_cpu_s["eval"] > 0
    assert made.tokens[1] == made.numbers["tokens"]
    assert 0 <= made.numbers["mean reward/mean"] <= 1
    assert made.settings["train"] == {"batch_size": 8, "steps": 2}
    write_result(planned.path, made)
    assert planned.existing() == read_result(planned.path) == made
    # Asked for once more, the finished run is taken up and ends at once, with the same result.
    assert make(planned) == 0
    again = digest(planned, None, commit="c0ffee", machine="here")
    assert (again.evaluations, again.curves, again.tokens) == (made.evaluations, made.curves, made.tokens)


def test_a_run_that_cannot_go_on_and_a_wrong_recipe_have_their_exit_codes(planned, capsys):
    assert make(planned, "learner.max_no_signal_steps=1", "limits.max_tokens=40") == STOPPED
    assert "nothing is being learned" in capsys.readouterr().err
    made = digest(planned, None, commit=None, machine="here")
    assert made.status == "stopped"
    assert "nothing is being learned" in str(made.reason)
    assert make(planned) == 2
    assert "was started with another configuration" in capsys.readouterr().err


def test_costs_are_those_since_the_line_before(tmp_path):
    clock = iter([0.0, 5.0, 6.5, 8.0, 9.0, 9.25])
    recorder = CostRecorder(tmp_path, out := io.StringIO(), lambda: next(clock))
    recorder.stage("train", 2)
    recorder.update(1, {"reward/mean": 0.5})
    recorder.update(1, {"eval/pass_at_1": 0.5})
    recorder.update(2, {})
    recorder.note("nothing")
    recorder.alarm("nothing")
    recorder.finish("done")
    lines = [json.loads(line) for line in (tmp_path / COSTS).read_text().splitlines()]
    assert [(line["stage"], line["step"], line["cpu_s"]) for line in lines] == [
        ("start", -1, 5.0),
        ("train", 1, 1.5),
        ("eval", 1, 1.5),
        ("train", 2, 1.0),
        ("end", -1, 0.25),
    ]
    assert len(out.getvalue().splitlines()) == 4
