"""The page in words: did it learn, by how much, how sure is that, what went wrong; and the numbers beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from soliton.metrics import METRICS
from soliton.report.html.run import Row, RunRecord
from soliton.report.view import duration


@dataclass(frozen=True)
class Verdict:
    """The line on top.

    Attributes:
        tone: good, bad, flat (nothing can be told apart) or open (nothing was measured).
        headline: one sentence.
        sentences: what qualifies it.
    """

    tone: str
    headline: str
    sentences: list[str]


@dataclass(frozen=True)
class RunAlarm:
    """A metric that left its range.

    Attributes:
        metric, advice: as in `soliton.metrics`.
        limit: the range's edge, in words.
        steps: how many.
        first, last: their first and last step.
        worst: the value furthest from the range.
    """

    metric: str
    advice: str
    limit: str
    steps: int
    first: int
    last: int
    worst: float


def verdict_of(run: RunRecord, alarms: list[RunAlarm], is_running: bool) -> Verdict:
    """Judge a run by its held-out gain; without one by its training reward, which says less."""
    tone, headline, sentences = _result(run)
    ending = run.summary.get("exit", {})
    if is_running:
        sentences.append("The run goes on; this is what there is so far.")
    elif not run.summary:
        sentences.append("The run has not ended, or was killed; this is what it left.")
    elif ending.get("status") != "finished":
        sentences.append(f"The run was {ending.get('status')}: {ending.get('reason')}.")
    if alarms:
        names = ", ".join(alarm.metric for alarm in alarms)
        sentences.append(f"{len(alarms)} alarm{'s' if len(alarms) > 1 else ''}: {names}.")
    elif run.train:
        sentences.append("No metric left its healthy range far enough to raise an alarm.")
    return Verdict(tone, headline, sentences)


def _result(run: RunRecord) -> tuple[str, str, list[str]]:
    before, after, gain = (run.summary.get(f"pass_at_1_{name}") for name in ("before", "after", "gain"))
    if gain and before and after:
        numbers = f"held-out pass@1 went from {before['mean']:.3f} to {after['mean']:.3f}"
        interval = f"Gain {gain['mean']:+.3f}, 95 % interval {gain['low']:+.3f} to {gain['high']:+.3f}, over "
        interval += f"{gain['n']} prompts that training never saw, the same before and after."
        if gain["low"] > 0:
            return "good", f"It learned: {numbers}.", [interval]
        if gain["high"] < 0:
            return "bad", f"It got worse: {numbers}.", [interval]
        return "flat", f"No gain can be told from chance: {numbers}.", [interval]
    if len(run.train) >= 2:
        rewards = run.series("train", "reward/mean")[1]
        few = max(1, min(10, len(rewards) // 4))
        start, end = sum(rewards[:few]) / few, sum(rewards[-few:]) / few
        way = "rose" if end > start else "fell" if end < start else "stayed"
        return (
            "open",
            f"Training reward {way} from {start:.3f} to {end:.3f}; what that is worth was not measured.",
            [f"Means of the first and last {few} of {len(rewards)} batches; no held-out evaluation before and after."],
        )
    if before:
        interval = f"95 % interval {before['low']:.3f} to {before['high']:.3f}, {before['n']} prompts."
        return "open", f"Held-out pass@1 is {before['mean']:.3f}; nothing was trained.", [interval]
    return "open", "Nothing was trained or measured yet.", []


def alarms_of(rows: list[Row]) -> list[RunAlarm]:
    """Every metric that was outside the range at which it alarms, in the order of the table."""
    found = []
    for name, metric in METRICS.items():
        points = [(int(row["step"]), row[name]) for row in rows if isinstance(row.get(name), int | float)]
        bad = [(step, value) for step, value in points if not math.isnan(value) and metric.alarm(value) is not None]
        if bad:
            above = metric.above is not None and any(value > metric.above for _, value in bad)
            limit = f"above {metric.above:g}" if above else f"below {metric.below:g}"
            worst = (max if above else min)(value for _, value in bad)
            found.append(RunAlarm(name, metric.advice, limit, len(bad), bad[0][0], bad[-1][0], worst))
    return found


def tiles_of(run: RunRecord) -> list[tuple[str, str, str]]:
    """(label, value, small print) of the numbers one looks at first."""
    rows, summary = run.train, run.summary
    tiles: list[tuple[str, str, str]] = []
    if gain := summary.get("pass_at_1_gain"):
        tiles.append(("gain in pass@1", f"{gain['mean']:+.3f}", f"{gain['low']:+.3f} to {gain['high']:+.3f}"))
    if rows:
        tiles.append(("learner steps", f"{rows[-1]['train/policy_step']:.0f}", f"{len(rows)} batches"))
        tokens = sum(row["tokens/action"] for row in rows)
        tiles.append(("tokens trained", _big(tokens), "action tokens"))
        stale = [row["staleness/mean"] for row in rows]
        bound = summary.get("staleness", {}).get("bound")
        largest = max(row["staleness/max"] for row in rows)
        tiles.append(("staleness", f"{sum(stale) / len(stale):.1f}", f"largest {largest:.0f}, bound {bound or '—'}"))
        masked = _token_mean(rows, "trust_mask/share")
        if masked is not None:
            tiles.append(("outside the band", f"{100 * masked:.2f} %", "of action tokens"))
        explained = [row["critic/explained_var"] for row in rows[-20:] if row.get("critic/explained_var") is not None]
        if explained:
            tiles.append(("explained variance", f"{sum(explained) / len(explained):.2f}", "last 20 steps"))
    wall_s = summary.get("wall_s") or max(
        (row["time_s"] for all_rows in run.stages.values() for row in all_rows), default=None
    )
    idle = summary.get("idle_share", {}).get("learner")
    tiles.append(("time", duration(wall_s), "" if idle is None else f"learner waits {100 * idle:.0f} %"))
    return tiles


def ledger_of(run: RunRecord) -> list[tuple[str, int, float]]:
    """(where, attempts, share of those issued) of every attempt; [] while there is no ledger."""
    ledger = run.summary.get("ledger")
    if ledger is None:
        rows = [row for row in run.train if "ledger/issued" in row]
        if not rows:
            return []
        last = rows[-1]
        ledger = {name: last[f"ledger/{name}"] for name in ("issued", "trained", "queued", "in_flight", "superseded")}
        prefix = "ledger/dropped_"
        ledger["dropped"] = {name.removeprefix(prefix): last[name] for name in last if name.startswith(prefix)}
    places: dict[str, Any] = {
        "trained": ledger["trained"],
        "queued": ledger["queued"],
        "in flight": ledger["in_flight"],
        "superseded": ledger["superseded"],
        **{f"dropped: {reason.replace('_', ' ')}": count for reason, count in ledger["dropped"].items()},
    }
    issued = max(1, int(ledger["issued"]))
    return [(where, int(count), int(count) / issued) for where, count in places.items()]


def _token_mean(rows: list[Row], name: str) -> float | None:
    weighted = [(row[name], row["tokens/action"]) for row in rows if row.get(name) is not None]
    tokens = sum(weight for _, weight in weighted)
    return sum(value * weight for value, weight in weighted) / tokens if tokens else None


def _big(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g} {letter}"
    return f"{number:.0f}"
