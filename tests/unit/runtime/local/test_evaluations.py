"""Due evaluations: none is forgotten, none is of a policy that was given up."""

import errno
from pathlib import Path

from soliton.runtime.local.evaluations import Evaluations
from soliton.runtime.local.events import Evaluated, EvaluationDue


def due(step: int, version: int | None = None) -> EvaluationDue:
    return EvaluationDue(step if version is None else version, step, step)


def done(step: int, version: int | None = None) -> Evaluated:
    return Evaluated(step if version is None else version, step, step, {"eval/pass_at_1": 0.5})


def evaluations(weights: Path) -> tuple[Evaluations, list[str]]:
    sent: list[str] = []
    (weights / "evaluation").mkdir(parents=True, exist_ok=True)
    return Evaluations(weights, sent.append), sent


def test_an_evaluator_that_starts_again_is_told_what_is_still_due(tmp_path: Path):
    made, sent = evaluations(tmp_path)
    for step in (2, 4, 6):
        made.add(due(step))
    assert made.done(done(2))
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
    made.go_back(3)
    assert not made.done(done(4))
    made.add(due(4, version=9))  # the step was made again
    assert not made.done(done(4))
    assert made.done(done(4, version=9))
    assert sent == ["evaluate 2 2 2", "evaluate 4 4 4", "evaluate 9 4 4"]


def test_a_step_is_due_once_and_a_result_counts_once(tmp_path: Path):
    made, sent = evaluations(tmp_path)
    made.add(due(2))
    made.add(due(2, version=7))
    assert sent == ["evaluate 2 2 2"]
    assert made.done(done(2))
    assert not made.done(done(2))


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
