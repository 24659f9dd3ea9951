"""A store at rest, as one record and as bytes. What waits (roles) is not part of it: they call again."""

from __future__ import annotations

import msgspec

from soliton.errors import RunError
from soliton.reasons import DropReason
from soliton.store.changes import Queued
from soliton.store.codec import decode_record, encode_record
from soliton.store.groups import Draw
from soliton.store.ledger import AttemptBook, FinishedAttempts
from soliton.store.staleness import LengthCounts
from soliton.types import AttemptId, Lease, Publication, Trajectory

SCHEMA = 2


class StoreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a store does next.

    Attributes:
        group_size: of the configuration that made it; samples cannot be renumbered.
        batches, num_given_up: batches consumed and draws given up so far.
        draws: those not trained and not given up, in order.
        in_flight: leases, in the order they were given. Their episodes are parked elsewhere and commit later.
        awaiting: those in flight that were handed in and whose reward is to come, with their deadline.
        payloads: what is queued, in the order of `queued`.
        failed_by_environment: as in `StoreStatus`.
        wait_s: seconds waited for admission, for a batch, and on hold.
    """

    schema: int = SCHEMA
    group_size: int
    publications: tuple[Publication, ...]
    next_draw: int
    batches: int
    num_given_up: int
    draws: list[Draw]
    num_issued: int
    in_flight: list[Lease]
    awaiting: list[tuple[Trajectory, float]] = []
    queued: list[Queued]
    payloads: list[Trajectory]
    trained: list[AttemptId]
    superseded: list[AttemptId]
    dropped: dict[str, list[AttemptId]]
    lengths: LengthCounts
    wait_s: tuple[float, float, float]
    failed_by_environment: dict[str, int] = {}

    def encode(self) -> bytes:
        """As bytes."""
        return encode_record(self)

    @staticmethod
    def decode(data: bytes) -> StoreSnapshot:
        """Read and check the bytes of `encode`.

        Raises:
            RunError: damaged, or written by another version of Soliton.
        """
        try:
            snapshot = decode_record(data, StoreSnapshot)
        except ValueError as error:
            raise RunError(f"damaged store snapshot ({len(data)} bytes): {error}") from error
        if snapshot.schema != SCHEMA:
            raise RunError(f"store snapshot has schema {snapshot.schema}; this version of Soliton reads {SCHEMA}")
        return snapshot

    def book(self) -> AttemptBook:
        """The attempts that are not over, as a fresh book.

        Raises:
            RunError: the attempts do not add up.
        """
        book = AttemptBook()
        book.in_flight = {lease.attempt: lease for lease in self.in_flight}
        book.failed_by_environment = dict(self.failed_by_environment)
        book.awaiting = {trajectory.attempt: (trajectory, deadline_s) for trajectory, deadline_s in self.awaiting}
        for queued in self.queued:
            book.put(queued)
        ledger = self.finished().ledger(book)
        if ledger.balance:
            raise RunError(f"the ledger of the store snapshot is off by {ledger.balance}: {ledger}")
        if [payload.attempt for payload in self.payloads] != [queued.attempt for queued in self.queued]:
            raise RunError("damaged store snapshot: the queue and its payloads name different attempts")
        return book

    def finished(self) -> FinishedAttempts:
        """The attempts that are over."""
        finished = FinishedAttempts()
        finished.num_issued = self.num_issued
        finished.trained = dict.fromkeys(self.trained)
        finished.superseded = dict.fromkeys(self.superseded)
        for reason, attempts in self.dropped.items():
            finished.dropped[DropReason(reason)] = dict.fromkeys(attempts)
        return finished
