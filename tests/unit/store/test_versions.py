import pytest
from hypothesis import given
from hypothesis import strategies as st

from soliton.store.versions import VersionTable
from soliton.types import Publication


def table(*versions: int, first_step: int = 0) -> VersionTable:
    rows, parent = [], -1
    for step, version in enumerate(versions, start=first_step):
        rows.append(Publication(version, parent, step, "x"))
        parent = version
    return VersionTable(rows)


def test_a_table_without_a_row_is_an_error():
    with pytest.raises(ValueError, match="got no row"):
        VersionTable([])


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
    from soliton.errors import RunError

    versions = table(0, 1)
    for wrong in (Publication(1, 1, 2, "x"), Publication(2, 0, 2, "x"), Publication(2, 1, 3, "x")):
        with pytest.raises(RunError):
            versions.add(wrong)
    assert versions.newest.version == 1
    versions.add(Publication(2, 1, 2, "x"))
    assert versions.newest.step == 2
