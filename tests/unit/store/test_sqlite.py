"""What the SQLite store adds to the contract: it survives its process, goes back to a checkpoint, waits for space."""

import os
import sqlite3
import sys

import msgspec
import pytest

from soliton.errors import ConfigError, RunError, StorageFullError
from soliton.store.codec import encode_trajectory
from soliton.store.config import StoreConfig
from soliton.store.history import consumed_batches, ledger_at_rest
from soliton.store.payloads import payload_path
from soliton.store.sqlite import SqliteStore
from soliton.types import AttemptId, Publication
from tests.fakes.manual_clock import ManualClock
from tests.fakes.sqlite import at_once, commit_new, killed, republish, train, waits
from tests.fakes.trajectories import failed, publication, trajectory

CONFIG = StoreConfig(batch_size=2, max_staleness=3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def opened(path, config=CONFIG, clock=None, **options):
    return SqliteStore.open(path, config, clock or ManualClock(), **options)


def begun(path, config=CONFIG, clock=None, first=0):
    store = opened(path, config, clock)
    at_once(store.finish_step([], publication(first, first=first)))
    return store


def ledger(store):
    return at_once(store.status()).ledger


# -- the next process -------------------------------------------------------------------------------------------------


def test_finished_but_untrained_trajectories_train_once_after_a_resume(path, tmp_path):  # fault J1
    config = StoreConfig(batch_size=37, max_staleness=1)
    store = begun(path, config)
    finished = commit_new(store, 37)
    at_once(store.lease(3))
    resumed = opened(killed(path, tmp_path / "next" / "store.sqlite"), config)
    assert train(resumed) == finished
    assert (ledger(resumed).trained, ledger(resumed).queued, ledger(resumed).in_flight) == (37, 0, 3)
    assert [str(lease.attempt) for lease in at_once(resumed.lease(4))] == ["d37s0a1", "d38s0a1", "d39s0a1", "d40s0a0"]
    assert ledger(resumed).balance == 0


def test_a_resume_at_version_1000_admits_no_more_than_a_new_run(path):  # fault G1
    store = begun(path, first=1000)
    commit_new(store, 2)
    train(store)
    store.close_file()
    resumed = opened(path)
    republish(resumed)
    leases = at_once(resumed.lease(10_000))
    assert len(leases) == 8
    assert {lease.version for lease in leases} == {1002}
    assert at_once(resumed.status()).step == 1001


def test_every_fact_of_the_store_survives(path):
    clock = ManualClock()
    config = StoreConfig(batch_size=2, max_staleness=0, max_attempts=1)
    store = begun(path, config, clock)
    first, second = at_once(store.lease(2))
    store.commit_many([failed(first.attempt, "bad_reward"), trajectory(second.attempt, (0,) * 5)])
    commit_new(store, 1, 0, 0, 0)
    train(store)
    commit_new(store, 1)
    before = at_once(store.status())
    rows, run_id = store.publications(), store.run_id
    store.close_file()
    resumed = opened(path, config)
    assert at_once(resumed.status()) == before
    assert before.num_given_up == 1
    assert before.batches == 1
    assert before.ledger.dropped == {"bad_reward": 1}
    assert (resumed.publications(), resumed.run_id, resumed.findings) == (rows, run_id, ())


def test_a_repeated_commit_gets_its_old_answer_from_the_next_process_too(path):
    store = begun(path)
    good, bad, lost = at_once(
        store.lease(3),
    )
    records = [trajectory(good.attempt), failed(bad.attempt)]
    assert store.commit_many(records) == ["queued", "dropped"]
    store.lose(None)
    again = at_once(store.lease(2))
    assert store.commit_many([trajectory(lease.attempt) for lease in again]) == ["queued", "queued"]
    late = trajectory(lost.attempt)
    assert store.commit_many([late]) == ["superseded"]
    train(store)
    store.close_file()
    resumed = opened(path)
    before = ledger(resumed)
    assert resumed.commit_many([*records, late]) == ["queued", "dropped", "superseded"]
    with pytest.raises(RunError, match="d77s0a0, which this store never issued"):
        resumed.commit_many([*records, trajectory(AttemptId(77))])
    assert ledger(resumed) == before


def test_several_commits_are_all_taken_or_none(path):
    store = begun(path)
    (lease,) = at_once(store.lease(1))
    for wrong, error in ((trajectory(AttemptId(9)), RunError), (failed(lease.attempt, "stale"), ValueError)):
        with pytest.raises(error):
            store.commit_many([trajectory(lease.attempt), wrong])
    assert ledger(store).in_flight == 1
    assert store.commit_many([trajectory(lease.attempt), trajectory(lease.attempt)]) == ["queued", "queued"]
    assert (ledger(store).queued, ledger(store).balance) == (1, 0)


def test_a_batch_that_was_taken_and_not_finished_is_queued_for_the_next_process(path, tmp_path):
    store = begun(path)
    commit_new(store, 4)
    taken = [item.trajectory.attempt for item in at_once(store.take())]
    resumed = opened(killed(path, tmp_path / "next" / "store.sqlite"))
    assert train(resumed) == taken
    assert ledger(resumed).balance == 0


def test_all_leases_of_the_session_before_are_lost_and_the_first_commit_still_wins(path):
    store = begun(path)
    leases = at_once(store.lease(2, "worker-0"))
    store.close_file()
    resumed = opened(path)
    assert resumed.lose(None) == []  # they are already
    again = at_once(resumed.lease(2))
    assert [lease.attempt.attempt for lease in again] == [1, 1]
    assert resumed.commit_many([trajectory(leases[0].attempt)]) == ["queued"]  # a worker that outlived its controller
    assert resumed.commit_many([trajectory(again[0].attempt)]) == ["superseded"]


def test_fewer_tries_than_before_leave_nothing_hanging(path):
    store = begun(path)
    for _ in range(2):
        (lease,) = at_once(store.lease(1))
        store.commit_many([failed(lease.attempt)])
    at_once(store.lease(1))
    store.close_file()
    resumed = opened(path, StoreConfig(batch_size=2, max_staleness=3, max_attempts=2))
    assert resumed.num_given_up == 1
    assert (ledger(resumed).superseded, ledger(resumed).in_flight, ledger(resumed).balance) == (1, 0, 0)


@pytest.mark.parametrize("start_s", [-3600.0, 0.0, 3600.0])
def test_clocks_that_begin_elsewhere_change_no_decision(path, start_s):
    """A monotonic clock begins anywhere in a new process; the run's time goes on, and no wait becomes negative."""
    clock = ManualClock(100.0)
    store = begun(path, clock=clock)
    clock._now = 107.0
    commit_new(store, 2)
    store.close_file()
    clock = ManualClock(start_s)
    resumed = opened(path, clock=clock)
    clock._now += 5
    (lease,) = at_once(resumed.lease(1))
    assert lease.issued_s >= 107.0
    assert min(item.queued_s for item in at_once(resumed.take())) >= 0
    assert resumed.reissue_lost(issued_before_s=clock.now()) == []
    assert resumed.reissue_lost(issued_before_s=clock.now() + 1) == [lease.attempt]


# -- who may open it --------------------------------------------------------------------------------------------------


def test_another_stream_of_prompts_is_refused_and_both_are_shown(path):
    opened(path, identity="calculator, seed 1").close_file()
    with pytest.raises(ConfigError, match=r"the run has 'calculator, seed 1'\n  now given   'calculator, seed 2'"):
        opened(path, identity="calculator, seed 2")
    opened(path, identity="calculator, seed 1").close_file()


def test_another_group_size_is_refused(path):
    opened(path).close_file()
    with pytest.raises(ConfigError, match=r"group_size: got 2, but the run in .* was started with 1"):
        opened(path, StoreConfig(batch_size=2, group_size=2, max_staleness=1))


def test_a_store_of_a_later_version_is_refused(path):
    opened(path).close_file()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(RunError, match=r"has schema 99; this version of Soliton reads 2\. Use the version"):
        opened(path)


@pytest.mark.parametrize("content", [b"not a database, but text long enough to be one" * 20, b"SQLite format 3\0"])
def test_another_kind_of_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        opened(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
def test_the_durability_is_what_was_asked_for(path, durability, level):
    store = opened(path, durability=durability)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_bytes_that_a_trajectory_came_as_are_written_as_they_came(path):
    store = begun(path)
    records = [trajectory(lease.attempt, (0,) * 5) for lease in at_once(store.lease(2))]
    fields = [msgspec.msgpack.decode(encode_trajectory(record)) for record in records]
    came = [msgspec.msgpack.encode(dict(reversed(each.items()))) for each in fields]  # valid, and not as we encode
    assert store.commit_many(records, came) == ["queued", "queued"]
    assert payload_path(path).read_bytes() == b"".join(came)
    store.close_file()
    resumed = opened(path)
    assert resumed.findings == ()
    taken = [item.trajectory for item in at_once(resumed.take())]
    assert [encode_trajectory(each) for each in taken] == [encode_trajectory(record) for record in records]


@pytest.mark.parametrize(("durability", "flushes"), [("process", 0), ("power", 2)])
def test_payloads_are_flushed_before_their_index_where_a_power_failure_counts(path, monkeypatch, durability, flushes):
    seen = []
    monkeypatch.setattr(os, "fdatasync", lambda file: seen.append(os.fstat(file).st_size))
    store = SqliteStore.open(path, StoreConfig(batch_size=4, max_staleness=4), ManualClock(), durability=durability)
    at_once(store.finish_step([], publication(0)))
    commit_new(store, 1)
    commit_new(store, 1)
    assert len(seen) == flushes
    assert seen == sorted(seen)
    assert all(size > 0 for size in seen)  # the bytes were there


def test_a_long_queue_costs_no_memory_for_its_tokens(path):  # fault H7
    config = StoreConfig(batch_size=2, max_staleness=None, max_outstanding=100)
    store = begun(path, config)
    commit_new(store, 100, *[0] * 1000)
    held = [value for value in vars(store).values() if isinstance(value, dict | list)]
    assert sum(len(value) for value in held) == 0  # no payload, no pending change
    record = next(iter(store._work.book.queued.values()))
    assert sys.getsizeof(record) + sys.getsizeof(record.versions) < 300
    assert at_once(store.status()).queued_bytes > 100 * 13_000


# -- going back -------------------------------------------------------------------------------------------------------


def test_going_back_to_a_checkpoint_puts_undone_batches_into_the_queue_again(path):
    store = begun(path)
    commit_new(store, 8)
    batches = [train(store) for _ in range(3)]
    store.rewind(batches=1, version=1)
    status = at_once(store.status())
    assert (status.batches, status.step, status.version) == (1, 1, 1)
    assert (status.ledger.trained, status.ledger.queued, status.ledger.balance) == (2, 6, 0)
    assert store.next_version == 4
    again = republish(store)
    assert again == Publication(4, 1, 1, "hash of step 1")
    assert [train(store), train(store)] == batches[1:]
    assert [number for number, _, _ in consumed_batches(path)] == [0, 1, 2]
    assert [row.version for row in store.publications()] == [0, 1, 4, 5, 6]


def test_what_rolled_back_versions_sampled_is_dropped_and_its_draws_are_issued_again(path):
    store = begun(path)
    commit_new(store, 2)
    train(store)
    commit_new(store, 2)
    train(store)
    newer = commit_new(store, 2, 1, 2)
    queued = commit_new(store, 2, 2)
    flying = at_once(store.lease(2))
    assert train(store) == newer
    store.rewind(batches=1, version=1)
    assert ledger(store).dropped == {"rolled_back": 2}  # those trained in batch 2
    republish(store)
    retried = at_once(store.lease(2))
    assert [lease.attempt for lease in retried] == [AttemptId(a.draw, 0, 1) for a in newer]
    store.commit_many([trajectory(lease.attempt, (lease.version,)) for lease in retried])
    store.commit_many([trajectory(lease.attempt, (2,)) for lease in flying])  # sampled by what is no more
    assert [attempt.draw for attempt in train(store)] == [2, 3]
    assert train(store) == [lease.attempt for lease in retried]
    assert waits(store.take())
    assert ledger(store).dropped == {"rolled_back": 6}
    expected = {attempt.draw for attempt in queued} | {lease.attempt.draw for lease in flying}
    assert {lease.attempt.draw for lease in at_once(store.lease(4))} == expected
    assert ledger(store).balance == 0


def test_a_batch_in_the_learners_hands_goes_back_to_the_queue(path):
    store = begun(path)
    commit_new(store, 4)
    taken = [item.trajectory.attempt for item in at_once(store.take())]
    store.rewind(batches=0, version=0)
    assert train(store) == taken


@pytest.mark.parametrize(("batches", "version", "message"), [(3, 1, "2 were consumed"), (1, 9, "not in this lineage")])
def test_a_place_where_the_run_never_was_is_refused_and_changes_nothing(path, batches, version, message):
    store = begun(path)
    commit_new(store, 4)
    train(store)
    train(store)
    before = at_once(store.status())
    with pytest.raises(RunError, match=message):
        store.rewind(batches, version)
    assert at_once(store.status()) == before


def test_going_back_is_one_transaction(path, tmp_path):
    store = begun(path)
    commit_new(store, 8)
    for _ in range(3):
        train(store)
    seen = []
    store._connection.set_trace_callback(lambda statement: seen.append(statement.split()[0]))
    store.rewind(1, 1)
    assert seen.count("COMMIT") == 1
    resumed = opened(killed(path, tmp_path / "next" / "store.sqlite"))
    assert at_once(resumed.status()) == at_once(store.status())


def test_back_to_before_the_first_policy(path):
    store = begun(path)
    commit_new(store, 2)
    train(store)
    store.rewind(batches=0, version=-1)
    assert store.publications() == ()
    assert ledger(store).dropped == {"rolled_back": 2}
    assert waits(store.lease(1))
    at_once(store.finish_step([], Publication(store.next_version, -1, 0, "x")))
    assert [str(lease.attempt) for lease in at_once(store.lease(2))] == ["d0s0a1", "d1s0a1"]


# -- no space ---------------------------------------------------------------------------------------------------------


def limit_pages(store, more):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + more}")


def commit_until_full(store, leases):
    limit_pages(store, 2)
    done = 0
    with pytest.raises(StorageFullError, match=r"no space left to write to .*store\.sqlite.*Free some"):  # noqa: PT012
        for lease in leases:
            store.commit_many([trajectory(lease.attempt, (0,) * 40)])
            done += 1
    assert 0 < done < len(leases)
    return done


def test_rollouts_wait_while_the_disk_is_full_and_nothing_is_lost_or_doubled(path):
    store = begun(path, StoreConfig(batch_size=200, max_staleness=1))
    leases = at_once(store.lease(400))
    done = commit_until_full(store, leases)
    status = at_once(store.status())  # still answers, from what is on disk
    assert (status.ledger.queued, status.ledger.in_flight, status.ledger.balance) == (done, 400 - done, 0)
    for call in (store.lease(1), store.take(), store.commit(trajectory(leases[done].attempt, (0,) * 40))):
        with pytest.raises(StorageFullError):
            at_once(call)
    assert ledger_at_rest(path) == status.ledger
    limit_pages(store, 10_000)
    acks = [store.commit_many([trajectory(lease.attempt, (0,) * 40)]) for lease in leases[done:]]
    assert acks == [["queued"]] * (400 - done)
    trained = train(store) + train(store)
    assert sorted(trained) == [lease.attempt for lease in leases]
    assert (ledger(store).trained, ledger(store).balance) == (400, 0)


def test_leases_that_nobody_heard_of_are_lost(path):
    store = begun(path, StoreConfig(batch_size=500, max_staleness=1))
    limit_pages(store, 0)
    with pytest.raises(StorageFullError):
        at_once(store.lease(400))
    limit_pages(store, 10_000)
    leases = at_once(store.lease(1000))
    assert [lease.attempt for lease in leases[:400]] == [AttemptId(draw, 0, 1) for draw in range(400)]
    store.commit_many([trajectory(lease.attempt) for lease in leases])
    assert ledger(store).balance == 0


@pytest.mark.parametrize("call", ["finish", "rewind"])
def test_a_step_or_a_rewind_without_space_is_done_when_it_is_repeated(path, call):
    store = begun(path, StoreConfig(batch_size=200, max_staleness=1))
    commit_new(store, 400)
    train(store)
    items = at_once(store.take())
    attempts = [item.trajectory.attempt for item in items]
    row = Publication(2, 1, 2, "x" * 40_000)  # does not fit

    def finish():
        at_once(store.finish_step(attempts, row))

    limit_pages(store, 0)
    with pytest.raises(StorageFullError):
        finish()
    if call == "finish":
        limit_pages(store, 10_000)
        finish()
        assert (ledger(store).trained, ledger(store).balance) == (400, 0)
        assert at_once(store.status()).step == 2
        return
    with pytest.raises(StorageFullError):
        store.rewind(1, 1)
    limit_pages(store, 10_000)
    store.rewind(1, 1)
    assert (ledger(store).trained, ledger(store).queued, ledger(store).balance) == (200, 200, 0)
    assert at_once(store.status()).version == 1


def test_a_file_that_fails_otherwise_says_so(path):
    store = begun(path)
    store._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(RunError, match=r"cannot write to .*SQLITE_READONLY.*was not recorded") as caught:
        at_once(store.lease(1))
    assert not isinstance(caught.value, StorageFullError)
