"""Contradictions within `[env]`: shifts that never come, a judge that cannot judge here, keys that nobody reads."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from soliton.config.problems import Problem

if TYPE_CHECKING:
    from soliton.config.run_config import RunConfig

JUDGES_READ = {
    "rules": frozenset({"kind"}),
    "llm": frozenset(
        {"kind", "url", "model", "api_key_env", "temperature", "timeout_s", "max_requests", "first_pause_s"}
    ),
    "outside": frozenset({"kind", "within_s"}),
}
"""Keys of `[env.judge]` that each kind of judge reads."""


def shift_problems(config: RunConfig) -> list[Problem]:
    """Shifts out of order, or at a step that the run does not reach."""
    shifts, steps = config.env.shifts, config.train.steps
    if any(later < earlier for earlier, later in pairwise(shifts)):
        return [Problem(("env.shifts",), f"env.shifts: got {list(shifts)}; allowed are steps in rising order")]
    if "train" in config.stages and shifts and shifts[-1] >= steps:
        return [
            Problem(
                ("env.shifts", "train.steps"),
                f"env.shifts: got {list(shifts)}, but training ends at train.steps = {steps}, so step {shifts[-1]} "
                "changes nothing; drop it or train longer",
            )
        ]
    return []


def judge_problems(config: RunConfig) -> list[Problem]:
    """A judge without what it needs, where it cannot work, or with keys that it does not read."""
    judge = config.env.judge
    defaults = type(judge).model_fields
    problems = [
        Problem(
            (f"env.judge.{key}", "env.judge.kind"),
            f"env.judge.{key}: got {getattr(judge, key)!r}, but the judge {judge.kind!r} does not read it; drop the "
            "key, or choose another kind",
        )
        for key in defaults
        if key not in JUDGES_READ[judge.kind] and getattr(judge, key) != defaults[key].default
    ]
    if judge.kind == "llm" and judge.model is None:
        problems.append(
            Problem(("env.judge.model",), "env.judge.model: got none; the judge 'llm' needs the model's name")
        )
    if judge.kind != "rules" and config.runtime == "inline" and "train" in config.stages:
        problems.append(
            Problem(
                ("env.judge.kind", "runtime"),
                f"env.judge.kind: got {judge.kind!r}, but the inline runtime is deterministic and waits for nobody "
                'outside it; use runtime = "local", or the judge "rules"',
            )
        )
    if judge.kind == "outside" and (
        config.eval.every_steps or not {"value_pretraining", "eval"}.isdisjoint(config.stages)
    ):
        problems.append(
            Problem(
                ("env.judge.kind", "stages", "eval.every_steps"),
                "env.judge.kind: got 'outside', but value pretraining and evaluation need rewards at once; use stages "
                '["sft", "train"] or ["train"], and eval.every_steps = 0',
            )
        )
    return problems
