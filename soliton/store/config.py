"""Settings of a store. Owns what "too old" and "too much" mean; knows neither roles nor models."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

WhenTooOld = Literal["drop", "wait", "mask_tokens"]


class StoreConfig(BaseModel):
    """How a store admits, orders and refuses work.

    Combinations that could never fill a batch, or that silently do nothing, are refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_size: int = Field(ge=1)
    """Trajectories per batch (group_size x groups). Never fewer, save for members of a group that failed for good."""
    group_size: int = Field(default=1, ge=1)
    """Samples per draw; 1 is single rollout."""
    max_staleness: int | None = Field(ge=0)
    """Learner steps between an action token's version and its consumption; 0 is synchronous, None unbounded (study)."""
    when_too_old: WhenTooOld = "drop"
    """Past the bound: drop and issue again, hold the next batch so that none gets there, or mask the old tokens."""
    max_outstanding: int | None = Field(default=None, ge=1)
    """Samples outstanding at once when `max_staleness` is None; otherwise the bound itself limits them."""
    max_attempts: int = Field(default=3, ge=1)
    """Tries of a sample before it is given up."""
    num_draws: int | None = Field(default=None, ge=0)
    """Length of the prompt stream; None is endless. A remainder that cannot fill a batch is never trained."""

    max_queued_bytes: int | None = Field(default=None, ge=1)
    """Payload bytes of queued trajectories at which rollouts wait once a full batch is ready; None is no limit."""

    @model_validator(mode="after")
    def _check_combinations(self) -> StoreConfig:
        if self.batch_size % self.group_size:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of group_size {self.group_size}; "
                "a batch holds whole groups, so change one of the two"
            )
        if self.max_staleness is None:
            self._check_unbounded()
        elif self.max_outstanding is not None:
            raise ValueError(
                f"max_outstanding {self.max_outstanding} has no effect with max_staleness {self.max_staleness}, which "
                "limits outstanding samples to (max_staleness + 1) * batch_size; leave one of the two out"
            )
        return self

    def _check_unbounded(self) -> None:
        if self.max_outstanding is None:
            raise ValueError(
                "max_outstanding is required when max_staleness is None: nothing else limits how many samples are "
                f"outstanding; give a number >= batch_size ({self.batch_size})"
            )
        if self.max_outstanding < self.batch_size:
            raise ValueError(
                f"max_outstanding {self.max_outstanding} is below batch_size {self.batch_size}, "
                "so that no batch could ever be full; raise it"
            )
        if self.when_too_old != "drop":
            raise ValueError(
                f"when_too_old {self.when_too_old!r} has no effect when max_staleness is None; "
                "set a bound or leave it out"
            )

    @property
    def outstanding_limit(self) -> int:
        """Samples that may be outstanding at once: (max_staleness + 1) * batch_size, or `max_outstanding`."""
        if self.max_staleness is None:
            assert self.max_outstanding is not None
            return self.max_outstanding
        return (self.max_staleness + 1) * self.batch_size

    @property
    def draws_per_batch(self) -> int:
        """Groups in a batch (trajectories, for single rollouts)."""
        return self.batch_size // self.group_size

    @property
    def min_valid_members(self) -> int:
        """Valid samples without which a draw teaches nothing: 2 in a group, which compares, 1 alone."""
        return min(2, self.group_size)
