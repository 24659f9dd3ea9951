"""What a store decides, without waiting: which attempt is issued next, which draw is ready, what is too old.

Owns draws, the attempts' book and the version table. Knows no clock (callers pass `now`), no event loop and no caller.
Guarantees: every issued attempt is in exactly one place of the ledger; a sample is consumed at most once; the order is
a function of the calls: by version, draw, sample, attempt.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from soliton.errors import RunError
from soliton.reasons import DropReason
from soliton.store.changes import (
    BatchFinished,
    Change,
    DrawMoved,
    DrawState,
    Published,
    Queued,
    Rewound,
    Taken,
)
from soliton.store.config import StoreConfig
from soliton.store.groups import Draw, Sample
from soliton.store.ledger import BLAMELESS_REASONS, AttemptBook, failure
from soliton.store.rewards import awaits_reward
from soliton.store.staleness import HoldRule, LengthCounts
from soliton.store.store import CommitAck
from soliton.store.versions import VersionTable
from soliton.types import AttemptId, Lease, Publication, Trajectory


class Work:
    """Draws from admission to training.

    Attributes:
        versions, book, lengths: see their classes.
        draws: number -> draw, those neither trained nor given up, in order of issue.
        next_draw: position of the prompt stream to be admitted next.
        batches: batches consumed.
        num_given_up: draws given up: too many failed attempts, or too few valid members.
    """

    def __init__(self, config: StoreConfig, versions: VersionTable | None = None) -> None:
        self._config = config
        self.versions = VersionTable() if versions is None else versions
        self.book = AttemptBook()
        self.lengths = LengthCounts()
        self.draws: dict[int, Draw] = {}
        self.next_draw = 0
        self.batches = 0
        self.num_given_up = 0
        self._last_batch: tuple[list[AttemptId], Publication | None] = ([], None)
        self._taken: list[int] = []
        self._waiting: list[AttemptId] = []  # heap; may hold attempts that are no longer wanted
        self._ready: list[tuple[int, int]] = []  # heap of (oldest version, draw)
        self._hold_rule: HoldRule | None = None
        self.index()

    def index(self) -> None:
        """Rebuild what is derived from `draws`, after they were loaded."""
        self._taken.clear()
        self._waiting.clear()
        self._ready.clear()
        if self._config.when_too_old == "wait" and self._config.max_staleness is not None:
            self._hold_rule = HoldRule(self._config.max_staleness, self._config.draws_per_batch)
        for draw in self.draws.values():
            for index in range(self._config.group_size):
                self._offer(draw.number, index)
            if draw.ready:
                self.put_back([draw])
            self._update_hold(draw)

    def readmit(self, draws: list[Draw]) -> None:
        """Take up draws whose attempts are in the book already: loaded from a file, or undone. All their leases are
        lost, and limits may have changed since.
        """
        for draw in draws:
            self.draws[draw.number] = draw
            for attempt in draw.in_flight:
                sample = draw.samples[attempt.sample]
                # No try is left: nothing of it would ever settle.
                if not sample.waiting and attempt not in self.book.awaiting:
                    sample.in_flight.remove(attempt.attempt)
                    self.book.supersede(attempt)
        self.index()
        for draw in draws:
            if draw.settled:
                self._settle(draw)

    def rewind(self, batches: int, version: int) -> None:
        """Go back to a checkpoint after `batches` batches, at `version`; undone draws are then given to `readmit`.

        Raises:
            RunError: there are not so many batches, or the version is not in this lineage. Nothing has changed then.
        """
        if not 0 <= batches <= self.batches:
            raise RunError(f"cannot go back to {batches} batches: {self.batches} were consumed")
        self.versions.rewind(version)
        self.book.give_back()
        self.batches = batches
        self._last_batch = ([], None)
        self.book.changes.append(Rewound(batches, version))

    def drop_rolled_back(self, draws: list[Draw]) -> None:
        """Drop those of these ready draws that hold a version outside this lineage, and issue them again."""
        for draw in draws:
            if draw.ready and self._unfit(draw) is DropReason.ROLLED_BACK:
                self._drop(draw, DropReason.ROLLED_BACK)
        self.index()  # their places in line went with them

    def drain(self) -> list[Change]:
        """What changed since the last call, in order."""
        changes, self.book.changes = self.book.changes, []
        return changes

    def _move(self, draw: Draw, state: DrawState) -> None:
        self.book.changes.append(DrawMoved(draw.number, state))

    @property
    def exhausted(self) -> bool:
        """What is left of a finite stream cannot fill a batch; one that is taken does not count."""
        if self._config.num_draws is None:
            return False
        to_come = self._config.num_draws - self.next_draw
        return len(self.draws) - len(self._taken) + to_come < self._config.draws_per_batch

    @property
    def num_ready(self) -> int:
        """Draws that could be consumed now."""
        return len(self._ready)

    @property
    def oldest_pending(self) -> Draw | None:
        """The unfinished draw that the hold rule waits for."""
        number = self._hold_rule.oldest_pending() if self._hold_rule else None
        return None if number is None else self.draws[number]

    # -- issuing ------------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether one more trajectory may be queued: always, while its absence could keep the learner waiting."""
        limit = self._config.max_queued_bytes
        if limit is None or self.book.queued_bytes < limit:
            return True
        return len(self._ready) < self._config.draws_per_batch or self.must_hold()

    def issue(self, limit: int, now: float, holder: str = "") -> list[Lease]:
        """Up to `limit` attempts, those of the oldest draws first; none without a policy, at a limit or without room.

        The byte limit ends a call before it issues anything, or not at all: what is in flight is not queued yet.
        """
        leases: list[Lease] = []
        if self.versions.is_empty or not self.has_room:
            return leases
        while len(leases) < limit and (attempt := self._next_waiting()) is not None:
            sample = self.draws[attempt.draw].samples[attempt.sample]
            sample.issue()
            leases.append(Lease(attempt, now, self.versions.newest.version, holder))
            self.book.issue(leases[-1])
            self._update_hold(self.draws[attempt.draw])
        return leases

    def _next_waiting(self) -> AttemptId | None:
        """The first attempt waiting to be issued, of a new draw if none of the old ones waits and one is admitted."""
        while True:
            while self._waiting:
                attempt = heapq.heappop(self._waiting)
                draw = self.draws.get(attempt.draw)
                if draw is not None:
                    sample = draw.samples[attempt.sample]
                    if sample.waiting and sample.next_attempt == attempt.attempt:
                        return attempt
            if not self._admits_draw:
                return None
            draw = Draw(self.next_draw, [Sample() for _ in range(self._config.group_size)])
            self.draws[draw.number] = draw
            self._move(draw, "open")
            self.next_draw += 1
            for index in range(self._config.group_size):
                self._offer(draw.number, index)

    @property
    def _admits_draw(self) -> bool:
        """Whether all samples of one more draw fit. A draw keeps its place while any of it is unfinished (fault G1)."""
        if self.next_draw == self._config.num_draws:
            return False
        return (len(self.draws) + 1) * self._config.group_size <= self._config.outstanding_limit

    def _offer(self, number: int, index: int) -> None:
        """Put the sample's next attempt in line if it waits."""
        sample = self.draws[number].samples[index]
        if sample.waiting:
            heapq.heappush(self._waiting, AttemptId(number, index, sample.next_attempt))

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(self, trajectory: Trajectory, now: float) -> CommitAck:
        """Account for a finished attempt that is in flight; see `Store.commit`."""
        if awaits_reward(trajectory):
            self.book.await_reward(trajectory, now)
            return "queued"
        return self.decide(trajectory, failure(trajectory), now)

    def decide(self, trajectory: Trajectory, reason: DropReason | None, now: float) -> CommitAck:
        """In flight -> queued, or dropped for `reason`."""
        attempt = trajectory.attempt
        draw = self.draws[attempt.draw]
        sample = draw.samples[attempt.sample]
        if reason is None:
            queued = self.book.accept(trajectory, now)
            self.lengths.add_committed(queued.num_action_tokens)
            superseded = sample.accept(attempt.attempt)
        else:
            self.book.fail(trajectory, reason, now)
            superseded = sample.fail(attempt.attempt, self._config.max_attempts)
        for other in superseded:
            self.book.supersede(AttemptId(attempt.draw, attempt.sample, other))
        self._offer(attempt.draw, attempt.sample)
        self._settle(draw)
        return "queued" if reason is None else "dropped"

    def lose(self, lost: Callable[[Lease], bool]) -> list[AttemptId]:
        """Offer a next attempt for each sample of which all that is in flight is lost; returns what this call lost."""
        found = []
        for attempt, lease in self.book.in_flight.items():
            sample = self.draws[attempt.draw].samples[attempt.sample]
            if lost(lease) and attempt.attempt not in sample.lost and attempt not in self.book.awaiting:
                sample.lose(attempt.attempt)
                self._offer(attempt.draw, attempt.sample)
                found.append(attempt)
        return found

    # -- settling -----------------------------------------------------------------------------------------------------

    def _settle(self, draw: Draw) -> None:
        """Make a settled draw ready, or give it up; then tell the hold rule."""
        if draw.settled:
            accepted = draw.accepted
            if len(accepted) < self._config.min_valid_members:
                for attempt in accepted:
                    self.book.drop(attempt, DropReason.GROUP_TOO_SMALL)
                self.num_given_up += 1
                self._move(draw, "given_up")
                del self.draws[draw.number]
                if self._hold_rule:
                    self._hold_rule.forget(draw.number)
                return
            draw.ready = True
            self.put_back([draw])
        self._update_hold(draw)

    def put_back(self, draws: list[Draw]) -> None:
        """Put ready draws in line, by the oldest version among their members and then by number."""
        for draw in draws:
            heapq.heappush(self._ready, (self._oldest_version(draw), draw.number))

    def _oldest_version(self, draw: Draw) -> int:
        return min(self.book.queued[attempt].versions[0] for attempt in draw.accepted)

    def _update_hold(self, draw: Draw) -> None:
        if self._hold_rule is None:
            return
        versions = [self.book.in_flight[attempt].version for attempt in draw.in_flight]
        versions += [self.book.queued[attempt].versions[0] for attempt in draw.accepted]
        steps = [self._step_of(version) for version in versions]
        self._hold_rule.set(draw.number, min(steps, default=None), draw.ready)

    def _step_of(self, version: int) -> int:
        """Step of a version; that of the newest for one whose publication has not arrived yet."""
        step = self.versions.step_of(version)
        return self.versions.newest.step if step is None else step

    # -- consuming ----------------------------------------------------------------------------------------------------

    def pop_batch(self) -> tuple[list[Draw], bool]:
        """The oldest ready draws that may be consumed now, a batch of them if there are enough, else at most one.

        What may not be consumed is dropped on the way. Draws over the bound are the oldest, so none is missed.

        Returns:
            The draws, and whether anything was dropped.
        """
        wanted = self._config.draws_per_batch if len(self._ready) >= self._config.draws_per_batch else 1
        batch: list[Draw] = []
        dropped = False
        while self._ready and len(batch) < wanted:
            draw = self.draws[heapq.heappop(self._ready)[1]]
            reason = self._unfit(draw)
            if reason is None:
                batch.append(draw)
            else:
                self._drop(draw, reason)
                dropped = True
        return batch, dropped

    def _unfit(self, draw: Draw) -> DropReason | None:
        """Why no member of this ready draw may be consumed now."""
        members = [self.book.queued[attempt] for attempt in draw.accepted]
        if any(self.versions.step_of(version) is None for member in members for version in member.versions):
            return DropReason.ROLLED_BACK
        bound = self._config.max_staleness
        if bound is None or self._config.when_too_old == "mask_tokens":
            return None
        return DropReason.STALE if max(self._staleness(member) for member in members) > bound else None

    def _staleness(self, queued: Queued) -> int:
        return self.versions.newest.step - self._step_of(queued.versions[0])

    def _drop(self, draw: Draw, reason: DropReason) -> None:
        """Drop all members of a ready draw and issue them again."""
        draw.ready = False
        for attempt in draw.accepted:
            self._reopen(draw, attempt, reason)
        self._settle(draw)

    def _reopen(self, draw: Draw, attempt: AttemptId, reason: DropReason) -> None:
        queued = self.book.drop(attempt, reason)
        if reason is DropReason.STALE:
            self.lengths.add_dropped(queued.num_action_tokens)
        draw.samples[attempt.sample].reopen(self._config.max_attempts, uses_a_try=reason not in BLAMELESS_REASONS)
        self._offer(attempt.draw, attempt.sample)

    def drop_damaged(self, draw: Draw, damaged: Iterable[AttemptId]) -> None:
        """Drop members of a draw popped by `pop_batch`, whose payload cannot be read, and issue them again."""
        draw.ready = False
        for attempt in damaged:
            self._reopen(draw, attempt, DropReason.DAMAGED)
        self._settle(draw)

    def must_hold(self) -> bool:
        """Whether handing out a batch now would make something in flight too old."""
        return self._hold_rule is not None and self._hold_rule.must_hold(self.versions.newest.step)

    def hand_out(self, batch: list[Draw], now: float) -> None:
        """Give these draws to the learner: they are `book.taken` until `finish` or `give_back`."""
        trusted = 0
        if self._config.when_too_old == "mask_tokens" and self._config.max_staleness is not None:
            trusted = self.versions.oldest_within(self.versions.newest.step - self._config.max_staleness)
        for draw in batch:
            for attempt in draw.accepted:
                queued = self.book.queued[attempt]
                self.book.take(Taken(queued, self._staleness(queued), trusted, now - queued.committed_s))
            self._taken.append(draw.number)
            if self._hold_rule:
                self._hold_rule.forget(draw.number)

    def finish(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """Taken -> trained; see `Store.finish_step`."""
        if self._finished_already(trained, publication):
            return
        begins = not trained and publication is not None
        expected = [] if begins else list(self.book.taken)
        if sorted(trained) != sorted(expected):
            unknown = [str(attempt) for attempt in trained if attempt not in self.book.taken]
            missing = [str(attempt) for attempt in expected if attempt not in trained]
            raise RunError(
                f"finish_step names {len(trained)} attempts, the batch has {len(expected)}; "
                f"not in the batch: {unknown[:8]}, not named: {missing[:8]}; name each member of the batch once"
            )
        if publication is not None:
            self.versions.add(publication, trained=bool(trained))
            self.book.changes.append(Published(publication))
        if begins:
            if self.book.taken:  # a call of a dead learner, still under way, had got it: this one holds no batch
                self.book.give_back()
                self.index()
            return
        for position, attempt in enumerate(expected):
            self.book.train(attempt, self.batches, position)
        self.book.changes.append(BatchFinished(self.batches, None if publication is None else publication.version))
        self.batches += 1
        for number in self._taken:
            self._move(self.draws[number], "trained")
            del self.draws[number]
        self._taken.clear()
        self._last_batch = (sorted(trained), publication)

    def _finished_already(self, trained: list[AttemptId], publication: Publication | None) -> bool:
        """Whether this is the last call once more, whose answer was lost.

        Raises:
            RunError: the same batch with another publication, or neither batch nor publication.
        """
        if not trained:
            if publication is None and not self.book.taken:
                raise RunError("finish_step names neither a batch nor a publication; take a batch first")
            return not self.versions.is_empty and publication == self.versions.newest
        last, published = self._last_batch
        if sorted(trained) != last:
            return False
        if publication != published:
            raise RunError(
                f"batch {self.batches - 1} was finished with {published}; it cannot be finished again with "
                f"{publication}. Repeat a call as it was, or go on with the next batch"
            )
        return True
