"""The learner as a process: every stage of the run, and in the training stage the learner's loop over the hub.

Within a step two things happen at once:

    thread   makes the critic's remaining updates           waits for: nothing
    loop     tells the store, asks for the next batch       waits for: the hub, then the thread
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from soliton.atomic import atomic_folder
from soliton.config import load_config
from soliton.errors import RunError
from soliton.failpoints import failpoint
from soliton.runtime.checkpoint import newest_whole_checkpoint, write_checkpoint
from soliton.runtime.clock import RealClock
from soliton.runtime.learning import Fit, Learning, StepMetrics, Tell
from soliton.runtime.local.channel import Channel, ChannelView, StopWanted
from soliton.runtime.local.connection import Connection
from soliton.runtime.local.disk import when_there_is_space
from soliton.runtime.local.evaluations import FOLDER as EVALUATION
from soliton.runtime.local.events import EvaluationDue, TrainingBegins, TrainingEnds
from soliton.runtime.run_folder import START_CRITIC, START_MODEL, RunFolder
from soliton.runtime.staged_run import run_stages
from soliton.runtime.training import STAGE, StepReport, Trained, TrainingStage
from soliton.store.client import HubStore
from soliton.store.store import BatchItem
from soliton.types import AttemptId, Publication
from soliton.weights import (
    PublishedVersions,
    load_tensors,
    published_state,
    save_model_folder,
    save_tensors,
    weights_sha256,
)

ROLLOUTS_ENDED = "rollouts-ended"
"""The controller's answer to `TrainingEnds`."""


def run(_name: str, run_dir: Path, channel: Channel) -> None:
    """Run all stages."""
    folder = RunFolder(run_dir)
    view = ChannelView(channel, resumable=(STAGE,))
    clock = RealClock(Connection.read(folder.connection).clock_origin_s)
    run_stages(load_config(folder.config), folder, view, partial(train_local, channel=channel), clock.now)


def train_local(stage: TrainingStage, channel: Channel) -> Trained:
    """Train from where the newest checkpoint is, else from the beginning, to the last step.

    Raises:
        StopWanted: the controller asked for it; the checkpoint is written.
    """
    return asyncio.run(LocalTraining(stage, channel).run())


