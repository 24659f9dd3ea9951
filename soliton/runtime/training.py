"""What the training stage is given and what it leaves, whatever the runtime; and what it says of each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from soliton.failpoints import failpoint
from soliton.learner.learner import Learner
from soliton.metrics import alarms
from soliton.report.view import RunView
from soliton.runtime.learning import StepMetrics
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import Setup
from soliton.types import Ledger

STAGE = "train"


@dataclass(frozen=True)
class TrainingStage:
    """What a runtime trains with.

    Attributes:
        setup: task and settings.
        learner: at step 0; a runtime loads a checkpoint into it if there is one.
        folder: where metrics and checkpoints go.
        view: who watches.
        elapsed_s: real seconds of the whole run so far.
        evaluate: held-out metrics of the learner's actor now, in the phase of a step.
    """

    setup: Setup
    learner: Learner
    folder: RunFolder
    view: RunView
    elapsed_s: Callable[[], float]
    evaluate: Callable[[int], StepMetrics]


@dataclass(frozen=True)
class Trained:
    """The end of training.

    Attributes:
        step: learner steps published.
        ledger: where every attempt ended.
    """

    step: int
    ledger: Ledger


Train = Callable[[TrainingStage], Trained]
"""A runtime: moves the stage's learner from where it is to the last step."""


class StepReport:
    """Writes down each batch and says what is wrong with it.

    Args:
        stage: whose steps.
    """

    def __init__(self, stage: TrainingStage) -> None:
        self._folder = stage.folder
        self._view = stage.view
        self._elapsed_s = stage.elapsed_s
        self._alarmed: frozenset[str] = frozenset()

    def step(self, step: int, batches: int, metrics: StepMetrics) -> None:
        """A batch is done."""
        self._folder.append_metrics(STAGE, batches, self._elapsed_s(), metrics)
        self._view.update(step, metrics)
        self._raise_alarms(step, alarms(metrics))
        failpoint("train.step")

    def evaluation(self, step: int, batches: int, held_out: StepMetrics) -> None:
        """The policy of `step` was evaluated."""
        metrics = {**held_out, "train/policy_step": float(step)}
        self._folder.append_metrics("eval", batches, self._elapsed_s(), metrics)
        self._view.update(step, metrics)

    def _raise_alarms(self, step: int, texts: list[str]) -> None:
        """Say each alarm when it begins, and not again while it lasts; the metrics hold every step of it."""
        active = {text.split(" = ")[0]: text for text in texts}
        for metric, text in active.items():
            if metric not in self._alarmed:
                self._view.alarm(f"step {step}: {text}")
        self._alarmed = frozenset(active)
