"""Due evaluations: none is forgotten, none is of a policy that was given up."""

import errno
from pathlib import Path

from soliton.runtime.local.evaluations import Evaluations
from soliton.runtime.local.events import Evaluated, EvaluationDue


def due(step: int, version: int | None = None) -> EvaluationDue:
    return EvaluationDue(step if version is None else version, step, step)


def done(step: int, version: int | None = None) -> Evaluated:
    return Evaluated(step if version is None else version, step, step, {"eval/pass_at_1": 0.5})


def evaluations(weights: Path, *evaluated: int) -> tuple[Evaluations, list[str]]:
    sent: list[str] = []
    (weights / "evaluation").mkdir(parents=True, exist_ok=True)
    return Evaluations(weights, evaluated, sent.append), sent


def linked(weights: Path, version: int) -> Path:
    """Weights kept for an evaluation."""
    folder = weights / "evaluation" / f"v_{version}"
    folder.mkdir(parents=True)
    return folder


def test_an_evaluator_that_starts_again_is_told_what_is_still_due(tmp_path: Path):
    made, sent = evaluations(tmp_path)
    for step in (2, 4, 6):
        made.add(due(step))
    made.done(done(2))
    made.finish()
    sent.clear()
    made.repeat()
    assert sent == ["evaluate 4 4 4", "evaluate 6 6 6", "finish"]


def test_a_resumed_run_goes_on_with_what_was_due(tmp_path: Path):
    made, _ = evaluations(tmp_path)
    made.add(due(2))
    made.add(due(4))
    made.done(done(2))
    resumed, sent = evaluations(tmp_path)
    resumed.repeat()
    assert sent == ["evaluate 4 4 4"]


def test_a_policy_that_was_given_up_is_forgotten_and_its_late_result_means_nothing(tmp_path: Path):
    made, sent = evaluations(tmp_path)
    made.add(due(2))
    made.add(due(4))
    made.go_back(3, ())
    assert not made.is_due(done(4))
    made.add(due(4, version=9))  # the step was made again
    assert not made.is_due(done(4))
    made.done(done(4))
    assert made.is_due(done(4, version=9))
    assert sent == ["evaluate 2 2 2", "evaluate 4 4 4", "evaluate 9 4 4"]


def test_a_step_is_due_once_and_a_result_counts_once(tmp_path: Path):
    made, sent = evaluations(tmp_path)
    made.add(due(2))
    made.add(due(2, version=7))
    assert sent == ["evaluate 2 2 2"]
    assert made.is_due(done(2))
    made.done(done(2))
    assert not made.is_due(done(2))


def test_what_a_controller_died_before_hearing_is_due_when_the_learner_says_it_again(tmp_path: Path):  # fault H8
    resumed, sent = evaluations(tmp_path)
    resumed.add(due(4, version=9))
    assert sent == ["evaluate 9 4 4"]


def test_what_a_learner_says_again_is_not_evaluated_again(tmp_path: Path):
    """Step 2 has its result; step 4 is due since before the kill; step 6 was undone and is made again."""
    first, _ = evaluations(tmp_path, 2, 6)
    first.add(due(4))
    resumed, sent = evaluations(tmp_path, 2, 6)
    resumed.go_back(5, (2,))
    again = [linked(tmp_path, version) for version in (12, 14, 16)]
    for step in (2, 4, 6):
        resumed.add(due(step, version=10 + step))
    assert sent == ["evaluate 16 6 6"]
    assert [folder.exists() for folder in again] == [False, False, True]


def test_weights_stay_until_the_result_was_heard(tmp_path: Path):
    """The controller may die while a result is on its way: the next evaluator needs the weights."""
    made, _ = evaluations(tmp_path)
    weights = linked(tmp_path, 2)
    made.add(due(2))
    resumed, sent = evaluations(tmp_path)
    resumed.repeat()
    assert sent == ["evaluate 2 2 2"]
    assert weights.exists()
    resumed.done(done(2))
    assert not weights.exists()


def test_nothing_is_left_of_it_in_the_end(tmp_path: Path):
    made, _ = evaluations(tmp_path)
    made.add(due(2))
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_forgets_nothing(tmp_path: Path, monkeypatch):
    made, _ = evaluations(tmp_path)

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", no_space)
        made.add(due(2))
    made.add(due(4))
    resumed, sent = evaluations(tmp_path)
    resumed.repeat()
    assert sent == ["evaluate 2 2 2", "evaluate 4 4 4"]
