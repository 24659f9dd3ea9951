"""A study from its record to its page, with runs that a fake program makes; and what goes wrong."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console
from rich.text import Text

from soliton.errors import ConfigError
from soliton.study import command, execute, page
from soliton.study.origin import machine
from soliton.study.progress import PlainStudyView, RichStudyView, Running, StudyProgress, make_study_view
from soliton.study.result import read_result, result_path, write_result
from soliton.study.schedule import planned_runs
from tests.unit.study.small_studies import BORROWING, STUDY, View, run


@pytest.fixture(autouse=True)
def _without_figures(request, monkeypatch):
    """Drawing takes longer than all the rest; one test looks at a figure."""
    if "figure" not in request.node.name:
        monkeypatch.setattr(page, "draw_study", lambda results, out: [])


def data(where: Path, study="small") -> dict[str, bytes]:
    return {file.stem: file.read_bytes() for file in sorted((where / "out" / "study" / "data" / study).glob("*.json"))}


def test_a_study_runs_and_writes_data_page_and_figure(tmp_path):
    failures, said, view = run(tmp_path)
    assert failures == []
    assert len(view.planned) == 6
    assert set(data(tmp_path)) == {f"{arm}-{seed}" for arm in ("sao", "grpo", "grpo-dis") for seed in (0, 1)}
    assert all(len(file) < 6_000 for file in data(tmp_path).values())
    text = (tmp_path / "out" / "study.md").read_text()
    assert "| `grpo-dis` (with DIS) |" in text
    assert "6 of 6 runs, seeds 0, 1" in text
    assert "Incomplete" not in text
    assert (tmp_path / "out" / "study" / "small.png").read_bytes().startswith(b"\x89PNG")
    assert "REPRODUCED: GRPO loses" in said
    assert "NOT REPRODUCED: SAO ends higher" in said  # both end at 0.8
    assert "**not reproduced**" in text


def test_a_warm_start_is_made_once_per_seed_and_before_its_arms(tmp_path):
    _, _, view = run(tmp_path)
    warm = [name for name in view.begun if name.startswith("warm start")]
    assert len(warm) == 2
    assert len(view.begun) == 8
    for seed in (0, 1):
        first = min(i for i, name in enumerate(view.begun) if name.endswith(f"-{seed}"))
        assert next(i for i, name in enumerate(view.begun) if f"study-{seed}-" in name) < first


def test_what_a_result_holds(tmp_path):
    run(tmp_path)
    result = read_result(result_path(tmp_path / "out", "small", "sao", 1))
    assert result is not None
    assert result.settings["seed"] == 1
    assert result.settings["env"]["num_prompts"] == 512
    assert result.warm_settings is not None
    assert "num_prompts" not in result.warm_settings["env"]
    assert result.evaluations == [(0, 0.21), (2, 0.41), (4, 0.61), (6, 0.81)]
    assert result.curve_steps == [1, 2, 3, 4, 5, 6]
    assert result.tokens == [1000, 2000, 3000, 4000, 5000, 6000]
    assert result.cpu_s == [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]
    assert result.stage_cpu_s["train"] == 18.0
    assert result.numbers["mean staleness/mean"] == 7.0
    assert result.uses_pretrained_critic
    grpo = read_result(result_path(tmp_path / "out", "small", "grpo", 1))
    assert grpo is not None
    assert not grpo.uses_pretrained_critic
    assert "critic/explained_var" not in grpo.curves


def test_a_study_may_ask_for_more_than_the_usual_curves(tmp_path):
    style = replace(
        STUDY, name="style", arms=STUDY.arms[:1], seeds=(0,), extra_metrics=("tokens/action", "eval/info/cute")
    )
    run(tmp_path, style)
    result = read_result(result_path(tmp_path / "out", "style", "sao", 0))
    assert result is not None
    assert result.curves["tokens/action"] == [300.0] * 6
    assert result.held_out == {"eval/info/cute": [(2, 0.5), (4, 0.5), (6, 0.5)]}


def test_finished_runs_are_not_made_again(tmp_path):
    run(tmp_path)
    before = data(tmp_path)
    (tmp_path / "out" / "study" / "data" / "small" / "grpo-1.json").unlink()
    _, _, view = run(tmp_path)
    assert view.begun == []  # the folder of the run is there: it is only read again
    assert data(tmp_path) == before
    _, _, view = run(tmp_path, only_page=True)
    assert view.planned == []


def test_results_of_two_machines_are_mixed_only_with_a_warning(tmp_path, monkeypatch):
    _, _, view = run(tmp_path)
    assert view.warnings == []
    for module in (command, execute):
        monkeypatch.setattr(module, "machine", lambda: "8 cores, another processor")
    _, _, view = run(tmp_path)
    assert view.warnings == []  # nothing is missing, so nothing is mixed
    assert "more than one machine" not in (tmp_path / "out" / "study.md").read_text()
    (tmp_path / "out" / "study" / "data" / "small" / "grpo-1.json").unlink()
    _, _, view = run(tmp_path)
    assert len(view.warnings) == 1
    assert f"{machine()}; this one: 8 cores, another processor" in view.warnings[0]
    text = (tmp_path / "out" / "study.md").read_text()
    assert "**Made on more than one machine: CPU seconds do not compare" in text
    _, _, view = run(tmp_path, BORROWING)
    assert "or borrows them" in view.warnings[0]


def test_results_of_another_machine_stand_beside_those_of_this_one(tmp_path):
    run(tmp_path)
    alone = (tmp_path / "out" / "study.md").read_text()
    assert "On another machine" not in alone
    here, there = (tmp_path / "out" / "study" / name for name in ("data", "elsewhere/epyc"))
    shutil.copytree(here, there)
    for seed in (0, 1):  # there, SAO ended higher
        path = there / "small" / f"sao-{seed}.json"
        other = read_result(path)
        assert other is not None
        evaluations = [*other.evaluations[:-1], (6, 0.9 + seed / 100)]
        write_result(path, structs.replace(other, machine="2 cores, another one", evaluations=evaluations))
    (there / "small" / "grpo-1.json").unlink()
    run(tmp_path, only_page=True)
    text = (tmp_path / "out" / "study.md").read_text()
    assert text.count("### On another machine: a small study") == 1
    assert "* 5 of 6 runs, seeds 0, 1" in text
    verdict = next(line for line in text.splitlines() if line.startswith("| SAO ends higher"))
    here_says, there_says = verdict.split(" | ")[2:4], verdict.split(" | ")[4]
    assert here_says[0] == "**not reproduced**"
    assert there_says.startswith("**not known yet**: accuracy: sao 0.905")  # one run is missing there
    assert "0.910" in text.split("### On another machine")[1]
    assert "0.910" not in text.split("### On another machine")[0].split("## A small study")[1]
    run(tmp_path, BORROWING)  # it has no runs of its own there
    assert (tmp_path / "out" / "study.md").read_text().count("### On another machine") == 1


def test_a_run_that_died_is_reported_and_made_again_next_time(tmp_path):
    folder = tmp_path / "runs" / "small" / "grpo-0"
    folder.mkdir(parents=True)
    (folder / "die").touch()
    failures, _, view = run(tmp_path)
    assert len(failures) == 1
    assert failures[0].startswith("small/grpo-0: exit code 1;")
    assert "killed by the test" in failures[0]
    assert view.endings["small/grpo-0"] == "DIED with exit code 1"
    assert "grpo-0" not in data(tmp_path)
    assert len(data(tmp_path)) == 5
    assert "**Incomplete" in (tmp_path / "out" / "study.md").read_text()
    failures, _, view = run(tmp_path)
    assert failures == []
    assert view.begun == ["small/grpo-0"]
    assert len(data(tmp_path)) == 6


def test_without_its_warm_start_no_arm_runs(tmp_path):
    warm = next(run for run in planned_runs(STUDY, {}, out=tmp_path / "out", runs=tmp_path / "runs") if run.seed == 1)
    assert warm.warm is not None
    warm.warm.folder.mkdir(parents=True)
    (warm.warm.folder / "die").touch()
    failures, _, _ = run(tmp_path)
    assert len(failures) == 4
    assert sum("not run, because its warm start failed" in failure for failure in failures) == 3
    assert set(data(tmp_path)) == {"sao-0", "grpo-0", "grpo-dis-0"}


def test_a_run_that_stopped_itself_is_a_result_and_said_to_be_one(tmp_path):
    folder = tmp_path / "runs" / "small" / "grpo-1"
    folder.mkdir(parents=True)
    (folder / "stop").touch()
    failures, _, view = run(tmp_path)
    assert failures == []
    assert view.endings["small/grpo-1"] == "stopped: no signal"
    assert "* `grpo`, seed 1, after 6 batches: no signal" in (tmp_path / "out" / "study.md").read_text()


def test_runs_under_way_end_with_an_interrupted_study(tmp_path):
    class Impatient(View):
        def ended(self, name, how):
            super().ended(name, how)
            if "small/grpo-0" in self.begun and "interrupted" not in how:
                raise KeyboardInterrupt

    hanging = tmp_path / "runs" / "small" / "grpo-0"
    hanging.mkdir(parents=True)
    (hanging / "hang").touch()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, view=(impatient := Impatient()))
    assert impatient.endings["small/grpo-0"] == "interrupted; the same command goes on with it"
    assert "grpo-0" not in data(tmp_path)


def test_an_interrupted_study_goes_on(tmp_path):
    class Impatient(View):
        def ended(self, name, how):
            super().ended(name, how)
            if len(self.endings) == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, view=(impatient := Impatient()))
    assert impatient.closed
    kept = data(tmp_path)
    assert 0 < len(kept) < 6
    _, _, view = run(tmp_path)
    assert len(data(tmp_path)) == 6
    assert {name: data(tmp_path)[name] for name in kept} == kept
    assert not {f"small/{name}" for name in kept} & set(view.begun)


def test_a_damaged_result_is_named_and_nothing_runs(tmp_path):
    run(tmp_path)
    path = result_path(tmp_path / "out", "small", "grpo", 0)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b'"seed":0', b'"seed":"zero"'), b""):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"grpo-0\.json is damaged: .*remove it"):
            run(tmp_path)
    path.write_bytes(whole.replace(b'"schema":1', b'"schema":99'))
    with pytest.raises(ConfigError, match=r"grpo-0\.json has schema 99, this version writes 1"):
        run(tmp_path)


def test_a_result_of_other_settings_is_neither_used_nor_replaced(tmp_path):
    run(tmp_path)
    before = data(tmp_path)
    longer = replace(STUDY, overrides=("train.steps=200",), warm_overrides=("sft.noise=0.5",))
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, longer)
    assert "was made with other settings" in str(refused.value)
    assert "train.steps: now 200, the file has None" in str(refused.value)
    assert "warm start: sft.noise: now 0.5, the file has 0.26" in str(refused.value)
    assert "move the file away, or choose another --out" in str(refused.value)
    assert data(tmp_path) == before


def test_a_wrong_override_names_the_arm(tmp_path):
    wrong = replace(STUDY, arms=(replace(STUDY.arms[0], overrides=("learner.actor_lt=1",)),))
    with pytest.raises(ConfigError, match=r"(?s)study small/sao: .*did you mean 'actor_lr'"):
        run(tmp_path, wrong)


def test_a_borrowed_arm_is_run_as_the_other_study_runs_it(tmp_path):
    _, _, view = run(tmp_path, BORROWING)
    assert set(data(tmp_path)) == {"sao-0", "sao-1"}
    assert set(data(tmp_path, "borrowing")) == {"vapo-0", "vapo-1"}
    text = (tmp_path / "out" / "study.md").read_text()
    assert "4 of 4 runs" in text
    _, _, view = run(tmp_path, STUDY)
    assert not any(name.startswith("small/sao") for name in view.begun)


def test_a_run_of_another_policy_is_started_without_the_critic(tmp_path):
    alone = replace(STUDY, arms=(replace(STUDY.arms[0], start="policy"),))
    (planned, _) = planned_runs(alone, {}, out=tmp_path, runs=tmp_path)
    assert any(override.startswith("init.model=") for override in planned.overrides)
    assert not any(override.startswith("init.run=") for override in planned.overrides)


def test_time_left_is_estimated_from_the_runs_that_have_ended():
    clock = iter([0.0, 100.0, 100.0])
    progress = StudyProgress(lambda: next(clock), planned=("a", "b", "c"), jobs=1)
    view = PlainStudyView(io.StringIO(), lambda: 0.0)
    view.plan(["a"], 1)
    assert progress.time_left_s() is None
    assert progress.counted() == "0 of 3 runs"
    progress.running["a"] = Running(progress.now())
    progress.end("a")
    progress.running["b"] = Running(progress.now(), stage="train", step=5, total=10)
    assert progress.time_left_s() == 150.0  # one and a half runs of 100 s each
    assert progress.counted() == "1 of 3 runs, 2:30 left"


def test_the_plain_view_writes_a_line_for_each_beginning_and_end():
    out = io.StringIO()
    view = PlainStudyView(out, lambda: 0.0)
    view.warn("two machines")
    view.plan(["small/sao-0"], 2)
    view.started("small/sao-0")
    view.moved("small/sao-0", "train", 1, 3)
    view.ended("small/sao-0", "done")
    view.close()
    assert out.getvalue().splitlines() == [
        "!! two machines",
        "== 1 runs to make, 2 at once",
        "   small/sao-0 begins",
        "   small/sao-0 done after 0:00; 1 of 1 runs, 0:00 left",
    ]


def test_the_view_on_a_terminal_shows_what_runs_and_keeps_what_has_ended():
    out = io.StringIO()
    view = make_study_view(Console(file=out, force_terminal=True, width=90), lambda: 0.0)
    assert isinstance(view, RichStudyView)
    view.warn("two machines")
    view.plan(["small/sao-0", "small/grpo-0"], 2)
    view.started("small/sao-0")
    view.moved("small/sao-0", "train", 30, 60)
    view.started("small/grpo-0")
    view.ended("small/grpo-0", "done")
    view.close()
    shown = Text.from_ansi(out.getvalue()).plain
    assert "two machines" in shown
    assert "small/grpo-0 done after 0:00" in shown
    assert "30/60" in shown
    assert "1 of 2 runs, 0:00 left" in shown
    assert isinstance(make_study_view(Console(file=out, force_terminal=False), lambda: 0.0), PlainStudyView)
