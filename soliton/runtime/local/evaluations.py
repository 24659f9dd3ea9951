"""Which evaluations are due: none is forgotten, whoever dies, and none is of a policy that was given up.

Owns `weights/evaluation/`: the weights to evaluate, one folder per version, and `due.json`, the list of them, which a
resumed run goes on with. Knows the evaluator only as somebody who takes commands. A learner that goes on from a
checkpoint says again what is due there, as the controller may have died before it heard: what is known is not repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
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
        evaluated: steps whose evaluation is in the metrics.
        send: gives the evaluator a command; nothing happens while it does not run.
    """

    def __init__(self, weights: Path, evaluated: Collection[int], send: Callable[[str], None]) -> None:
        self._evaluated = set(evaluated)
        self._folder = weights / FOLDER
        self._list = self._folder / "due.json"
        self._send = send
        self._is_finishing = False
        self._due = (
            msgspec.json.decode(self._list.read_bytes(), type=list[EvaluationDue]) if self._list.exists() else []
        )

    def add(self, due: EvaluationDue) -> None:
        """One more; a step that is due already, or was evaluated, is not evaluated twice."""
        if due.step not in self._evaluated and all(due.step != other.step for other in self._due):
            self._keep([*self._due, due])
            self._send(_command(due))
        elif all(due.version != other.version for other in self._due):
            self._remove_weights(due.version)

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

    def is_due(self, evaluated: Evaluated) -> bool:
        """Whether a result is wanted: not if its policy was given up, or if its step has one."""
        return evaluated.step not in self._evaluated and any(due.version == evaluated.version for due in self._due)

    def done(self, evaluated: Evaluated) -> None:
        """The result is in the metrics if it was due; nobody needs the weights any more."""
        if self.is_due(evaluated):
            self._evaluated.add(evaluated.step)
            self._keep([due for due in self._due if due.version != evaluated.version])
        self._remove_weights(evaluated.version)

    def go_back(self, batches: int, evaluated: Collection[int]) -> None:
        """Forget those after `batches` batches: the policies are rolled back, their steps will be made again.

        `evaluated` are the steps whose evaluation is in the metrics now.
        """
        self._evaluated = set(evaluated)
        self._keep([due for due in self._due if due.batches <= batches])

    def remove(self) -> None:
        """Nothing is left to do: nothing is left of it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_weights(self, version: int) -> None:
        # Named by `soliton.weights.versions`, which would bring torch into the controller.
        shutil.rmtree(self._folder / f"v_{version}", ignore_errors=True)

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
