"""When to hold a batch so that nothing gets too old, and whether dropping the old favours the short.

Knows steps and draws only. `HoldRule` never starts a hold that waiting cannot end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

MIN_DROPS = 20
"""Stale drops below which their lengths say nothing."""


class HoldRule:
    """`when_too_old = "wait"`: earliest deadline first over the learner's coming batches.

    A draw's floor is the learner step of its oldest version (for an attempt in flight the version at its lease: no
    token can be older). It must be consumed at step floor + max_staleness or before, and each step consumes
    `draws_per_batch`. A batch may be handed out if everything left can still be consumed in time:

        for each floor f:  number of draws left with floor <= f   <=   (f + max_staleness - step) * draws_per_batch

    In particular no attempt in flight may have its last chance now. Otherwise the learner waits for the oldest draw in
    flight. With admission at (max_staleness + 1) * batch_size, batches of the oldest draws always satisfy the rule.
    """

    def __init__(self, max_staleness: int, draws_per_batch: int) -> None:
        self._max_staleness = max_staleness
        self._draws_per_batch = draws_per_batch
        self._floors: dict[int, tuple[int, bool]] = {}
        self._pending: Counter[int] = Counter()
        self._ready: Counter[int] = Counter()

    def set(self, draw: int, floor: int | None, ready: bool) -> None:
        """Say where `draw` stands; floor None: nothing of it was issued or kept, so that nothing of it can be old."""
        self.forget(draw)
        if floor is not None:
            self._floors[draw] = (floor, ready)
            (self._ready if ready else self._pending)[floor] += 1

    def forget(self, draw: int) -> None:
        """`draw` was consumed or given up."""
        if draw in self._floors:
            floor, ready = self._floors.pop(draw)
            counts = self._ready if ready else self._pending
            counts[floor] -= 1
            if not counts[floor]:
                del counts[floor]

    def must_hold(self, step: int) -> bool:
        """Whether handing out the oldest ready draws at learner step `step` would make some other draw too old.

        False if they are too few for a batch.
        """
        batch: Counter[int] = Counter()
        missing = self._draws_per_batch
        for floor in sorted(self._ready):
            batch[floor] = min(missing, self._ready[floor])
            missing -= batch[floor]
            if not missing:
                break
        oldest_pending = min(self._pending, default=None)
        if missing or oldest_pending is None or oldest_pending >= max(batch):
            return False  # without a batch there is nothing to hold; the oldest work there is cannot be bettered
        left = self._pending + self._ready - batch
        total = 0
        for floor in sorted(left):
            total += left[floor]
            if total > max(0, floor + self._max_staleness - step) * self._draws_per_batch:
                return True
        return False

    def oldest_pending(self) -> int | None:
        """The draw in flight with the lowest floor (the first of them by number)."""
        pending = [(floor, draw) for draw, (floor, ready) in self._floors.items() if not ready]
        return min(pending)[1] if pending else None


class LengthCounts(msgspec.Struct):
    """How long committed trajectories are, and how long those were that were dropped as stale.

    Attributes:
        committed: number of action tokens -> accepted commits of that length.
        dropped: the same for those dropped as stale.
    """

    committed: dict[int, int] = {}
    dropped: dict[int, int] = {}

    def add_committed(self, length: int) -> None:
        """Count an accepted commit."""
        self.committed[length] = self.committed.get(length, 0) + 1

    def add_dropped(self, length: int) -> None:
        """Count one dropped as stale (which was committed before)."""
        self.dropped[length] = self.dropped.get(length, 0) + 1

    def dropped_by_decile(self) -> tuple[int, ...]:
        """Drops by decile of their length among all committed; ten counts, the shortest first.

        Equal lengths share the decile of their middle rank, so that many equal trajectories show no bias.
        """
        counts = [0] * 10
        total = sum(self.committed.values())
        below = 0
        for length in sorted(self.committed):
            here = self.committed[length]
            decile = 10 * (2 * below + here) // (2 * total)
            counts[decile] += self.dropped.get(length, 0)
            below += here
        return tuple(counts)


def dropped_long_share(dropped_by_length_decile: Sequence[int]) -> float:
    """Share of stale drops that were among the longest fifth of trajectories; 0.2 without bias.

    NaN with fewer than `MIN_DROPS` drops, which say nothing.
    """
    total = sum(dropped_by_length_decile)
    return sum(dropped_by_length_decile[8:]) / total if total >= MIN_DROPS else float("nan")
