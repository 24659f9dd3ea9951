"""An episode's own timeline: the run's clock, set back while a parked environment is rebuilt.

An environment that waits (a simulated latency, a deadline of its own) reads `now()` and sleeps until some later time.
While its recorded steps are replayed, `now()` is the time at which each step began then, so waits that lie in the past
return at once and a wait that was interrupted takes only its remainder.
"""

from __future__ import annotations

from soliton.types import Clock


class EpisodeClock:
    """A `Clock` that follows another one, except between `rewind` and `catch_up`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._past_s: float | None = None

    def rewind(self, to_s: float) -> None:
        """Set this timeline back to `to_s`."""
        assert to_s <= self._clock.now(), f"cannot rewind to {to_s}, the clock is at {self._clock.now()}"
        self._past_s = to_s

    def catch_up(self) -> None:
        """Follow the run's clock again."""
        self._past_s = None

    def now(self) -> float:
        """Seconds on this timeline."""
        return self._clock.now() if self._past_s is None else self._past_s

    async def sleep_until(self, when: float) -> None:
        """In the past: jump to `when`; the rest, if `when` is still to come, passes on the run's clock."""
        if self._past_s is not None and when <= self._clock.now():
            self._past_s = max(self._past_s, when)
            return
        self.catch_up()
        await self._clock.sleep_until(when)
