"""A draw and its samples as state machines. Knows neither time, nor versions, nor what a trajectory holds.

    sample:  waiting --issue--> in flight --accept--> accepted --reopen--> waiting ...
                ^                  |                                (dropped as too old: issued again)
                +----- fail -------+--- fail, no try left --> given up

A draw is settled once each of its samples is accepted or given up. Nothing is forgotten before that: whichever member
fails, is lost or is dropped at whatever point, the others keep their place (fault G5).
"""

from __future__ import annotations

import msgspec

from soliton.types import AttemptId


class Sample(msgspec.Struct):
    """One member of a draw.

    Attributes:
        next_attempt: number of the attempt to be issued next.
        tries: attempts that failed or were dropped as too old; those presumed lost do not count, nobody knows how they
            went, nor those rolled back or damaged later.
        waiting: an attempt may be issued now.
        in_flight: attempts issued and not yet heard of; more than one only after one was presumed lost.
        lost: those in flight that are presumed lost: nobody waits for them any more.
        accepted: the attempt whose commit won, if any.
    """

    next_attempt: int = 0
    tries: int = 0
    waiting: bool = True
    in_flight: list[int] = []
    lost: list[int] = []
    accepted: int | None = None

    @property
    def settled(self) -> bool:
        """Accepted or given up: nothing more is expected."""
        return self.accepted is not None or not (self.waiting or self.in_flight)

    def issue(self) -> int:
        """Hand out the next attempt; returns its number."""
        assert self.waiting
        attempt = self.next_attempt
        self.next_attempt += 1
        self.waiting = False
        self.in_flight.append(attempt)
        return attempt

    def lose(self, attempt: int) -> None:
        """`attempt` is presumed lost: another one may be issued unless one is on its way."""
        if attempt not in self.lost:
            self.lost.append(attempt)
            self._wait_if_nothing_is_coming()

    def _wait_if_nothing_is_coming(self) -> None:
        self.waiting = self.waiting or set(self.in_flight) <= set(self.lost)

    def accept(self, attempt: int) -> list[int]:
        """`attempt` wins; returns the other attempts in flight, which are thereby superseded."""
        assert self.accepted is None
        self.in_flight.remove(attempt)
        self.accepted = attempt
        return self._settle()

    def fail(self, attempt: int, max_attempts: int) -> list[int]:
        """`attempt` failed: go on if another is on its way, else wait for the next; give up after the last try.

        Returns:
            The attempts still in flight when the sample was given up; they are thereby superseded.
        """
        self.in_flight.remove(attempt)
        self.tries += 1
        if self.tries >= max_attempts:
            return self._settle()
        self._wait_if_nothing_is_coming()
        return []

    def reopen(self, max_attempts: int, *, uses_a_try: bool = True) -> None:
        """The accepted attempt was dropped: wait for the next one, or give up after the last try."""
        assert self.accepted is not None
        self.accepted = None
        self.tries += uses_a_try
        self.waiting = self.tries < max_attempts

    def _settle(self) -> list[int]:
        others, self.in_flight, self.lost = self.in_flight, [], []
        self.waiting = False
        return others


class Draw(msgspec.Struct):
    """A position of the prompt stream and its samples.

    Attributes:
        number: the position.
        samples: one per member.
        ready: settled with enough valid members, so that it can be consumed.
    """

    number: int
    samples: list[Sample]
    ready: bool = False

    @property
    def settled(self) -> bool:
        """Each sample is accepted or given up."""
        return all(sample.settled for sample in self.samples)

    @property
    def accepted(self) -> list[AttemptId]:
        """The winning attempts, in order of their samples."""
        return [
            AttemptId(self.number, index, sample.accepted)
            for index, sample in enumerate(self.samples)
            if sample.accepted is not None
        ]

    @property
    def in_flight(self) -> list[AttemptId]:
        """The attempts in flight, in order of their samples."""
        return [
            AttemptId(self.number, index, attempt)
            for index, sample in enumerate(self.samples)
            for attempt in sample.in_flight
        ]
