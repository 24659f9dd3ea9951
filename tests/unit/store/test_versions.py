import pytest
from hypothesis import given
from hypothesis import strategies as st

from soliton.errors import RunError
from soliton.store.versions import VersionTable
from soliton.types import Publication


def table(*versions: int, first_step: int = 0) -> VersionTable:
    rows, parent = [], -1
    for step, version in enumerate(versions, start=first_step):
        rows.append(Publication(version, parent, step, "x"))
        parent = version
    return VersionTable(rows)


def test_a_table_without_a_row_takes_any_first_one_without_a_parent():
    versions = VersionTable()
    assert versions.is_empty
    assert versions.next_version == 0
    with pytest.raises(RunError, match="its parent is 4; the newest version is -1"):
        versions.add(Publication(5, 4, 0, "x"), trained=False)
    versions.add(Publication(5, -1, 3, "x"), trained=False)
    assert (versions.newest.step, versions.next_version) == (3, 6)


def test_the_same_policy_may_be_published_again_and_keeps_its_step():
    versions = table(0, 1)
    versions.add(Publication(4, 1, 1, "x"), trained=False)
    assert versions.newest.version == 4
    assert (versions.step_of(1), versions.step_of(4)) == (1, 1)
    assert versions.oldest_within(1) == 1


def test_rolled_back_numbers_are_unknown_and_never_used_again():
    versions = table(0, 1, 2, 3)
    versions.rewind(1)
    assert versions.newest.version == 1
    assert versions.step_of(2) is None
    assert versions.next_version == 4
    for used in (2, 3):
        with pytest.raises(RunError, match="3 exists; versions grow, none is reused: the next one is 4"):
            versions.add(Publication(used, 1, 2, "x"), trained=True)
    versions.add(Publication(4, 1, 1, "x"), trained=False)
    with pytest.raises(RunError, match="cannot go back to version 3: it is not in this lineage"):
        versions.rewind(3)
    versions.rewind(-1)
    assert versions.is_empty
    assert versions.next_version == 5


def test_versions_know_their_steps_and_unknown_ones_have_none():
    versions = table(3, 4, 9)
    assert [versions.step_of(v) for v in (3, 4, 9, 5)] == [0, 1, 2, None]
    assert versions.newest.version == 9
    assert [row.version for row in versions.rows] == [3, 4, 9]


@given(st.lists(st.integers(0, 50), min_size=1, unique=True).map(sorted), st.integers(0, 5), st.data())
def test_the_oldest_version_within_a_step_is_the_first_of_a_linear_search(versions, first_step, data):
    rows = table(*versions, first_step=first_step)
    step = data.draw(st.integers(-3, rows.newest.step))
    assert rows.oldest_within(step) == next(row.version for row in rows.rows if row.step >= step)


def test_a_refused_row_leaves_the_table_as_it_was():
    versions = table(0, 1)
    for wrong in (Publication(1, 1, 2, "x"), Publication(2, 0, 2, "x"), Publication(2, 1, 3, "x")):
        with pytest.raises(RunError):
            versions.add(wrong, trained=True)
    assert versions.newest.version == 1
    versions.add(Publication(2, 1, 2, "x"), trained=True)
    assert versions.newest.step == 2
