"""Random failures, kills and returns to checkpoints of a finite run: each draw is trained exactly once (fault J2)."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.store.config import StoreConfig
from soliton.store.history import consumed_batches, publications
from soliton.store.sqlite import SqliteStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.sqlite import at_once, killed, republish, train, waits
from tests.fakes.trajectories import failed, publication, trajectory

NUM_DRAWS = 24
events = st.sampled_from(["commit"] * 6 + ["fail", "lose", "kill", "rewind", "checkpoint", "train", "train"])


@settings(max_examples=60, deadline=None)
@given(
    plan=st.lists(st.tuples(events, st.integers(0, 1000)), max_size=80),
    bound=st.integers(1, 4),
    when_too_old=st.sampled_from(["drop", "wait"]),
)
def test_each_draw_is_trained_exactly_once_per_lineage_whatever_happens(plan, bound, when_too_old):  # fault J2
    config = StoreConfig(
        batch_size=4, max_staleness=bound, when_too_old=when_too_old, num_draws=NUM_DRAWS, max_attempts=10_000
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), config)
        for event, pick in plan:
            run.happen(event, pick)
        run.go_to_the_end()
        run.store.close_file()
        read = [item.trajectory for _, items, _ in consumed_batches(run.path) for item in items]
        assert sorted(record.attempt.draw for record in read) == list(range(NUM_DRAWS))
        known = {row.version for row in publications(run.path)}
        assert all(set(record.versions[record.action_mask].tolist()) <= known for record in read)


class Run:
    """Workers, a learner and a controller in one, without a loop."""

    def __init__(self, folder, config):
        self.folder, self.config, self.kills = folder, config, 0
        self.path = folder / "store.sqlite"
        self.store = SqliteStore.open(self.path, config, ManualClock())
        at_once(self.store.finish_step([], publication(0)))
        self.leases = []
        self.checkpoints = [(0, 0)]

    def happen(self, event, pick):
        if event in ("commit", "fail"):
            self.hand_in(event, pick)
        elif event == "lose":
            self.store.lose(None)
        elif event == "kill":
            self.kills += 1
            self.path = killed(self.path, self.folder / str(self.kills) / "store.sqlite")
            self.store._connection.close()
            self.store = SqliteStore.open(self.path, self.config, ManualClock())
            self.leases = [lease for lease in self.leases if pick % 2]  # the workers died too, or they did not
        elif event == "rewind":
            place = pick % len(self.checkpoints)
            del self.checkpoints[place + 1 :]
            self.store.rewind(*self.checkpoints[place])
            republish(self.store)
        elif event == "checkpoint":
            if not self.store._work.book.taken:
                self.checkpoints.append((self.store.batches, self.store.newest.version))
        elif not waits(self.store.take()):
            train(self.store, moved=bool(pick % 5))

    def hand_in(self, event, pick):
        if not waits(self.store.lease(1)):
            self.store.lose(None)  # the lease just given was not heard of
            self.leases += at_once(self.store.lease(2))
        if self.leases:
            lease = self.leases.pop(pick % len(self.leases))
            newest = self.store.newest.version
            record = failed(lease.attempt) if event == "fail" else trajectory(lease.attempt, (lease.version, newest))
            self.store.commit_many([record])

    def go_to_the_end(self):
        """No more accidents."""
        self.store.lose(None)
        for _ in range(10 * NUM_DRAWS):
            while not waits(self.store.take()):
                if not at_once(self.store.take()):
                    return
                train(self.store)
            self.store.lose(None)
            for lease in at_once(self.store.lease(3)):
                self.store.commit_many([trajectory(lease.attempt, (self.store.newest.version,))])
        raise AssertionError(f"the run does not end: {at_once(self.store.status())}")
