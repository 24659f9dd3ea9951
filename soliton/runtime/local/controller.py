"""The controller: owns the run folder, the store and the hub, and keeps the roles alive. Imports no torch.

    learner    waits for the learner's process              unblocked by its end, or a stop
    rollouts   wait for training to begin, then for the workers' processes    unblocked by the learner, which ends them
    evals      wait for training to begin, then for the evaluator's process   unblocked by the end of training
    leases     wait for the clock                           (attempts not heard of are tried again)
    watchdog   waits for the clock
    abort      waits for a second Ctrl-C or SIGTERM

The learner's process runs the stages; the controller knows only when its training stage begins and ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from soliton.config import RunConfig
from soliton.errors import Interrupted, RunError, StorageFullError
from soliton.report.view import RunView
from soliton.runtime.checkpoint import list_checkpoints, newest_whole_checkpoint
from soliton.runtime.clock import RealClock
from soliton.runtime.local.connection import Connection
from soliton.runtime.local.disk import when_there_is_space
from soliton.runtime.local.evaluations import Evaluations
from soliton.runtime.local.events import (
    Alarm,
    Evaluated,
    EvaluationDue,
    Event,
    Note,
    Result,
    Stage,
    TrainingBegins,
    TrainingEnds,
    Update,
    absent_as_nan,
)
from soliton.runtime.local.launcher import LocalLauncher
from soliton.runtime.local.leftovers import nobody_left
from soliton.runtime.local.supervisor import Supervisor
from soliton.runtime.local.watchdog import Watchdog
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.tasks import until_done
from soliton.store.hub import hub_app
from soliton.store.serving import serve
from soliton.store.sqlite import SqliteStore

STAGE = "train"
STOP_SIGNALS = {signal.SIGINT: 0, signal.SIGTERM: 143}
"""What asks for a stop -> exit code of the command afterwards."""

logger = logging.getLogger(__name__)


def run_local(config: RunConfig, folder: RunFolder, view: RunView) -> int:
    """Run all stages of `config` in processes of this machine; returns the exit code 0.

    Raises:
        RunError: the run cannot go on.
        ConfigError: a role found the configuration wrong, or the port is taken.
        Interrupted: the user asked it to stop; checkpointed.
        KeyboardInterrupt: the user asked twice; everything was ended at once.
    """
    return asyncio.run(Controller(config, folder, view).run())


async def _nothing() -> None:
    """For roles that nothing depends on."""


class Controller:
    """One run.

    Args:
        config: of the run.
        folder: its folder, locked by the caller.
        view: who watches.
    """

    def __init__(self, config: RunConfig, folder: RunFolder, view: RunView) -> None:
        self._config = config
        self._folder = folder
        self._view = view
        self._elapsed_s = folder.stopwatch()
        self._clock = RealClock(RealClock().origin_s - self._elapsed_s())
        self._launcher = LocalLauncher(folder.path, folder.logs)
        self._store = SqliteStore.open(
            folder.store,
            config.store_config(),
            self._clock,
            durability=config.local.durability,
            identity=_prompt_stream(config),
        )
        self._learner = self._supervisor("learner", on_death=self._learner_died)
        self._workers: list[Supervisor] = []
        self._evaluator: Supervisor | None = None
        self._evaluations = Evaluations(folder.weights, self._evaluated_steps(), self._send_to_evaluator)
        self._training = asyncio.Event()
        self._rollouts_over = False
        self._is_finished = False
        self._num_events = 0
        self._stopped_by: signal.Signals | None = None
        self._abort = asyncio.Event()

    async def run(self) -> int:
        """Until the learner is done."""
        token, run_id = secrets.token_urlsafe(32), secrets.token_hex(8)
        app = hub_app(self._store, token=token, run_id=run_id)
        for finding in self._store.findings:
            self._view.alarm(finding)
        await nobody_left(self._folder.path, self._clock)
        self._go_back()
        try:
            async with serve(app, self._config.local.host, self._config.local.port) as url:
                Connection(url, token, run_id, os.getpid(), self._clock.origin_s).write(self._folder.connection)
                with self._interrupts():
                    await self._run_roles()
        finally:
            self._folder.connection.unlink(missing_ok=True)
            for role in self._roles():
                role.stop()
            await self._launcher.close()
            with suppress(StorageFullError):  # what cannot be written was never acknowledged
                self._store.close_file()
        if self._is_finished:
            self._evaluations.remove()
        if self._stopped_by is not None and not self._is_finished:
            raise Interrupted(self._stopped_by.name, STOP_SIGNALS[self._stopped_by])
        return 0

    async def _run_roles(self) -> None:
        watchdog = Watchdog(
            clock=self._clock,
            after_s=self._config.local.watchdog_s,
            progress=lambda: self._num_events,
            roles=self._roles,
            why=self._why,
            alarm=self._view.alarm,
            logs=self._folder.logs,
        )
        loops = {
            "learner": self._learner.run(),
            "rollouts": self._run_rollouts(),
            "evals": self._run_evaluations(),
            "leases": self._expire_leases(),
            "watchdog": watchdog.run(),
            "abort": self._raise_on_abort(),
        }
        learner, *others = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]
        await until_done(learner, *others)
        await self._finish_evaluations(others[1])
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _run_rollouts(self) -> None:
        await self._training.wait()
        for index in range(self._config.local.workers):
            name = f"worker-{index}"
            self._workers.append(self._supervisor(name, on_death=partial(self._worker_died, name)))
        await asyncio.gather(*(worker.run() for worker in self._workers))
        if not self._rollouts_over and self._stopped_by is None:
            raise RunError("the workers ended before the learner had its last batch: the prompts are used up")

    async def _run_evaluations(self) -> None:
        if not self._config.eval.every_steps:
            return
        await self._training.wait()
        self._evaluator = self._supervisor("evaluator", on_start=self._evaluations.repeat)
        await self._evaluator.run()

    async def _finish_evaluations(self, task: asyncio.Task[None]) -> None:
        """Wait for the evaluations under way (fault H8)."""
        if self._evaluator is not None and self._stopped_by is None:
            self._evaluations.finish()
            await task

    def _send_to_evaluator(self, command: str) -> None:
        if self._evaluator is not None:
            self._evaluator.send(command)

    async def _expire_leases(self) -> None:
        lease_s = self._config.local.lease_s
        while True:
            await self._clock.sleep_until(self._clock.now() + min(lease_s / 4, 10.0))
            if lost := self._store.reissue_lost(self._clock.now() - lease_s):
                self._view.alarm(f"{len(lost)} attempts were not heard of for {lease_s:g} s and are tried again")

    async def _raise_on_abort(self) -> None:
        await self._abort.wait()
        raise KeyboardInterrupt

    # -- what roles say -----------------------------------------------------------------------------------------------

    def _supervisor(
        self,
        name: str,
        *,
        on_start: Callable[[], object] = lambda: None,
        on_death: Callable[[], Awaitable[None]] = _nothing,
    ) -> Supervisor:
        return Supervisor(
            name,
            launcher=self._launcher,
            clock=self._clock,
            max_restarts=self._config.local.max_restarts,
            on_event=self._on_event,
            on_start=on_start,
            on_death=on_death,
            alarm=self._alarm,
        )

    def _on_event(self, event: Event) -> None:
        self._num_events += 1
        match event:
            case Stage(name, total):
                self._view.stage(name, total)
            case Update(step, metrics):
                self._view.update(step, absent_as_nan(metrics))
            case Note(text):
                self._view.note(text)
            case Alarm(text):
                self._alarm(text)
            case Result(text):
                self._is_finished = True
                self._view.finish(text)
            case TrainingBegins():
                self._training.set()
            case TrainingEnds():
                self._end_rollouts()
            case EvaluationDue():
                self._evaluations.add(event)
            case Evaluated():
                if self._evaluations.is_due(event):
                    row = {**absent_as_nan(event.metrics), "train/policy_step": float(event.step)}
                    self._folder.append_metrics("eval", event.batches, self._elapsed_s(), row)
                    self._view.update(event.step, row)
                self._evaluations.done(event)
            case _:
                pass

    def _alarm(self, text: str) -> None:
        logger.warning(text)
        self._view.alarm(text)

    def _end_rollouts(self) -> None:
        self._rollouts_over = True
        self._store.close()
        for worker in self._workers:
            worker.stop()
        self._learner.send("rollouts-ended")

    async def _learner_died(self) -> None:
        await when_there_is_space(
            self._go_back, what="going back to the newest checkpoint", clock=self._clock, alarm=self._alarm
        )

    async def _worker_died(self, name: str) -> None:
        self._store.lose(name)

    def _go_back(self) -> None:
        """Put store and metrics where the newest whole checkpoint is: the next learner goes on from there."""
        publications = self._store.publications()
        if not publications:
            return
        batches, version = 0, publications[0].version
        checkpoint = self._newest_checkpoint({row.version for row in publications})
        if checkpoint is not None:
            state = json.loads((checkpoint / "state.json").read_text())
            batches, version = state["batches"], state["version"]
        elif list_checkpoints(self._folder.checkpoints):
            self._alarm("no checkpoint is sound: training begins again from its start, with what the store holds")
        self._store.rewind(batches=batches, version=version)
        self._folder.truncate_metrics(STAGE, "eval", after_step=batches)
        self._evaluations.go_back(batches, self._evaluated_steps())

    def _evaluated_steps(self) -> set[int]:
        return {int(row["train/policy_step"]) for row in self._folder.read_metrics("eval")}

    def _newest_checkpoint(self, versions: set[int]) -> Path | None:
        """The newest whole checkpoint that the store knows of; others are put aside."""
        while (checkpoint := newest_whole_checkpoint(self._folder.checkpoints, self._alarm)) is not None:
            state = json.loads((checkpoint / "state.json").read_text())
            if state["batches"] <= self._store.batches and state["version"] in versions:
                return checkpoint
            self._alarm(
                f"{checkpoint.name} is ahead of the store, which lost its last work with the machine; using the "
                'checkpoint before it (local.durability = "power" prevents this)'
            )
            checkpoint.rename(checkpoint.with_name(f"ahead_{checkpoint.name}"))
        return None

    def _roles(self) -> Iterator[Supervisor]:
        yield self._learner
        yield from self._workers
        if self._evaluator is not None:
            yield self._evaluator

    async def _why(self) -> str:
        waiting = (await self._store.status()).waiting
        texts = [f"{wait.reason} (for {wait.for_s:.0f} s)" for wait in waiting.values()]
        return "; ".join(texts) or "nobody waits at the store: a role is busy, stuck, or waits for an environment"

    # -- signals ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                with suppress(RuntimeError):
                    loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stopped_by is not None:
            self._abort.set()
            return
        self._stopped_by = number
        self._view.note("stopping after this step and its checkpoint; once more aborts at once")
        self._learner.ask_to_stop()


def _prompt_stream(config: RunConfig) -> str:
    """What decides which prompt a draw is: a store belongs to one prompt stream."""
    env = config.env
    names = env.name if not env.mix else [part.model_dump() for part in env.mix]
    return json.dumps({"env": names, "prompts": env.prompts, "num_prompts": env.num_prompts, "seed": config.seed})
