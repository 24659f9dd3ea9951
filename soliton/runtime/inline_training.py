"""The training stage of the `inline` runtime: segments, checkpoints and evaluations in between.

Guarantees: a run killed at any moment and resumed ends with the weights, ledger and metrics of one that was not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from soliton.rollout.episode import EpisodeState
from soliton.runtime.checkpoint import list_checkpoints, newest_whole_checkpoint, write_checkpoint
from soliton.runtime.inline import Boundary, InlineSegment, first_boundary
from soliton.runtime.phases import PhaseBegun
from soliton.runtime.training import STAGE, StepReport, Trained, TrainingStage
from soliton.store.memory import MemoryStore
from soliton.weights import load_tensors, save_tensors


def train_inline(stage: TrainingStage) -> Trained:
    """Train from where the newest checkpoint is, else from the beginning, to the last step."""
    boundary = InlineTraining(stage).run()
    return Trained(boundary.step, MemoryStore.ledger_of(boundary.store))


class InlineTraining:
    """Owns the learner's way from its first step to its last.

    Args:
        stage: what to train with.
    """

    def __init__(self, stage: TrainingStage) -> None:
        self._stage = stage
        self._config = stage.setup.config
        self._report = StepReport(stage)

    def run(self) -> Boundary:
        """Train to the last step; returns the final boundary."""
        config, setup, learner = self._config, self._stage.setup, self._stage.learner
        self._stage.view.stage(STAGE, config.train.steps)
        boundary = self._resumed() or first_boundary(setup, learner)
        while boundary.step < config.train.steps:
            segment = InlineSegment(setup, learner, boundary, self._report.step)
            until = self._next_stop(boundary.step)
            boundary = segment.run(until)
            assert boundary.step == until, "the prompts of a run never end"
            if config.eval.every_steps and self._is_due(boundary.step, config.eval.every_steps):
                # Before the checkpoint: a resumed run never evaluates this step again.
                self._report.evaluation(boundary.step, boundary.batches, self._stage.evaluate(boundary.step))
            if self._is_due(boundary.step, config.checkpoint.every_steps):
                self._save(boundary)
        return boundary

    def _next_stop(self, step: int) -> int:
        """The next step at which a checkpoint or an evaluation is due: a function of the configuration alone."""
        config = self._config
        periods = [config.checkpoint.every_steps, *([config.eval.every_steps] if config.eval.every_steps else [])]
        return min(config.train.steps, *((step // period + 1) * period for period in periods))

    def _is_due(self, step: int, period: int) -> bool:
        return step % period == 0 or step == self._config.train.steps

    def _save(self, boundary: Boundary) -> None:
        tensors, numbers = self._stage.learner.state()

        def write(folder: Path) -> None:
            save_tensors(tensors, folder / "learner.safetensors")
            (folder / "store.msgpack").write_bytes(boundary.store)
            (folder / "episodes.msgpack").write_bytes(msgspec.msgpack.encode(boundary.episodes))
            (folder / "state.json").write_text(json.dumps(self._state_of(boundary, numbers), indent=1))

        write_checkpoint(self._stage.folder.checkpoints, boundary.step, write, self._config.checkpoint.keep)

    def _state_of(self, boundary: Boundary, numbers: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": boundary.step,
            "batches": boundary.batches,
            "now_s": boundary.now_s.hex(),  # exact: decimal text would round
            "phases": [[begun.after_s.hex(), begun.phase] for begun in boundary.phases],
            "learner": numbers,
            "config_sha256": self._config.sha256(),
        }

    def _resumed(self) -> Boundary | None:
        """Load the newest whole checkpoint into the learner, if there is any."""
        folder, view = self._stage.folder, self._stage.view
        checkpoint = newest_whole_checkpoint(folder.checkpoints, view.alarm)
        if checkpoint is None:
            if list_checkpoints(folder.checkpoints):
                view.alarm("every checkpoint is damaged; the training stage begins again")
            folder.truncate_metrics(STAGE, "eval", after_step=0)
            return None
        state = json.loads((checkpoint / "state.json").read_text())
        self._stage.learner.load_state(load_tensors(checkpoint / "learner.safetensors"), state["learner"])
        folder.truncate_metrics(STAGE, "eval", after_step=state["batches"])
        view.note(f"going on from {checkpoint.name}")
        return Boundary(
            step=state["step"],
            batches=state["batches"],
            now_s=float.fromhex(state["now_s"]),
            store=(checkpoint / "store.msgpack").read_bytes(),
            episodes=msgspec.msgpack.decode(
                (checkpoint / "episodes.msgpack").read_bytes(), type=tuple[EpisodeState, ...]
            ),
            phases=tuple(PhaseBegun(float.fromhex(after_s), phase) for after_s, phase in state["phases"]),
        )
