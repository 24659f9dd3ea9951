"""`soliton inspect`: a run, its ledger and its trajectories, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from soliton.commands.arguments import Json, Run, print_json
from soliton.commands.exits import console, exit_codes
from soliton.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from soliton.runtime.inspection import Page, Seen, Tokens

STATUSES = ("terminated", "truncated", "failed", "in_flight", "queued", "superseded", "dropped", "trained")
_ROLE_STYLES = {0: "dim", 1: "cyan", 2: "bold green"}
_ROLE_NAMES = {0: "template", 1: "observation", 2: "action"}
_OUTSIDE_STYLE = "bold white on red"


def inspect(
    run: Run,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Trajectories shown; 0: all.")] = 5,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Go on after so many of those that match.")] = 0,
    draw: Annotated[int | None, typer.Option("--draw", help="Only attempts at this prompt of the stream.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", help=f"How it ended or where it is: {', '.join(STATUSES)}.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why it was cut, failed or dropped, e.g. turn_limit, stale.")
    ] = None,
    min_reward: Annotated[float | None, typer.Option("--min-reward", help="Total reward at least.")] = None,
    max_reward: Annotated[float | None, typer.Option("--max-reward", help="Total reward at most.")] = None,
    min_staleness: Annotated[int | None, typer.Option("--min-staleness", help="Learner steps, at least.")] = None,
    max_staleness: Annotated[int | None, typer.Option("--max-staleness", help="Learner steps, at most.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", "-t", help="A table with one row per token.")] = False,
    as_json: Json = False,
) -> None:
    """Look into a run: summary, ledger and trajectories, tokens coloured by role.

    Sampled tokens are green (red outside the trust band, where the learner's view was recorded), observations cyan,
    chat markup dim; without colours sampled text stands between ⟦ and ⟧. --tokens lists log-probs, versions, and where
    recorded ratios, values and advantages. Filters combine. Works while the run goes on.

    \b
    Examples:
      soliton inspect runs/calculator
      soliton inspect runs/calculator --max-reward 0 --limit 3 --tokens
      soliton inspect runs/calculator --status dropped --reason stale --limit 0
      soliton inspect runs/calculator --limit 20 --skip 20
      soliton inspect runs/calculator --draw 17 --json
    """
    with exit_codes():
        from soliton.report.folder import read_summary
        from soliton.runtime.inspection import Filters, Page, overview, page_of
        from soliton.runtime.report import is_locked
        from soliton.runtime.run_folder import RunFolder

        folder = RunFolder(run)
        if not folder.config.exists():
            raise ConfigError(f"{run} holds no run (it has no config.toml); give the folder that run.dir names")
        if status is not None and status not in STATUSES:
            raise ConfigError(f"--status: got {status!r}; allowed are {', '.join(STATUSES)}")
        filters = Filters(min_reward, max_reward, min_staleness, max_staleness, status, reason, draw)
        summary = None if is_locked(run) else read_summary(run)  # while it goes on it is that of an earlier start
        page, problem = Page([], 0), ""
        try:
            page = page_of(folder, filters, skip=skip, limit=limit)
        except ConfigError as error:  # an inline run without examples still has a summary
            if filters != Filters():
                raise
            problem = str(error)
        lines = overview(folder, summary)
        if as_json:
            plain = [_plain(seen) for seen in page.shown]
            print_json({"overview": dict(lines), "matching": page.matching, "trajectories": plain})
            return
        _print(console(), lines, problem or _found(page, skip), page.shown, tokens)


def _found(page: Page, skip: int) -> str:
    end = skip + len(page.shown)
    if page.matching is None:
        return f"shown are {skip + 1} to {end} of those that match (--skip {end} goes on):"
    counted = "1 trajectory matches" if page.matching == 1 else f"{page.matching} trajectories match"
    more = f" (--skip {end} goes on)" if end < page.matching else ""
    return f"{counted}; shown are {skip + 1} to {end}{more}:" if page.shown else counted


def _print(out: Console, lines: list[tuple[str, str]], found: str, shown: list[Seen], tokens: bool) -> None:
    from rich.markup import escape

    for what, value in lines:
        out.print(f"[bold]{escape(what):<18}[/bold] {escape(value)}", soft_wrap=True)
    out.print(f"\n{escape(found)}", soft_wrap=True)
    for seen in shown:
        out.print()
        out.print(f"[bold]{seen.attempt}[/bold] {escape(_facts(seen))}", soft_wrap=True)
        if seen.tokens is None:
            out.print("  nothing of it is stored yet")
        elif tokens:
            out.print(_table(seen.tokens))
        else:
            out.print(_text(seen.tokens, out.is_terminal), soft_wrap=True)


def _facts(seen: Seen) -> str:
    facts = [seen.state, f"{seen.status or ''}{f' ({seen.reason})' if seen.reason else ''}"]
    if seen.reward is not None:
        facts.append(f"reward {seen.reward:g}")
    if seen.staleness is not None:
        facts.append(f"staleness {seen.staleness}")
    if seen.batch is not None:
        facts.append(f"batch {seen.batch}")
    if seen.versions is not None:
        oldest, newest = seen.versions
        facts.append(f"version {oldest}" if oldest == newest else f"versions {oldest} to {newest}")
    facts.append(f"{seen.num_actions} sampled tokens")
    if seen.why:
        facts.append(f"recorded as {', '.join(seen.why)}")
    return ", ".join(fact for fact in facts if fact)


def _outside(tokens: Tokens, i: int) -> bool:
    ratios = tokens.ratios
    if ratios is None or tokens.band is None or tokens.roles[i] != 2:
        return False
    return not tokens.band[0] < ratios[i] < tokens.band[1]


def _text(tokens: Tokens, coloured: bool) -> Any:
    from rich.text import Text

    text, before = Text("  "), -1
    for i, piece in enumerate(tokens.pieces):
        role = int(tokens.roles[i])
        if not coloured and role != before and 2 in (role, before):
            text.append("⟦" if role == 2 else "⟧")
        if i == tokens.cut_at:
            text.append(" [...] ", style="dim")
        text.append(piece, style=_OUTSIDE_STYLE if _outside(tokens, i) else _ROLE_STYLES[role])
        before = role
    if not coloured and before == 2:
        text.append("⟧")
    return text


def _table(tokens: Tokens) -> Any:
    from rich.markup import escape
    from rich.table import Table

    columns: dict[str, Any] = {
        "log-prob": tokens.rollout_logprobs,
        "policy": tokens.policy_logprobs,
        "ratio": tokens.ratios,
        "value": tokens.values,
        "advantage": tokens.advantages,
    }
    known = {name: array for name, array in columns.items() if array is not None and len(array)}
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("", "token", "role", "version", *known, "reward"):
        words = name in ("token", "role")
        table.add_column(
            name, justify="left" if words else "right", no_wrap=True, min_width=None if words else len(name)
        )
    for i, piece in enumerate(tokens.pieces):
        role = int(tokens.roles[i])
        numbers = [f"{array[i]:.3f}" if role == 2 and array[i] == array[i] else "" for array in known.values()]
        version = str(tokens.versions[i]) if role == 2 else ""
        reward = f"{tokens.rewards[i]:g}" if tokens.rewards[i] else ""
        style = _OUTSIDE_STYLE if _outside(tokens, i) else _ROLE_STYLES[role]
        table.add_row(str(i), escape(repr(piece)), _ROLE_NAMES[role], version, *numbers, reward, style=style)
    return table


def _plain(seen: Seen) -> dict[str, Any]:
    tokens = seen.tokens
    data: dict[str, Any] = {key: value for key, value in vars(seen).items() if key != "read_tokens"}
    if tokens is None:
        return {**data, "tokens": None}
    columns = {
        "rollout_logprob": tokens.rollout_logprobs,
        "policy_logprob": tokens.policy_logprobs,
        "ratio": tokens.ratios,
        "value": tokens.values,
        "advantage": tokens.advantages,
    }
    return {
        **data,
        "band": tokens.band,
        "tokens": [
            {
                "text": piece,
                "role": _ROLE_NAMES[int(tokens.roles[i])],
                "version": int(tokens.versions[i]) if tokens.roles[i] == 2 else None,
                "reward": float(tokens.rewards[i]),
                **{
                    name: float(array[i])
                    for name, array in columns.items()
                    if array is not None and len(array) and tokens.roles[i] == 2 and array[i] == array[i]
                },
            }
            for i, piece in enumerate(tokens.pieces)
        ],
    }
