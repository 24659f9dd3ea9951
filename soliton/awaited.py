"""A reward that comes after the episode, from outside: what an environment says of it. Imports nothing of Soliton."""

from __future__ import annotations

import math

import msgspec


class AwaitedReward(msgspec.Struct, frozen=True, kw_only=True):
    """A reward that comes from outside, after the episode has ended; it is added to the last action's own.

    Attributes:
        within_s: seconds of the clock, from when the trajectory is handed in, until the attempt is dropped.
        key: what whoever rewards knows the episode by (a ticket, a job); "" if the attempt's id is enough.
        low, high: allowed range, ends included; None: no limit.
        value: the reward; None while it is awaited.
    """

    within_s: float
    key: str = ""
    low: float | None = None
    high: float | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.within_s) and self.within_s > 0):
            raise ValueError(f"within_s must be a finite number of seconds > 0, got {self.within_s}")
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise ValueError(f"the allowed range is empty: low = {self.low}, high = {self.high}")
