"""Keeps a few trajectories of some steps in the run folder, while it trains, for `soliton.report`.

Owns `examples/`. Guarantees: it changes nothing of the training, and no failure to write stops it; a step that is
made again (after a kill) is written again, and what lay beyond it is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from transformers import PreTrainedTokenizerBase

from soliton.atomic import atomic_file
from soliton.config import RunConfig
from soliton.learner.examples import SCHEMA, StepExamples, examples_of
from soliton.learner.step_record import StepRecord
from soliton.types import stable_seed

FILES_PER_RUN = 20
"""About so many steps are kept unless the recipe says otherwise."""


class ExampleRecorder:
    """Watches a learner (`Learner.watch`).

    Args:
        config: of the run.
        tokenizer: gives each token its text.
        folder: where files go; made when the first one is written.
        alarm: told of the first failure.
    """

    def __init__(
        self, config: RunConfig, tokenizer: PreTrainedTokenizerBase, folder: Path, alarm: Callable[[str], None]
    ) -> None:
        every = config.report.examples_every_steps
        self._every = -(-config.train.steps // FILES_PER_RUN) if every is None else every
        self._last = config.train.steps
        self._max_tokens = config.report.max_example_tokens
        self._seed = config.seed
        self._tokenizer = tokenizer
        self._folder = folder
        self._alarm: Callable[[str], None] | None = alarm
        self._is_first_call = True
        self._known: dict[int, str] = {}

    def __call__(self, record: StepRecord) -> None:
        """Keep the step if it is the first one, the last one or due."""
        if self._is_first_call:
            self._is_first_call = False
            self._forget_from(record.step)
        is_last = record.actor_updates >= self._last
        if self._every and (record.step == 1 or is_last or record.step % self._every == 0):
            try:
                self._write(record)
            except OSError as error:  # a full disk: examples are a comfort, the run goes on
                if self._alarm is not None:
                    self._alarm(f"the examples of step {record.step} were not kept: {error}")
                    self._alarm = None

    def _write(self, record: StepRecord) -> None:
        examples = StepExamples(
            schema=SCHEMA,
            step=record.step,
            band=record.band,
            examples=examples_of(
                record.arrays(),
                seed=stable_seed(self._seed, "examples", record.step),
                pieces=self._pieces,
                max_tokens=self._max_tokens,
            ),
        )
        with atomic_file(self._folder / f"step_{record.step}.msgpack", "process") as file:
            file.write_bytes(msgspec.msgpack.encode(examples))

    def _pieces(self, token_ids: Sequence[int]) -> list[str]:
        for token in set(token_ids) - self._known.keys():
            self._known[token] = str(self._tokenizer.decode([token], skip_special_tokens=False))
        return [self._known[token] for token in token_ids]

    def _forget_from(self, step: int) -> None:
        """Steps that are made again, and those after them, belong to a policy that was given up."""
        for file in self._folder.glob("step_*.msgpack"):
            if int(file.stem.removeprefix("step_")) >= step:
                file.unlink(missing_ok=True)
