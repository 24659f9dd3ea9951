"""In which phase a run is: by schedule, from outside, and the same again for an episode that is rebuilt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soliton.errors import RunError
from soliton.runtime.phases import PhaseHistory, RunPhases, scheduled_phase


def test_a_phase_begins_at_its_step():
    assert [scheduled_phase((2, 4), step) for step in range(6)] == [1, 1, 2, 2, 3, 3]
    assert scheduled_phase((), 100) == 1
    assert scheduled_phase((0, 0), 0) == 3


def test_without_a_word_from_outside_the_schedule_counts_and_goes_back_with_the_step(tmp_path):
    phases = RunPhases((2,), tmp_path / "phases.json")
    assert [phases.at_step(step) for step in (0, 2, 3, 1)] == [1, 2, 2, 1]


def test_what_was_said_from_outside_holds_whatever_the_step_and_in_every_process(tmp_path):
    here, there = (RunPhases((2,), tmp_path / "phases.json") for _ in range(2))
    assert there.at_step(5) == 2
    here.shift(3, 100.0)
    assert there.at_step(0) == there.at_step(5) == here.at_step(0) == 3
    here.shift(1, 200.0)
    assert there.at_step(5) == 1
    after_a_restart = RunPhases((2,), tmp_path / "phases.json")
    assert [(shift.phase, shift.date_s) for shift in after_a_restart.set_from_outside()] == [(3, 100.0), (1, 200.0)]


def test_a_damaged_file_stops_the_run_with_its_name(tmp_path):
    (tmp_path / "phases.json").write_text('[{"phase": ')
    with pytest.raises(RunError, match=r"phases\.json is damaged"):
        RunPhases((), tmp_path / "phases.json").at_step(0)


def test_at_the_moment_of_a_shift_it_is_still_the_earlier_phase_whoever_comes_first():
    history = PhaseHistory((1, 3))
    assert history.at(2.0) == 1
    history.reached(1, 2.0)
    assert (history.at(0.0), history.at(2.0), history.at(2.0001)) == (1, 1, 2)
    history.reached(2, 3.0)
    assert len(history.begun) == 2  # nothing changed
    history.reached(3, 4.0)
    assert history.at(9.0) == 3


@given(
    st.lists(st.integers(0, 20), max_size=4).map(sorted),
    st.lists(st.floats(0.001, 2.0), min_size=1, max_size=20),
    st.integers(0, 19),
)
def test_a_history_never_changes_what_it_said_and_goes_on_from_what_was_kept(shifts, waits, cut):
    whole, now, asked = PhaseHistory(shifts), 0.0, {}
    resumed = PhaseHistory(shifts)
    for step, wait in enumerate(waits, start=1):
        now += wait
        whole.reached(step, now)
        resumed.reached(step, now)
        asked[now] = whole.at(now)
        if step == cut:
            resumed = PhaseHistory(shifts, resumed.begun)
    assert {at: whole.at(at) for at in asked} == asked
    assert resumed.begun == whole.begun
