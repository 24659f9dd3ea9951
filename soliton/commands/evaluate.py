"""`soliton eval`: how good a policy is on held-out prompts, and how sure we are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from soliton.commands.arguments import Json, Overrides, Quiet, print_json, refuse_options
from soliton.commands.exits import exit_codes, new_view

if TYPE_CHECKING:
    from soliton.runtime.evaluate import Target

Policy = Annotated[
    Path, typer.Argument(metavar="MODEL|RUN|RECIPE.toml", help="A Hugging Face folder, a run folder, or a recipe.")
]
Runs = Annotated[int, typer.Option("--runs", "-k", min=1, help="Rollouts of each prompt, each run with its own seed.")]
WithRecipe = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="RECIPE.toml", help="Task and limits for a Hugging Face folder of no run."),
]


def evaluate(
    policy: Policy,
    overrides: Overrides = None,
    runs: Runs = 1,
    recipe: WithRecipe = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure pass@1 on held-out prompts, with its 95 % interval; nothing is trained or written.

    With --runs K every prompt is rolled out K times: avg@k is the mean share of rollouts that solve a prompt, pass@k
    the share of prompts that at least one rollout solves. Run i samples with seed eval.seed + i; the seeds are printed.

    \b
    Examples:
      soliton eval runs/calculator
      soliton eval runs/calculator/final --runs 4 eval.num_prompts=512
      soliton eval some/huggingface/folder --recipe recipes/calculator.toml
      soliton eval recipes/calculator.toml init.model=some/folder --json
    """
    view = new_view(quiet or as_json)
    with exit_codes(None if as_json else view):
        from soliton.runtime.evaluate import evaluate as evaluate_target
        from soliton.runtime.evaluate import find_target

        refuse_options([policy, *(overrides or [])], ("--runs", "--recipe", "--quiet", "--json", "--help"))
        target = find_target(policy, recipe, list(overrides or []))
        rewards: list[float] = []

        def progress(finished: int, reward: float) -> None:
            rewards.append(reward)
            if finished % 16 == 0:
                view.update(finished, {"reward/mean": sum(rewards) / len(rewards)})

        view.stage("eval", runs * target.config.eval.num_prompts)
        result = _summary(target, evaluate_target(target, runs, progress))
        if as_json:
            print_json(result)
            return
        view.note(f"{target.name}: sampling seeds {', '.join(map(str, result['seeds']))}")
        view.finish("; ".join(f"{name} {_shown(result[key])}" for name, key in _shown_names(runs) if key in result))


def _summary(target: Target, done: list[tuple[int, Any]]) -> dict[str, Any]:
    from msgspec import to_builtins as plain

    from soliton.evals.repeated import avg_at_k, pass_at_k

    seeds, runs = [seed for seed, _ in done], [run for _, run in done]
    result: dict[str, Any] = {
        "policy": target.name,
        "env": target.config.env.name,
        "num_prompts": target.config.eval.num_prompts,
        "prompts_seed": target.config.eval.seed,
        "seeds": seeds,
        "pass_at_1": plain(runs[0].pass_at_1()),
    }
    if len(runs) > 1:
        result["avg_at_k"] = plain(avg_at_k(runs, target.config.eval.seed))
        result["pass_at_k"] = plain(pass_at_k(runs))
    return result


def _shown_names(runs: int) -> list[tuple[str, str]]:
    first = "pass@1 of the first run" if runs > 1 else "pass@1"
    return [(first, "pass_at_1"), (f"avg@{runs}", "avg_at_k"), (f"pass@{runs}", "pass_at_k")]


def _shown(estimate: dict[str, Any]) -> str:
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}] (n={estimate['n']})"
