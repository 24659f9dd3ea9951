"""Puts the page together: template, style and script from the package, data from the run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from soliton.report.html.browser import browser_data
from soliton.report.html.charts import other_panels, panels_of
from soliton.report.html.configuration import Setting
from soliton.report.html.run import read_run
from soliton.report.html.verdict import alarms_of, ledger_of, tiles_of, verdict_of

TEMPLATES = "templates"


def render_report(run: Path, settings: Sequence[Setting], *, is_running: bool = False) -> str:
    """The page of a run, whatever there is of it.

    Args:
        run: its folder.
        settings: its configuration.
        is_running: a process works in it now.

    Raises:
        ConfigError: it is no run folder.
    """
    record = read_run(run)
    alarms = alarms_of(record.train)
    script = _text("report.js")
    browser = browser_data(record.examples)
    data = {"panels": panels_of(record), "others": other_panels(record), "browser": browser}
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            run=record,
            verdict=verdict_of(record, alarms, is_running),
            status=_status(record.summary, is_running),
            tiles=tiles_of(record),
            estimates=_estimates(record.summary),
            ledger=ledger_of(record),
            alarms=alarms,
            tables=[(table, list(rows)) for table, rows in groupby(settings, key=lambda row: row.table)],
            num_changed=sum(row.differs for row in settings),
            style=_text("report.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=_json(data),
        )
    )


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("soliton.report.html", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _text(name: str) -> str:
    return files("soliton.report.html").joinpath(TEMPLATES, name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _status(summary: dict[str, Any], is_running: bool) -> str:
    if is_running:
        return "running"
    return str(summary.get("exit", {}).get("status", "unfinished"))


def _estimates(summary: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    return [(name, summary[f"pass_at_1_{name}"]) for name in ("before", "after") if summary.get(f"pass_at_1_{name}")]
