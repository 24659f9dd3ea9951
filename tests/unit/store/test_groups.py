from soliton.store.groups import Draw, Sample


def test_a_sample_goes_from_waiting_over_in_flight_to_accepted():
    sample = Sample()
    assert sample.waiting
    assert not sample.settled
    assert sample.issue() == 0
    assert (sample.waiting, sample.in_flight, sample.settled) == (False, [0], False)
    assert sample.accept(0) == []
    assert sample.settled


def test_a_failed_sample_waits_again_until_its_tries_are_used_up():
    sample = Sample()
    for attempt in range(3):
        assert not sample.settled
        assert sample.issue() == attempt
        assert sample.fail(attempt, max_attempts=3) == []
    assert sample.settled
    assert sample.accepted is None
    assert not sample.waiting


def test_a_dropped_sample_uses_up_a_try_too():
    sample = Sample()
    sample.issue()
    sample.accept(0)
    sample.reopen(max_attempts=2)
    assert sample.waiting
    sample.issue()
    sample.accept(1)
    sample.reopen(max_attempts=2)
    assert sample.settled
    assert sample.accepted is None


def lost_once() -> Sample:
    """Attempt 0 is presumed lost and attempt 1 is in flight as well."""
    sample = Sample()
    sample.issue()
    sample.lose(0)
    sample.issue()
    return sample


def test_the_first_accepted_attempt_supersedes_the_others():
    assert lost_once().accept(1) == [0]
    late_but_first = lost_once()
    assert late_but_first.accept(0) == [1]
    assert late_but_first.in_flight == []


def test_a_failure_waits_for_another_attempt_that_is_on_its_way():
    sample = lost_once()
    assert sample.fail(0, max_attempts=3) == []  # it came back after all; attempt 1 is still expected
    assert not sample.waiting
    assert not sample.settled
    assert sample.fail(1, max_attempts=3) == []
    assert sample.waiting


def test_a_failure_does_not_wait_for_an_attempt_that_is_presumed_lost():  # fault H1
    sample = lost_once()
    assert sample.fail(1, max_attempts=3) == []
    assert sample.waiting
    assert sample.issue() == 2
    assert sample.accept(2) == [0]


def test_giving_up_supersedes_what_is_still_in_flight():
    sample = lost_once()
    assert sample.fail(1, max_attempts=1) == [0]
    assert sample.settled


def test_a_draw_is_settled_when_each_sample_is_and_names_the_winners_in_order():
    draw = Draw(7, [Sample(), Sample(), Sample()])
    for sample in draw.samples:
        sample.issue()
    assert [str(attempt) for attempt in draw.in_flight] == ["d7s0a0", "d7s1a0", "d7s2a0"]
    draw.samples[2].accept(0)
    draw.samples[0].accept(0)
    assert not draw.settled
    draw.samples[1].fail(0, max_attempts=1)
    assert draw.settled
    assert [str(attempt) for attempt in draw.accepted] == ["d7s0a0", "d7s2a0"]
