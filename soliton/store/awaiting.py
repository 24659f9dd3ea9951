"""Stores in which a trajectory may wait, outside the queue, for a reward that comes from outside.

It stays in flight until then, and is not presumed lost with its worker. Guarantees: each awaited reward is given once
or times out; a refused one has changed nothing.
"""

from __future__ import annotations

import abc

from soliton.errors import RunError
from soliton.reasons import DropReason
from soliton.store.rewards import RewardAck, TooEarlyError, check_value, with_reward, without_reward
from soliton.store.waiting import WaitingStore
from soliton.types import AttemptId, Trajectory


class AwaitingStore(WaitingStore):
    """A `WaitingStore` that takes rewards."""

    @abc.abstractmethod
    def _reward_of(self, attempt: AttemptId) -> float | None:
        """The reward that came from outside for an attempt; None if none did."""

    async def reward(self, attempt: AttemptId, value: float) -> RewardAck:
        """The reward of an attempt that ended with its reward awaited; the same value again changes nothing.

        Raises:
            ValueError: not a finite number, or outside the range that the environment allows. It is still awaited.
            TooEarlyError: the attempt is not handed in yet.
            RunError: it awaits no reward: never issued, over, too late, or rewarded with another value.
        """
        self._save()
        self._expire_rewards()
        book = self._work.book
        if attempt in book.awaiting:
            check_value(book.awaiting[attempt][0], value)
            self._work.decide(with_reward(book.awaiting[attempt][0], value), None, self._clock.now())
            self._save()
            self._wake()
            return "accepted"
        if attempt in book.in_flight:
            raise TooEarlyError(f"{attempt} is still running; post its reward again once it is handed in")
        self._finished_or_refuse(attempt, f"a reward for {attempt}")
        if (earlier := self._reward_of(attempt)) is None:
            raise RunError(f"{attempt} awaits no reward: it is over, or its deadline has passed")
        if earlier != value:
            raise RunError(f"{attempt} was rewarded with {earlier!r}; it cannot be rewarded again with {value!r}")
        return "repeated"

    def awaiting_rewards(self) -> list[tuple[Trajectory, float]]:
        """The trajectories that await their reward, and for how many more seconds each will."""
        self._expire_rewards()
        now = self._clock.now()
        return [(trajectory, deadline_s - now) for trajectory, deadline_s in self._work.book.awaiting.values()]

    def _expire_rewards(self) -> None:
        work, now = self._work, self._clock.now()
        late = [trajectory for trajectory, deadline_s in work.book.awaiting.values() if deadline_s <= now]
        for trajectory in late:
            work.decide(without_reward(trajectory), DropReason.REWARD_TIMEOUT, now)
        if late:
            self._save()
            self._wake()