class LearnersStore(HubStore):
    """The hub's store for a learner that may have to stop: it gets no more batch then, and no longer waits for one.

    A batch that is ready when a step is finished comes at once, so that it travels while the critic is fitted.

    Args:
        connection: where the hub is.
        stop: set when the learner shall stop.
    """

    def __init__(self, connection: Connection, stop: asyncio.Event) -> None:
        clock = RealClock(connection.clock_origin_s)
        super().__init__(connection.url, connection.token, connection.run_id, "learner", clock)
        self._stop = stop
        self._ahead: list[BatchItem] | None = None

    async def finish_step(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """See `Store`."""
        await super().finish_step(trained, publication)
        self._ahead = await self.take_ready()

    async def take(self) -> list[BatchItem]:
        """See `Store`; [] also when the learner shall stop. A batch that was on its way comes again."""
        if self._ahead is not None and not self._stop.is_set():
            ahead, self._ahead = self._ahead, None
            return ahead
        taking = asyncio.ensure_future(super().take())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return [] if self._stop.is_set() else await taking
        finally:
            taking.cancel()
            stopping.cancel()
            await asyncio.gather(taking, stopping, return_exceptions=True)


async def tell_while_fitting(tell: Tell, fit: Fit) -> StepMetrics:
    """Both at once: the store answers while this thread's loop would stand still. Only the fit touches the learner."""
    _, metrics = await asyncio.gather(tell(), asyncio.to_thread(fit))
    return metrics


class LocalTraining:
    """Owns the learner's way from its first step to its last.

    Args:
        stage: what to train with.
        channel: to the controller.
    """

    def __init__(self, stage: TrainingStage, channel: Channel) -> None:
        self._stage = stage
        self._channel = channel
        self._config = stage.setup.config
        self._report = StepReport(stage)
        self._versions = PublishedVersions(stage.folder.weights, self._config.local.durability)
        self._connection = Connection.read(stage.folder.connection)
        self._clock = RealClock()
        self._newest: Publication | None = None
        self._checkpointed = -1
        self._evaluated = -1

    async def run(self) -> Trained:
        """Train to the last step."""
        config, connection = self._config, self._connection
        self._stage.view.stage(STAGE, config.train.steps)
        resumed = self._load_checkpoint()
        stop = self._stop_event()
        async with LearnersStore(connection, stop) as store:
            learning = Learning(
                config=config,
                learner=self._stage.learner,
                store=store,
                clock=self._clock,
                publish=self._publish,
                on_step=self._on_step,
                newest=await self._publish_start(store, resumed),
                batches=resumed.get("batches", 0),
                finish=tell_while_fitting,
            )
            if resumed:
                self._announce_evaluation(learning.newest.step, learning.batches)  # it may not have been heard
            self._channel.send(TrainingBegins())
            while learning.newest.step < config.train.steps:
                going_on = await learning.run(self._next_checkpoint(learning.newest.step))
                await self._save(learning)
                if stop.is_set():
                    raise StopWanted
                if not going_on:
                    raise RunError(
                        f"rollouts are over at step {learning.newest.step} of {config.train.steps}: the run had gone "
                        "further and lost its last checkpoints. Go on with --resume"
                    )
            self._channel.send(TrainingEnds())
            await asyncio.to_thread(self._await_end_of_rollouts)
            return Trained(learning.newest.step, (await store.status()).ledger)

    def _stop_event(self) -> asyncio.Event:
        """Set when the controller asks to stop."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._channel.on_stop(lambda: loop.call_soon_threadsafe(stop.set))
        return stop

    def _await_end_of_rollouts(self) -> None:
        command = self._channel.next_command()
        assert command == ROLLOUTS_ENDED, command

    def _next_checkpoint(self, step: int) -> int:
        every = self._config.checkpoint.every_steps
        return min(self._config.train.steps, (step // every + 1) * every)

    def _on_step(self, step: int, batches: int, metrics: dict[str, float]) -> None:
        self._report.step(step, batches, metrics)
        self._announce_evaluation(step, batches)

    def _announce_evaluation(self, step: int, batches: int) -> None:
        """Say once per step that the newest policy is to be evaluated, where that is due; its weights stay for that."""
        every = self._config.eval.every_steps
        is_due = every > 0 and (step % every == 0 or step == self._config.train.steps)
        if is_due and step != self._evaluated and self._newest is not None:
            self._evaluated = step
            self._versions.link(self._newest.version, self._stage.folder.weights / EVALUATION)
            self._channel.send(EvaluationDue(self._newest.version, step, batches))

    async def _publish(self, weights: dict[str, Tensor], publication: Publication) -> None:
        await when_there_is_space(
            lambda: self._versions.publish(weights, publication),
            what=f"publishing version {publication.version}",
            clock=self._clock,
            alarm=self._stage.view.alarm,
        )
        self._versions.clean(self._config.local.keep_weights)
        self._newest = publication

    async def _publish_start(self, store: HubStore, resumed: dict[str, Any]) -> Publication:
        """Publish the policy that training starts from: the first one, or the checkpoint's under a new number."""
        model = self._stage.learner.actor.model
        status = await store.status()
        if (status.step, status.batches) != (resumed.get("step", 0), resumed.get("batches", 0)):
            raise RunError(
                f"the checkpoint is at step {resumed.get('step', 0)}, batch {resumed.get('batches', 0)}, the store at "
                f"step {status.step}, batch {status.batches}; they do not belong together"
            )
        weights = published_state(model)
        newest_file = self._versions.newest()
        publication = Publication(
            version=max(status.version, -1 if newest_file is None else newest_file) + 1,
            parent=status.version,
            step=status.step,
            sha256=weights_sha256(weights),
        )
        if status.version < 0:
            self._keep_start()
        await self._publish(weights, publication)
        failpoint("learner.between_weights_and_cursor")
        await store.finish_step([], publication)
        return publication

    def _keep_start(self) -> None:
        """What training starts from: for engines, which need the model's shape, and for a replay."""
        learner, weights = self._stage.learner, self._stage.folder.weights
        save_model_folder(learner.actor.model, self._stage.setup.tokenizer, weights / START_MODEL)
        if learner.critic is not None:
            with atomic_folder(weights / START_CRITIC) as folder:
                learner.critic.model.save(folder, manifest={"step": 0})

    async def _save(self, learning: Learning) -> None:
        if learning.newest.step == self._checkpointed:
            return
        tensors, numbers = self._stage.learner.state()
        state = {
            "step": learning.newest.step,
            "batches": learning.batches,
            "version": learning.newest.version,
            "learner": numbers,
            "config_sha256": self._config.sha256(),
        }

        def write(folder: Path) -> None:
            save_tensors(tensors, folder / "learner.safetensors")
            (folder / "state.json").write_text(json.dumps(state, indent=1))

        root, keep = self._stage.folder.checkpoints, self._config.checkpoint.keep
        await when_there_is_space(
            lambda: write_checkpoint(root, learning.newest.step, write, keep),
            what=f"the checkpoint of step {learning.newest.step}",
            clock=self._clock,
            alarm=self._stage.view.alarm,
        )
        self._checkpointed = learning.newest.step

    def _load_checkpoint(self) -> dict[str, Any]:
        """Load the newest whole checkpoint into the learner; returns its state, {} if there is none."""
        checkpoint = newest_whole_checkpoint(self._stage.folder.checkpoints, self._stage.view.alarm)
        if checkpoint is None:
            return {}
        state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
        self._stage.learner.load_state(load_tensors(checkpoint / "learner.safetensors"), state["learner"])
        self._stage.view.note(f"going on from {checkpoint.name}")
        self._checkpointed = state["step"]
        return state
