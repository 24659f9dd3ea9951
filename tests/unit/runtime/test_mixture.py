"""Several environments in one run."""

import asyncio
import json
from collections import Counter

import numpy as np
import pytest

from soliton.envs.calculator import Calculator, demonstration
from soliton.errors import ConfigError
from soliton.evals.evaluation import Evaluation
from soliton.metrics import describe
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.items import ListedPrompts
from soliton.runtime.mixture import environment_of, evaluation_metrics, mixed_task
from soliton.runtime.task import Task
from tests.invariants.calculator_runs import run_here, small_run

ITEMS = [{"expression": f"{n}+1", "answer": n + 1} for n in range(40)]


def listed(*, seed, num_prompts):
    return ListedPrompts(ITEMS, seed=seed, num_prompts=num_prompts)


TASKS = {"calculator": Task(Calculator, CalculatorPrompts, demonstration), "sums": Task(Calculator, listed)}
MIXTURE = mixed_task(TASKS, {"calculator": 3, "sums": 1}, {"calculator": None, "sums": None})


def prompts(seed=0):
    return MIXTURE.make_prompts(seed=seed, num_prompts=None)


def test_the_draw_decides_the_environment_and_shares_are_exact():
    names = [environment_of(prompts().at(draw).id) for draw in range(400)]
    assert Counter(names) == {"calculator": 300, "sums": 100}
    assert names == [environment_of(prompts().at(draw).id) for draw in reversed(range(400))][::-1]
    assert names != [environment_of(prompts(1).at(draw).id) for draw in range(400)]
    assert len({tuple(names[i : i + 4]) for i in range(0, 400, 4)}) == 4  # no fixed order within a block


def test_a_finite_list_is_still_visited_evenly():
    seen = Counter(prompt.id for prompt in map(prompts().at, range(4 * 40 * 3)) if environment_of(prompt.id) == "sums")
    assert max(seen.values()) - min(seen.values()) <= 1


def test_held_out_prompts_are_shared_out_by_weight_and_never_trained():
    held_out = prompts().held_out(8, seed=0)
    assert Counter(environment_of(prompt.id) for prompt in held_out) == {"calculator": 6, "sums": 2}
    assert not {prompt.id for prompt in held_out} & {prompts().at(draw).id for draw in range(500)}


def test_an_episode_is_of_the_environment_that_its_prompt_names():
    async def play(prompt):
        environment = MIXTURE.make_environment()
        (opening,) = await environment.reset(prompt, 0)
        result = await environment.step(f"={prompt.content['item']['answer']}")
        await environment.close()
        return opening.content, result.reward

    for draw in range(8):
        prompt = prompts().at(draw)
        assert asyncio.run(play(prompt)) == (prompt.content["item"]["expression"], 1.0)


def test_a_warm_start_needs_an_expert_of_every_environment():
    rng = np.random.default_rng(0)
    by_name = {environment_of(prompt.id): prompt for prompt in map(prompts().at, range(8))}
    assert MIXTURE.demonstrate(by_name["calculator"], rng, 0.0)[-1].content.startswith("=")
    with pytest.raises(ConfigError, match="'sums' has no expert"):
        MIXTURE.demonstrate(by_name["sums"], rng, 0.0)


def test_a_run_of_two_environments_has_metrics_of_each(tmp_path, monkeypatch):
    (tmp_path / "more_sums.py").write_text(
        "from soliton.envs.calculator import Calculator\n"
        "class Sums(Calculator):\n"
        "    @staticmethod\n"
        "    def item(rng):\n"
        "        a, b = map(int, rng.integers(50, size=2))\n"
        "        return {'expression': f'{a}+{b}', 'answer': a + b}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mix = [{"name": "calculator", "weight": 1}, {"name": "more_sums:Sums", "weight": 1}]
    more = {"train": {"steps": 2}, "eval": {"every_steps": 2}}
    config = small_run(tmp_path / "run", env={"mix": mix}, stages=["train", "eval"], **more)
    run_here(config)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["stage"] == "train"][-1]
    (held_out,) = [row for row in rows if row["stage"] == "eval"]
    parts = ("calculator", "more_sums:Sums")
    counts = [last[f"env/{name}/trajectory/count"] for name in parts]
    assert sum(counts) == 16
    mean = sum(n * last[f"env/{name}/reward/mean"] for n, name in zip(counts, parts, strict=True)) / 16
    assert mean == pytest.approx(last["reward/mean"])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    after = summary["pass_at_1_by_environment"]["after"]
    assert {name: held_out[f"env/{name}/eval/pass_at_1"] for name in parts} == {n: a["mean"] for n, a in after.items()}
    assert {name: each["n"] for name, each in after.items()} == {"calculator": 4, "more_sums:Sums": 4}


def test_metrics_of_an_environment_are_in_the_table_and_others_are_not():
    assert describe("env/my.module:Game/reward/mean").unit == "reward"
    assert describe("env/calculator/failed").unit == "attempts"
    for name in ("env/calculator/actor/loss", "env//reward/mean", "env/reward"):
        with pytest.raises(KeyError):
            describe(name)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"mix": [{"name": "calculator"}, {"name": "calculator"}]}, "'calculator' 2 times"),
        ({"mix": [{"name": "calculator"}], "num_prompts": 8}, "env.num_prompts"),
        ({"mix": [{"name": "calculator", "weight": 0}]}, "env.mix.0.weight"),
    ],
)
def test_a_mixture_that_contradicts_itself_is_refused(env, message, tmp_path):
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        small_run(tmp_path / "run", env=env)


def test_an_evaluation_is_reported_by_environment_where_there_are_several():
    mixed = Evaluation(("maze/a", "maze/b", "my:Game/c"), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0))
    names = {"eval/pass_at_1": 2 / 3, "env/maze/eval/pass_at_1": 0.5, "env/my:Game/eval/pass_at_1": 1.0}
    assert evaluation_metrics(mixed) == pytest.approx(names)
    assert all(describe(name).unit == "share" for name in names)
    assert evaluation_metrics(Evaluation(("a",), (1.0,), (1.0,))) == {"eval/pass_at_1": 1.0}
