"""`--dry-run`: what a run would be, printed. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from rich.markup import escape

from soliton.commands.arguments import print_json
from soliton.commands.exits import console
from soliton.config import Resolved
from soliton.config.keys import all_keys
from soliton.runtime.plan import Estimate, Plan, plan_of
from soliton.runtime.run import refuse_other_config, resolve_run, run_to_resume

_ORIGIN_STYLE = {"default": "dim", "recipe": "", "override": "bold yellow"}
_WIDTH = 52
"""Columns of `key = value` before its origin."""


def show_plan(
    recipe: Path | None, overrides: list[str], *, stages: list[str] | None, resume: Path | None, as_json: bool
) -> None:
    """Print the resolved configuration and the plan.

    Raises:
        ConfigError: the configuration is not valid, or not that of the run to resume.
    """
    resolved = resolve_run(recipe, overrides, stages=stages, resume=resume)
    if resume is not None:
        refuse_other_config(run_to_resume(resume), resolved.config)
    plan = plan_of(resolved.config, resumed=resume is not None)
    if as_json:
        values = {key: {"value": value, "origin": resolved.origin(key)} for key, value in _values(resolved).items()}
        print_json({"config": values, "config_sha256": resolved.config.sha256(), **plan.as_data()})
        return
    out = console()
    _print_config(out, resolved)
    _print_plan(out, plan)


def _values(resolved: Resolved) -> dict[str, Any]:
    """Dotted key -> plain value, in the order of the reference; entries that only the recipe names come last."""
    flat: dict[str, Any] = {}

    def walk(data: Any, prefix: str) -> None:
        if isinstance(data, dict) and prefix not in all_keys():
            for key, value in data.items():
                walk(value, f"{prefix}.{key}" if prefix else key)
        else:
            flat[prefix] = data

    walk(resolved.config.model_dump(mode="json"), "")
    return flat


def _print_config(out: Console, resolved: Resolved) -> None:
    out.print("[bold]Configuration[/bold] (value, and where it is from)")
    table = ""
    for key, value in sorted(_values(resolved).items(), key=lambda entry: "." in entry[0]):
        inside, _, name = key.rpartition(".")
        if inside != table:
            table = inside
            out.print(f"  [cyan]{escape(f'[{table}]')}[/cyan]")
        origin = resolved.origin(key)
        text = f"{name} = {_toml(value)}"
        style = _ORIGIN_STYLE[origin]
        line = f"    {escape(text):<{_WIDTH}}  # {origin}"
        out.print(f"[{style}]{line}[/{style}]" if style else line, soft_wrap=True)


def _toml(value: Any) -> str:
    """As a recipe would have it."""
    if value is None:
        return "(none)"
    text = " ".join(tomli_w.dumps({"v": value}, multiline_strings=False).partition(" = ")[2].split())
    return text.replace(", ]", " ]")


def _print_plan(out: Console, plan: Plan) -> None:
    _section(out, "What would run", plan.stages)
    _section(out, "Processes", plan.processes)
    _section(out, "Files", plan.files)
    _section(out, "Needs", _needs(plan.estimate))
    _section(out, "Hardware", plan.hardware)
    _section(out, "Worth knowing", plan.warnings, "yellow")
    _section(out, "Not supported yet: `soliton train` refuses this", plan.not_supported, "red")
    _section(out, "Missing here and now: `soliton train` refuses this", plan.missing, "red")
    verdict = "it can start" if plan.can_start else "it cannot start as it is: see above"
    out.print(f"\n[bold]The configuration is valid; {verdict}.[/bold]")


def _needs(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["unknown: the model's folder is absent or its config.json is of an unknown kind"]
    size = f"{estimate.parameters / 1e9:.1f}B" if estimate.parameters >= 1e9 else f"{estimate.parameters / 1e6:.2f}M"
    if estimate.minutes is None:
        return [
            f"policy: about {size} parameters; memory: see hardware; disk: about {estimate.disk_gb:.0f} GB",
            "time: no estimate: nothing of this size has been measured with this version",
        ]
    stages = ", ".join(f"{stage} {minutes or '< 0.1'}" for stage, minutes in estimate.minutes.items())
    return [
        f"policy: about {size} parameters",
        f"memory: about {estimate.memory_gb:g} GB in all processes, {estimate.learner_gb:g} GB of it in the learner; "
        f"disk: about {estimate.disk_gb:g} GB",
        f"time: about {sum(estimate.minutes.values()):.1f} minutes ({stages})",
        f"these are rough: {estimate.basis}",
    ]


def _section(out: Console, title: str, lines: list[str], colour: str = "") -> None:
    if not lines:
        return
    out.print(f"\n[bold {colour}]{escape(title)}[/bold {colour}]" if colour else f"\n[bold]{escape(title)}[/bold]")
    for line in lines:
        out.print(f"  {escape(line)}", soft_wrap=True)
