"""`--dry-run`: what it says, what it costs, and that it runs nothing."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from soliton.cli import app
from soliton.config import load_config
from soliton.runtime.plan import plan_of

ROOT = Path(__file__).parents[3]
CALCULATOR = str(ROOT / "recipes" / "calculator.toml")
PAPER = [str(ROOT / "recipes" / f"paper-{name}.toml") for name in ("math", "coding")]


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--dry-run"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def test_every_value_has_its_origin_and_nothing_is_written(tmp_path: Path):
    lines = [" ".join(line.split()) for line in shown("train", CALCULATOR, "train.steps=7", "seed=3").splitlines()]
    assert "steps = 7 # override" in lines
    assert "seed = 3 # override" in lines
    assert "batch_size = 64 # recipe" in lines
    assert 'when_too_old = "drop" # recipe' in lines
    assert "gamma = 1.0 # default" in lines
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_would_run_and_what_that_needs():
    text = shown("train", CALCULATOR, "algorithm=grpo-dis", "runtime=local", "local.workers=2", "train.steps=5")
    for words in (
        "train: grpo-dis, 5 steps of 64 trajectories (8 prompts x 8 rollouts), no critic",
        "2 rollout workers, 96 episodes in flight each",
        "runs/calculator/store.sqlite",
        "about 0.31M parameters",
        "these are rough: scaled from the calculator demo",
        "checkpoint.every_steps = 25 and train.steps = 5",
        "The configuration is valid; it can start.",
    ):
        assert words in text


def test_lists_are_shown_as_a_recipe_has_them():
    assert 'stages = [ "sft", "eval" ] # override' in " ".join(
        shown("train", CALCULATOR, 'stages=["sft","eval"]').split()
    )


def test_there_is_an_evaluator_only_if_it_has_something_to_do():
    assert "evaluator" not in shown("train", CALCULATOR)
    assert "evaluator: every 10 steps" in shown("train", CALCULATOR, "eval.every_steps=10")


def test_each_command_plans_its_own_stages():
    assert "sft: " in shown("sft", CALCULATOR)
    assert "value_pretraining: " in shown("pretrain-value", CALCULATOR)
    assert "train: " not in shown("sft", CALCULATOR).partition("What would run")[2]


def test_for_scripts_it_is_one_document():
    document = json.loads(shown("train", CALCULATOR, "seed=3", "--json"))
    assert document["config"]["seed"] == {"value": 3, "origin": "override"}
    assert document["can_start"] is True
    assert document["config_sha256"] == load_config(Path(CALCULATOR), ["seed=3"]).sha256()


@pytest.mark.parametrize("recipe", PAPER)
def test_the_recipes_of_the_paper_are_valid_and_say_what_is_missing(recipe: str):
    text = shown("train", recipe)
    for words in (
        "30.5B parameters",
        "977 GB of weights, gradients and AdamW state",
        "engine.kind: 'vllm' is not supported yet",
        "hardware.sharding: 'fsdp' is not supported yet",
        "is not part of this version",
        "it cannot start as it is",
    ):
        assert words in text
    refused = CliRunner().invoke(app, ["train", recipe], catch_exceptions=False)
    assert refused.exit_code == 2
    assert "engine.kind: 'vllm' is not supported yet" in refused.stderr


def test_the_recipes_of_the_paper_have_its_numbers():
    math, coding = (load_config(Path(recipe)) for recipe in PAPER)
    assert (math.method.eps_low, math.method.eps_high) == (0.3, 5.0)
    assert (coding.method.eps_low, coding.method.eps_high) == (0.8, 3.0)
    assert (math.limits.max_turns, coding.limits.max_turns) == (50, 300)
    assert ("sft" in math.stages, "sft" in coding.stages) == (True, False)
    assert math.sft.epochs == 3
    for config in (math, coding):
        assert (config.learner.actor_lr, config.learner.critic_lr, config.learner.critic_warmup_steps) == (
            1e-6,
            5e-6,
            10,
        )
        assert (config.train.batch_size, config.train.steps, config.group_size) == (128, 1000, 1)
        assert (config.method.alpha, config.method.critic_lambda, config.method.critic_updates) == (1.5, 1.0, 2)
        assert (config.sampling.temperature, config.sampling.top_p, config.limits.max_tokens) == (1.0, 1.0, 131072)


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (['stages=["sft","value_pretraining","train"]'], "no 'eval'"),
        (['stages=["sft","train","eval"]'], "no value pretraining"),
        (['stages=["train","eval"]'], "samples noise"),
        (["max_staleness=unbounded"], "is for studies"),
        (["max_staleness=0"], "the staleness bound admits only 64"),
        (["eval.num_prompts=25"], "up to +-0.20 wide"),
        (["train.shuffle_rewards=true"], "negative control"),
    ],
)
def test_it_warns_of_what_costs_or_says_little(overrides: list[str], warning: str):
    assert any(warning in line for line in plan_of(load_config(Path(CALCULATOR), overrides), resumed=False).warnings)


def test_the_demo_itself_is_warned_of_nothing():
    assert plan_of(load_config(Path(CALCULATOR)), resumed=False).warnings == []


def cpu_s(program: list[str]) -> float:
    """CPU seconds of one process: unlike wall time they do not depend on who else is on the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(program, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_half_a_second_and_a_dry_run_three():
    command = [sys.executable, "-m", "soliton"]
    assert min(cpu_s([*command, "--help"]) for _ in range(3)) <= 0.5
    assert min(cpu_s([*command, "train", CALCULATOR, "--dry-run"]) for _ in range(2)) <= 3


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["torch", "pydantic", "rich", "numpy"]),
        (["train", CALCULATOR, "--dry-run"], ["torch", "transformers"]),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(arguments: list[str], absent: list[str]):
    program = (
        "import sys; from soliton.cli import app\n"
        f"try: app({arguments!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {absent!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
