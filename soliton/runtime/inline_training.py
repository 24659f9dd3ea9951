"""The reinforcement-learning stage of the `inline` runtime: segments, checkpoints and evaluations in between.

Guarantees: a run killed at any moment and resumed ends with the weights, ledger and metrics of one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from soliton.learner.learner import Learner
from soliton.metrics import alarms
from soliton.report.view import RunView
from soliton.rollout.episode import EpisodeState
from soliton.runtime.checkpoint import list_checkpoints, newest_whole_checkpoint, write_checkpoint
from soliton.runtime.failpoints import failpoint
from soliton.runtime.inline import Boundary, InlineSegment, StepMetrics, first_boundary
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import Setup
from soliton.weights import load_tensors, save_tensors

STAGE = "train"


class InlineTraining:
    """Owns the learner's way from its first step to its last.

    Args:
        setup: task and settings.
        learner: at step 0; `run` loads a checkpoint into it if there is one.
        folder: where metrics and checkpoints go.
        view: who watches.
        elapsed_s: real seconds of the whole run so far.
        evaluate: pass@1 of the learner's actor now, for evaluations during training.
    """

    def __init__(
        self,
        setup: Setup,
        learner: Learner,
        folder: RunFolder,
        view: RunView,
        elapsed_s: Callable[[], float],
        evaluate: Callable[[], float],
    ) -> None:
        self._setup = setup
        self._learner = learner
        self._folder = folder
        self._view = view
        self._elapsed_s = elapsed_s
        self._evaluate = evaluate
        self._alarmed: frozenset[str] = frozenset()

    def run(self) -> Boundary:
        """Train to the last step; returns the final boundary."""
        config = self._setup.config
        self._view.stage(STAGE, config.train.steps)
        boundary = self._resumed() or first_boundary(self._setup, self._learner)
        while boundary.step < config.train.steps:
            segment = InlineSegment(self._setup, self._learner, boundary, self._on_step)
            until = self._next_stop(boundary.step)
            boundary = segment.run(until)
            assert boundary.step == until, "the prompts of a run never end"
            if config.eval.every_steps and self._is_due(boundary.step, config.eval.every_steps):
                self._evaluate_now(boundary)  # before the checkpoint: a resumed run never evaluates this step again
            if self._is_due(boundary.step, config.checkpoint.every_steps):
                self._save(boundary)
        return boundary

    def _next_stop(self, step: int) -> int:
        """The next step at which a checkpoint or an evaluation is due: a function of the configuration alone."""
        config = self._setup.config
        periods = [config.checkpoint.every_steps, *([config.eval.every_steps] if config.eval.every_steps else [])]
        return min(config.train.steps, *((step // period + 1) * period for period in periods))

    def _is_due(self, step: int, period: int) -> bool:
        return step % period == 0 or step == self._setup.config.train.steps

    def _on_step(self, step: int, batches: int, metrics: StepMetrics) -> None:
        self._folder.append_metrics(STAGE, batches, self._elapsed_s(), metrics)
        self._view.update(step, metrics)
        self._raise_alarms(step, alarms(metrics))
        failpoint("train.step")

    def _raise_alarms(self, step: int, texts: list[str]) -> None:
        """Say each alarm when it begins, and not again while it lasts; the metrics hold every step of it."""
        active = {text.split(" = ")[0]: text for text in texts}
        for metric, text in active.items():
            if metric not in self._alarmed:
                self._view.alarm(f"step {step}: {text}")
        self._alarmed = frozenset(active)

    def _evaluate_now(self, boundary: Boundary) -> None:
        metrics = {"eval/pass_at_1": self._evaluate(), "train/policy_step": float(boundary.step)}
        self._folder.append_metrics("eval", boundary.batches, self._elapsed_s(), metrics)
        self._view.update(boundary.step, metrics)

    def _save(self, boundary: Boundary) -> None:
        tensors, numbers = self._learner.state()

        def write(folder: Path) -> None:
            save_tensors(tensors, folder / "learner.safetensors")
            (folder / "store.msgpack").write_bytes(boundary.store)
            (folder / "episodes.msgpack").write_bytes(msgspec.msgpack.encode(boundary.episodes))
            (folder / "state.json").write_text(json.dumps(self._state_of(boundary, numbers), indent=1))

        write_checkpoint(self._folder.checkpoints, boundary.step, write, self._setup.config.checkpoint.keep)

    def _state_of(self, boundary: Boundary, numbers: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": boundary.step,
            "batches": boundary.batches,
            "now_s": boundary.now_s.hex(),  # exact: decimal text would round
            "learner": numbers,
            "config_sha256": self._setup.config.sha256(),
        }

    def _resumed(self) -> Boundary | None:
        """Load the newest whole checkpoint into the learner, if there is any."""
        checkpoint = newest_whole_checkpoint(self._folder.checkpoints, self._view.alarm)
        if checkpoint is None:
            if list_checkpoints(self._folder.checkpoints):
                self._view.alarm("every checkpoint is damaged; the training stage begins again")
            self._folder.truncate_metrics(STAGE, after_step=0)
            return None
        state = json.loads((checkpoint / "state.json").read_text())
        self._learner.load_state(load_tensors(checkpoint / "learner.safetensors"), state["learner"])
        self._folder.truncate_metrics(STAGE, after_step=state["batches"])
        self._view.note(f"going on from {checkpoint.name}")
        return Boundary(
            step=state["step"],
            batches=state["batches"],
            now_s=float.fromhex(state["now_s"]),
            store=(checkpoint / "store.msgpack").read_bytes(),
            episodes=msgspec.msgpack.decode(
                (checkpoint / "episodes.msgpack").read_bytes(), type=tuple[EpisodeState, ...]
            ),
        )
