"""Run folders as a run leaves them, without a run."""

import json
from pathlib import Path

import msgspec
import numpy as np

from soliton.learner.examples import SCHEMA, StepArrays, StepExamples, examples_of
from soliton.reasons import Status
from soliton.types import AttemptId, Times, Trajectory

EVIL = "</script><script>alert(1);window.broken=1</script><img src=x onerror='window.broken=1'>"


def write_run(
    folder: Path,
    *,
    steps: int = 12,
    every: int = 5,
    gain: tuple[float, float, float] | None = (0.2, 0.1, 0.3),
    ended: bool = True,
    evil: bool = False,
) -> Path:
    """A run folder with metrics, summary, configuration and examples."""
    (folder / "examples").mkdir(parents=True)
    (folder / "logs").mkdir()
    name = json.dumps(EVIL if evil else "calculator")
    (folder / "config.toml").write_text(
        f'algorithm = "sao"\nseed = 3\n[env]\nname = {name}\n[train]\nsteps = {steps}\n'
    )
    (folder / "logs" / "run.log").write_text(f"2026-01-01 WARNING soliton: {EVIL if evil else 'slow'}\n")
    lines = [row(step, np.random.default_rng(step)) for step in range(1, steps + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if ended:
        (folder / "summary.json").write_text(json.dumps(summary(gain)))
    for step in sorted({1, steps, *range(every, steps, every)}):
        examples = StepExamples(schema=SCHEMA, step=step, band=(0.8, 1.28), examples=examples_at(step, evil))
        (folder / "examples" / f"step_{step}.msgpack").write_bytes(msgspec.msgpack.encode(examples))
    return folder


def summary(gain: tuple[float, float, float] | None) -> dict[str, object]:
    """What `summary.json` says."""

    def estimate(mean: float, low: float, high: float) -> dict[str, float]:
        return {"mean": mean, "low": low, "high": high, "n": 64}

    return {
        "algorithm": "sao",
        "seed": 3,
        "pass_at_1_before": estimate(0.4, 0.3, 0.5) if gain else None,
        "pass_at_1_after": estimate(0.4 + gain[0], 0.5, 0.7) if gain else None,
        "pass_at_1_gain": estimate(*gain) if gain else None,
        "ledger": {
            "issued": 100,
            "trained": 80,
            "queued": 10,
            "in_flight": 5,
            "superseded": 2,
            "dropped": {"stale": 3},
        },
        "staleness": {"mean": 2.0, "max": 5.0, "bound": 8},
        "wall_s": 61.0,
        "exit": {"status": "finished", "reason": None},
    }


def row(step: int, rng: np.random.Generator) -> dict[str, object]:
    """One line of metrics of the training stage."""
    noise = float(rng.normal(0, 0.02))
    ledger = {
        "issued": 100,
        "trained": 80,
        "queued": 10,
        "in_flight": 5,
        "superseded": 2,
        "dropped": 3,
        "dropped_stale": 3,
    }
    return {
        "stage": "train",
        "step": step,
        "time_s": 2.0 * step,
        "reward/mean": 0.3 + 0.01 * step + noise,
        "tokens/action": 300.0,
        "tokens/total": 900.0,
        "trajectory/length_mean": 50.0 + 100 * noise,
        "staleness/mean": 2.0 + noise,
        "staleness/max": 5.0,
        "trust_mask/share": 0.02 + abs(noise) / 10,
        "trust_mask/share_low": 0.01 + abs(noise) / 10,
        "trust_mask/share_high": 0.01,
        "log_ratio/mean": -0.002,
        "log_ratio/abs_mean": 0.01 + abs(noise) / 10,
        "critic/explained_var": None if step == 2 else 0.2 + noise,
        "critic/grad_norm": 2.0,
        "critic/grad_norm_max": 3.0,
        "actor/grad_norm": 0.3 + noise,
        "actor/entropy": 0.5 - 0.001 * step,
        "actor/loss": 0.01,
        "actor/lr": 1e-4,
        "ratio/max": 1.5,
        "time/clock_s": 1.5 * step,
        "wait/batch_s": 0.5 * step,
        "wait/hold_s": 0.0,
        "wait/admission_s": 0.2 * step,
        "train/policy_step": float(step),
        **{f"ledger/{name}": float(count) for name, count in ledger.items()},
    }


def examples_at(step: int, evil: bool) -> list[object]:
    """Recorded examples of a step of four trajectories; text is made of letters."""
    trajectories = [trajectory(i, length=20 + i) for i in range(4)]
    length = sum(len(t.token_ids) for t in trajectories)
    rng = np.random.default_rng(step)
    then = np.concatenate([t.rollout_logprobs for t in trajectories])
    sides = np.where(np.isnan(then), 0, rng.integers(-1, 2, length)).astype(np.int8)
    arrays = StepArrays(
        trajectories=trajectories,
        staleness=list(range(4)),
        policy_logprobs=np.nan_to_num(then) + np.float32(0.1),
        sides=sides,
        values=rng.normal(size=length).astype(np.float32),
        advantages=rng.normal(size=length).astype(np.float32),
    )
    word = (lambda i: EVIL if i % 7 == 0 else chr(97 + i % 26)) if evil else (lambda i: chr(97 + i % 26))
    return list(examples_of(arrays, seed=step, pieces=lambda ids: [word(i) for i in ids], max_tokens=64))


def trajectory(number: int, length: int) -> Trajectory:
    """Three tokens of a prompt, then action tokens with a reward on the last one."""
    roles = np.array([0, 1, 1] + [2] * (length - 3), dtype=np.uint8)
    sampled = roles == 2
    return Trajectory(
        attempt=AttemptId(number),
        prompt_id=f"prompt{number}",
        status=Status.TERMINATED,
        token_ids=np.arange(length, dtype=np.int32),
        roles=roles,
        rollout_logprobs=np.where(sampled, -0.5, np.nan).astype(np.float32),
        versions=np.where(sampled, 3, -1).astype(np.int32),
        reward_positions=np.array([length - 1], dtype=np.int32),
        reward_values=np.array([float(number % 2)], dtype=np.float32),
        times=Times(0.0, 0.0, 1.0),
    )
