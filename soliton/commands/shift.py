"""`soliton shift`: move a run into another phase, while it goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from soliton.commands.arguments import Run
from soliton.commands.exits import exit_codes

Phase = Annotated[int, typer.Argument(metavar="PHASE", help="The phase from now on; the first one is 1.", min=1)]


def shift(run: Run, phase: Phase) -> None:
    """Move a run into another phase: from now on its environments show and judge as in PHASE.

    For environments whose preferences or tools change, such as `style`. It holds until the next `shift`, through
    restarts, whatever env.shifts says. Each trajectory records the phase in which it was judged (metric info/phase).
    Only in the `local` runtime; an `inline` run repeats itself to the bit, so its shifts are in its recipe.

    \b
    Example:
      soliton shift runs/style 2
    """
    with exit_codes():
        from soliton.runtime.shift import shift_run

        typer.echo(shift_run(run, phase))
