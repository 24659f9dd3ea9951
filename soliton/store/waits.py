"""How long somebody waited, by the run's clock. Two callers that wait at once count once."""

from __future__ import annotations

from types import TracebackType

from soliton.types import Clock


class WaitTime:
    """A stopwatch that runs while at least one caller is inside it: `with wait: await ...`.

    Args:
        clock: measures.
        total_s: seconds counted so far.
    """

    def __init__(self, clock: Clock, total_s: float = 0.0) -> None:
        self._clock = clock
        self._total_s = total_s
        self._since_s = 0.0
        self._inside = 0

    def __enter__(self) -> None:
        if not self._inside:
            self._since_s = self._clock.now()
        self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside -= 1
        if not self._inside:
            self._total_s += self._clock.now() - self._since_s

    @property
    def running(self) -> bool:
        """Somebody waits now."""
        return self._inside > 0

    @property
    def for_s(self) -> float:
        """Seconds since the present wait began; 0 if nobody waits."""
        return self._clock.now() - self._since_s if self._inside else 0.0

    @property
    def total_s(self) -> float:
        """Seconds in which at least one caller waited, the present wait included."""
        return self._total_s + self.for_s
