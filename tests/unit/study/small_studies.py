"""A study of three arms whose runs are made by the fake program, and a view that remembers."""

from dataclasses import replace
from pathlib import Path

from soliton.study.command import run_studies
from soliton.study.one_run import Program
from soliton.study.outcomes import accuracy_at_end
from soliton.study.result import SCHEMA, RunResult
from soliton.study.rules import higher, keeps, loses
from soliton.study.study import Arm, Claim, Study
from tests.fakes import study_run

FAKE = Program(study_run.make_run, ())

STUDY = Study(
    name="small",
    title="A small study",
    question="Does it work?",
    recipe="study.toml",
    arms=(
        Arm("sao", ("algorithm=sao",)),
        Arm("grpo", ("algorithm=grpo",)),
        Arm("grpo-dis", ("algorithm=grpo-dis",), says="(with DIS)"),
    ),
    seeds=(0, 1),
    reference="sao",
    claims=(
        Claim("GRPO loses", loses("grpo")),
        Claim("SAO keeps", keeps("sao")),
        Claim("SAO ends higher", higher("sao", "grpo-dis", accuracy_at_end, "accuracy")),
    ),
)
BORROWING = replace(STUDY, name="borrowing", arms=(Arm("sao", of="small"), Arm("vapo", ("algorithm=vapo",))), claims=())


class View:
    """Remembers what it was told."""

    def __init__(self):
        self.planned, self.begun, self.endings, self.warnings, self.closed = [], [], {}, [], False

    def plan(self, runs, jobs):
        self.planned = list(runs)

    def warn(self, text):
        self.warnings.append(text)

    def started(self, name):
        self.begun.append(name)

    def moved(self, name, stage, step, total):
        assert name in self.begun

    def ended(self, name, how):
        self.endings[name] = how

    def close(self):
        self.closed = True


def run(where: Path, *studies: Study, view: View | None = None, **options):
    wanted = studies or (STUDY,)
    catalogue = {study.name: study for study in (STUDY, BORROWING, *wanted)}
    view = view or View()
    failures, said = run_studies(
        wanted, catalogue, jobs=2, out=where / "out", runs=where / "runs", view=view, program=FAKE, **options
    )
    return failures, said, view


def result(arm="sao", seed=0, accuracies=(0.3, 0.5, 0.6), **changes) -> RunResult:
    """A result with evaluations every 10 steps; 100 tokens and 2 s a step."""
    steps = [10 * (i + 1) for i in range(len(accuracies) - 1)]
    values = {
        "schema": SCHEMA,
        "study": "small",
        "arm": arm,
        "seed": seed,
        "settings": {},
        "warm_settings": None,
        "config_sha256": "abc",
        "commit": "c0ffee",
        "machine": "2 cores",
        "status": "finished",
        "reason": None,
        "steps": steps[-1],
        "uses_pretrained_critic": False,
        "num_eval_prompts": 100,
        "evaluations": list(zip([0, *steps], accuracies, strict=True)),
        "curve_steps": steps,
        "curves": {"reward/mean": [0.1] * len(steps)},
        "tokens": [100 * step for step in steps],
        "cpu_s": [2.0 * step for step in steps],
        "stage_cpu_s": {"train": 2.0 * steps[-1]},
        "numbers": {"last reward/mean": 0.05},
    }
    return RunResult(**{**values, **changes})
