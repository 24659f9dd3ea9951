"""Which evaluations are due: none is forgotten, whoever dies, and none is of a policy that was given up.

Owns `weights/evaluation/`: the weights to evaluate, one folder per version, and `due.json`, the list of them, which a
resumed run goes on with. Knows the evaluator only as somebody who takes commands.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from soliton.atomic import atomic_file
from soliton.runtime.local.disk import FULL
from soliton.runtime.local.events import Evaluated, EvaluationDue

FOLDER = "evaluation"
"""Below `weights/`."""
FINISH = "finish"
"""Command: nothing more will come."""


class Evaluations:
    """What the evaluator still has to do.

    Args:
        weights: the run's folder of published versions.
        send: gives the evaluator a command; nothing happens while it does not run.
    """

    def __init__(self, weights: Path, send: Callable[[str], None]) -> None:
        self._folder = weights / FOLDER
        self._list = self._folder / "due.json"
        self._send = send
        self._is_finishing = False
        self._due = (
            msgspec.json.decode(self._list.read_bytes(), type=list[EvaluationDue]) if self._list.exists() else []
        )

    def add(self, due: EvaluationDue) -> None:
        """One more; a step that is due already is not evaluated twice."""
        if all(due.step != other.step for other in self._due):
            self._keep([*self._due, due])
            self._send(_command(due))

    def finish(self) -> None:
        """Nothing more will come: the evaluator ends after what is due."""
        self._is_finishing = True
        self._send(FINISH)

    def repeat(self) -> None:
        """Tell an evaluator that has just started all there is to do."""
        for due in self._due:
            self._send(_command(due))
        if self._is_finishing:
            self._send(FINISH)

    def done(self, evaluated: Evaluated) -> bool:
        """One is done; False if it is not of this lineage any more, so that its result means nothing."""
        left = [due for due in self._due if due.version != evaluated.version]
        was_due = len(left) < len(self._due)
        if was_due:
            self._keep(left)
        return was_due

    def go_back(self, batches: int) -> None:
        """Forget those after `batches` batches: the policies are rolled back, their steps will be made again."""
        self._keep([due for due in self._due if due.batches <= batches])

    def remove(self) -> None:
        """Nothing is left to do: nothing is left of it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self, due: list[EvaluationDue]) -> None:
        if due == self._due:
            return
        self._due = due
        try:
            with atomic_file(self._list) as file:
                file.write_bytes(msgspec.json.encode(due))
        except OSError as error:
            if error.errno not in FULL:
                raise  # otherwise the list here counts, and the next change writes it


def _command(due: EvaluationDue) -> str:
    return f"evaluate {due.version} {due.step} {due.batches}"
