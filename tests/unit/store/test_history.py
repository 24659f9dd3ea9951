import pytest
from msgspec.structs import replace

from soliton.errors import RunError
from soliton.store.config import StoreConfig
from soliton.store.history import (
    ANY,
    Wanted,
    consumed_batches,
    count_attempts,
    ledger_at_rest,
    publications,
    stored_attempts,
)
from soliton.store.sqlite import SqliteStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.sqlite import at_once, commit_new, republish, train
from tests.fakes.trajectories import failed, publication, trajectory


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def begun(path, **changes):
    store = SqliteStore.open(path, StoreConfig(**{"batch_size": 2, "max_staleness": 4} | changes), ManualClock())
    at_once(store.finish_step([], publication(0)))
    return store


def test_batches_are_read_as_the_learner_got_them_while_the_run_goes_on(path):
    store = begun(path, when_too_old="mask_tokens", max_staleness=1)
    seen = []
    for batch in range(4):
        step = store.newest.step
        leases = at_once(store.lease(2))
        store.commit_many([trajectory(lease.attempt, (max(0, step - 2), step)) for lease in leases])
        items = at_once(store.take())
        moved = batch != 2
        seen.append((batch, [_facts(item) for item in items], store.next_version if moved else None))
        train(store, moved=moved)
    read = [
        (number, [_facts(item) for item in items], None if row is None else row.version)
        for number, items, row in consumed_batches(path)
    ]
    assert read == seen
    assert {item[1] for _, items, _ in read for item in items} > {0}
    assert publications(path) == list(store.publications())
    assert ledger_at_rest(path) == at_once(store.status()).ledger


def _facts(item):
    record = item.trajectory
    return str(record.attempt), item.staleness, item.min_trusted_version, item.queued_s, record.versions.tolist()


def test_only_the_surviving_lineage_is_read(path):
    store = begun(path)
    commit_new(store, 6)
    for _ in range(3):
        train(store)
    store.rewind(batches=1, version=1)
    republish(store)
    second = train(store, moved=False)
    read = [(number, [i.trajectory.attempt for i in items], row) for number, items, row in consumed_batches(path)]
    assert [number for number, _, _ in read] == [0, 1]
    assert read[1] == (1, second, None)
    assert [row.version for row in publications(path)] == [0, 1, 4]


def test_a_reader_sees_one_moment_of_the_file(path):
    store = begun(path)
    commit_new(store, 4)
    train(store)
    batches = consumed_batches(path)
    next(batches)
    train(store)
    assert list(batches) == []
    assert len(list(consumed_batches(path))) == 2


def test_attempts_are_found_by_what_became_of_them(path):
    store = begun(path)
    good, bad, lost, _ = at_once(store.lease(4, "worker-3"))
    store.commit_many([trajectory(good.attempt), failed(bad.attempt, "env_timeout")])
    store.lose("worker-3")
    again = at_once(store.lease(2))
    store.commit_many([trajectory(lease.attempt) for lease in again])
    (found,) = stored_attempts(path, Wanted(reason="env_timeout"))
    assert (found.attempt, found.state, found.holder) == (bad.attempt, "dropped", "worker-3")
    assert found.trajectory.reason == "env_timeout"
    (over,) = stored_attempts(path, Wanted(state="superseded"))
    assert over.trajectory is None
    assert next(stored_attempts(path, Wanted(state="queued"))).attempt == good.attempt
    assert len(list(stored_attempts(path))) == 6
    of_lost = Wanted(draw=lost.attempt.draw, attempt=lost.attempt.attempt)
    assert [count_attempts(path, each) for each in (ANY, Wanted(state="queued"), of_lost)] == [6, 3, 1]
    assert [each.state for each in stored_attempts(path, Wanted(draw=lost.attempt.draw))] == ["superseded", "queued"]
    assert len(list(stored_attempts(path, skip=4))) == 2
    assert list(stored_attempts(path, replace(of_lost, state="trained"))) == []


def test_a_reader_makes_no_store(path):
    with pytest.raises(RunError, match="there is no store"):
        ledger_at_rest(path)
    assert not path.exists()
    path.write_text("something else, which is long enough to be looked at" * 9)
    with pytest.raises(RunError, match="cannot be read as a store"):
        publications(path)
