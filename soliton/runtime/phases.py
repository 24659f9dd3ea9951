"""In which phase a run is: by the recipe's schedule of learner steps, or as somebody said from outside.

    phase = 1 + number of `env.shifts` that are <= the step of the policy that samples

A phase set from outside (`soliton shift RUN PHASE`) lies in the run's folder and holds from then on, through restarts,
whatever the schedule says. Without it the phase is a function of the step alone: a run that goes back to a checkpoint
goes back to its phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from soliton.atomic import atomic_file
from soliton.errors import RunError


class Shift(msgspec.Struct, frozen=True):
    """A phase that was set from outside.

    Attributes:
        phase: 1 first.
        date_s: seconds since the epoch; only for telling people.
    """

    phase: int
    date_s: float


class PhaseBegun(msgspec.Struct, frozen=True):
    """A phase, and when it began.

    Attributes:
        after_s: time of the clock; what happens later than this happens in the phase.
        phase: 1 first.
    """

    after_s: float
    phase: int


def scheduled_phase(shifts: Sequence[int], step: int) -> int:
    """The phase at a learner step by the schedule."""
    return 1 + sum(shift <= step for shift in shifts)


class RunPhases:
    """The phases of a run in a folder.

    Args:
        shifts: `env.shifts`.
        file: where phases set from outside are kept; may be absent.
    """

    def __init__(self, shifts: Sequence[int], file: Path) -> None:
        self._shifts = shifts
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._set: list[Shift] = []

    def at_step(self, step: int) -> int:
        """The phase in which a policy of this step samples now."""
        said = self.set_from_outside()
        return said[-1].phase if said else scheduled_phase(self._shifts, step)

    def set_from_outside(self) -> list[Shift]:
        """All that was said from outside, in order.

        Raises:
            RunError: the file is damaged.
        """
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return []
        seen = found.st_ino, found.st_mtime_ns
        if seen != self._seen:
            try:
                self._set = msgspec.json.decode(self._file.read_bytes(), type=list[Shift])
            except msgspec.MsgspecError as error:
                raise RunError(f"{self._file} is damaged: {error}; remove it, or set the phase again") from error
            self._seen = seen
        return self._set

    def shift(self, phase: int, date_s: float) -> None:
        """Set the phase from outside; on disk when this returns."""
        said = [*self.set_from_outside(), Shift(phase, date_s)]
        with atomic_file(self._file) as file:
            file.write_bytes(msgspec.json.encode(said))


class PhaseHistory:
    """When each phase began on the clock of an `inline` run, so that a rebuilt episode is told the same again.

    Args:
        shifts: `env.shifts`.
        begun: the history so far; empty for a run that begins.
    """

    def __init__(self, shifts: Sequence[int], begun: Sequence[PhaseBegun] = ()) -> None:
        self._shifts = shifts
        self.begun = list(begun) or [PhaseBegun(float("-inf"), scheduled_phase(shifts, 0))]

    def reached(self, step: int, now_s: float) -> None:
        """A policy of `step` was published."""
        phase = scheduled_phase(self._shifts, step)
        if phase != self.begun[-1].phase:
            self.begun.append(PhaseBegun(now_s, phase))

    def at(self, now_s: float) -> int:
        """The phase at a time. At the very moment of a shift it is still the earlier one, whoever comes first then."""
        return next((begun.phase for begun in reversed(self.begun) if begun.after_s < now_s), self.begun[0].phase)
