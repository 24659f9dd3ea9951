"""What a child process tells the controller: one JSON line each."""

from __future__ import annotations

import math

import msgspec

STOP = "stop"
"""What a child is told: finish the step, save what there is to save, and end."""

Metrics = dict[str, float | None]
"""NaN travels as null: absent, never 0."""


class Stage(msgspec.Struct, frozen=True, tag=True):
    """A stage begins."""

    name: str
    total: int | None


class Update(msgspec.Struct, frozen=True, tag=True):
    """Steps of the stage are done."""

    step: int
    metrics: Metrics


class Note(msgspec.Struct, frozen=True, tag=True):
    """Something worth reading once."""

    text: str


class Alarm(msgspec.Struct, frozen=True, tag=True):
    """Something is wrong, and the run goes on."""

    text: str


class Result(msgspec.Struct, frozen=True, tag=True):
    """The last line of the run."""

    text: str


class TrainingBegins(msgspec.Struct, frozen=True, tag=True):
    """A policy is published: rollouts may start."""


class TrainingEnds(msgspec.Struct, frozen=True, tag=True):
    """The last step is done: rollouts shall end; answered by the command `rollouts-ended`."""


class EvaluationDue(msgspec.Struct, frozen=True, tag=True):
    """The weights of a step lie ready to be evaluated."""

    version: int
    step: int
    batches: int


class Evaluated(msgspec.Struct, frozen=True, tag=True):
    """The evaluator is done with one."""

    version: int
    step: int
    batches: int
    metrics: Metrics


class Progress(msgspec.Struct, frozen=True, tag=True):
    """The process does useful work: sent now and then by roles that report nothing else."""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """It stops because it was asked to."""


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """The run cannot go on: a restart would fail the same way."""

    text: str
    is_config: bool


class Crash(msgspec.Struct, frozen=True, tag=True):
    """Last words of a process that dies of a mistake."""

    text: str


Event = (
    Stage
    | Update
    | Note
    | Alarm
    | Result
    | TrainingBegins
    | TrainingEnds
    | EvaluationDue
    | Evaluated
    | Progress
    | Stopped
    | Fatal
    | Crash
)

_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """The event as a line."""
    return msgspec.json.encode(event) + b"\n"


def decode(line: bytes) -> Event:
    """The event of a line.

    Raises:
        msgspec.MsgspecError: no event.
    """
    return _DECODER.decode(line)


def absent_as_none(metrics: dict[str, float]) -> Metrics:
    """Metrics as they travel."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def absent_as_nan(metrics: Metrics) -> dict[str, float]:
    """Metrics as views take them."""
    return {name: math.nan if value is None else value for name, value in metrics.items()}
