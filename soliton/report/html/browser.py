"""Recorded examples as the page's browser of trajectories takes them: columns of numbers, within a budget of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from soliton.learner.examples import Example, StepExamples
from soliton.report.html.charts import rounded

TOKEN_BUDGET = 40_000
"""Tokens of all examples on the page together; about 40 bytes each."""
LONGEST = 2_000
"""Tokens shown of one example when all of them are more than the budget."""


def browser_data(steps: list[StepExamples]) -> dict[str, Any]:
    """Steps and their examples; `left_out` says how many recorded steps the budget excludes."""
    kept = within_budget(steps)
    return {
        "left_out": len(steps) - len(kept),
        "steps": [
            {"step": step.step, "band": list(step.band), "examples": [_columns(e) for e in step.examples]}
            for step in kept
        ],
    }


def within_budget(steps: list[StepExamples]) -> list[StepExamples]:
    """The first and the last step, and as many between, evenly spread, as the budget has room for."""
    count = len(steps)
    while count > 2:
        chosen = [steps[i] for i in sorted({round(i * (len(steps) - 1) / (count - 1)) for i in range(count)})]
        if sum(_tokens_shown(e) for step in chosen for e in step.examples) <= TOKEN_BUDGET:
            return chosen
        count -= 1
    return [steps[0], steps[-1]] if len(steps) > 1 else steps


def _tokens_shown(example: Example) -> int:
    return min(len(example.pieces), LONGEST)


def _columns(example: Example) -> dict[str, Any]:
    length = len(example.pieces)
    kept, cut_at = np.arange(length), example.cut_at
    if length > LONGEST:
        cut_at = LONGEST // 2 if cut_at is None else min(cut_at, LONGEST // 2)
        kept = np.concatenate([kept[:cut_at], kept[length - (LONGEST - cut_at) :]])

    def column(data: bytes | None, dtype: str) -> list[float | int | None] | None:
        if data is None:
            return None
        return [rounded(v) if np.isfinite(v) else None for v in np.frombuffer(data, dtype)[kept].tolist()]

    roles = np.frombuffer(example.roles, "u1")[kept]
    sides = None if example.sides is None else np.frombuffer(example.sides, "i1")[kept]
    return {
        "attempt": example.attempt,
        "prompt": example.prompt_id,
        "status": example.status,
        "reason": example.reason,
        "reward": rounded(example.reward),
        "staleness": example.staleness,
        "outside": example.outside,
        "why": list(example.why),
        "tokens": example.num_tokens,
        "cut_at": cut_at,
        "pieces": [example.pieces[i] for i in kept],
        "roles": "".join(str(role) for role in roles.tolist()),
        "versions": np.frombuffer(example.versions, "<i4")[kept].tolist(),
        "rewards": column(example.rewards, "<f4"),
        "then": column(example.rollout_logprobs, "<f4"),
        "now": column(example.policy_logprobs, "<f4"),
        "sides": None if sides is None else "".join("-0+"[side + 1] for side in sides.tolist()),
        "values": column(example.values, "<f4"),
        "advantages": column(example.advantages, "<f4"),
    }
