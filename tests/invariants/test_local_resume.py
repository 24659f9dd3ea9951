"""One run that is stopped, moved onto another number of workers, killed, and robbed of its newest checkpoint."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from soliton.config import RunConfig
from soliton.runtime.checkpoint import damage, list_checkpoints
from soliton.store.history import Wanted, consumed_batches, ledger_at_rest, stored_attempts
from soliton.types import AttemptId
from tests.invariants.local_runs import (
    PATIENCE_S,
    Running,
    assert_ended_well,
    assert_nobody_is_left,
    changes,
    local_run,
    process_of,
    resumed,
    running,
    summary_of,
    train_rows,
)

QUEUED = 12
"""Finished trajectories to have in the queue when the run is stopped: more than a batch."""


@dataclass
class Story:
    """What was seen on the way.

    Attributes:
        config: of the run, as it was started.
        stop_code: exit code after SIGTERM.
        steps_at_stop: batches trained then.
        checkpoints_at_stop: their names.
        queued_at_stop: finished, untrained trajectories then.
        second_run: exit code and words of a second run in the folder, started meanwhile.
        controller: process of the first controller.
        damaged: the checkpoint that was damaged after the kill.
        said: what the last part of the run said.
    """

    config: RunConfig
    stop_code: int
    steps_at_stop: int
    checkpoints_at_stop: list[str]
    queued_at_stop: set[AttemptId]
    second_run: tuple[int, str]
    controller: int
    damaged: str
    said: str


def stop_with_a_full_queue(run: Running, batch_size: int) -> None:
    """The learner is held up until enough trajectories wait for it, then it is asked to stop."""
    store = run.run_dir / "store.sqlite"
    run.until_steps(2)
    learner = run.until_alive("learner")
    os.kill(learner, signal.SIGSTOP)
    # A batch in the learner's hands counts as queued until it is trained.
    run.until("queue", lambda: ledger_at_rest(store).queued >= QUEUED + batch_size)
    run.send(signal.SIGTERM)
    run.until("note", lambda: "stopping after this step" in run.text())
    os.kill(learner, signal.SIGCONT)


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Story:
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    plan = {"train": {"steps": 12, "batch_size": 8}, "eval": {}}
    config = local_run(run_dir, **plan)
    with running(config) as run:
        run.until("hub", (run_dir / "hub.json").exists)
        with resumed(run_dir, config) as second:
            second_run = (second.ended(), second.text())
        stop_with_a_full_queue(run, config.train.batch_size)
        stop_code = run.ended()
        assert_nobody_is_left(run_dir)
    steps_at_stop = len(train_rows(run_dir))
    checkpoints_at_stop = [path.name for path in list_checkpoints(run_dir / "checkpoints")]
    queued = {found.attempt for found in stored_attempts(run_dir / "store.sqlite", Wanted(state="queued"))}

    two_workers = local_run(run_dir, **plan, local={"workers": 2})
    enough = steps_at_stop + 6  # the queue is trained by then, and the newest checkpoint is of later steps
    with resumed(run_dir, two_workers) as again:
        again.until_steps(min(enough, 11))
        again.kill("controller")
        again.ended()
        assert_nobody_is_left(run_dir)
    newest = list_checkpoints(run_dir / "checkpoints")[-1]
    file = newest / "learner.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert damage(newest) is not None

    with resumed(run_dir, two_workers) as last:
        before = len(last.text())
        assert last.ended(PATIENCE_S) == 0, last.text()
    return Story(
        config=two_workers,
        stop_code=stop_code,
        steps_at_stop=steps_at_stop,
        checkpoints_at_stop=checkpoints_at_stop,
        queued_at_stop=queued,
        second_run=second_run,
        controller=run.process.pid,
        damaged=newest.name,
        said=last.text()[before:],
    )


def test_the_run_ends_with_right_books_and_can_be_repeated(story: Story):  # faults J1, J2, J6
    assert_ended_well(story.config)


def test_a_run_asked_to_stop_finishes_its_step_and_keeps_it(story: Story):
    assert story.stop_code == 143
    assert story.checkpoints_at_stop[-1] == f"step_{story.steps_at_stop}"


def test_what_was_finished_and_untrained_at_the_stop_trains_once_after_the_resume(story: Story):  # fault J1
    assert len(story.queued_at_stop) >= QUEUED
    store = Path(story.config.run.dir) / "store.sqlite"
    batch_of = {item.trajectory.attempt: number for number, items, _ in consumed_batches(store) for item in items}
    assert story.queued_at_stop <= set(batch_of)
    assert all(batch_of[attempt] >= story.steps_at_stop for attempt in story.queued_at_stop)


def test_a_resumed_run_may_have_another_number_of_workers(story: Story):
    roles = {role for _, role, _ in changes(Path(story.config.run.dir))}
    assert roles == {"learner", "worker-0", "worker-1"}
    assert "workers = 2" in (Path(story.config.run.dir) / "config.toml").read_text()


def test_a_damaged_checkpoint_is_skipped_with_a_message(story: Story):  # fault J6
    assert f"{story.damaged} is damaged (learner.safetensors does not match its checksum)" in story.said


def test_a_second_run_in_the_folder_is_refused_with_the_process_named(story: Story):  # fault K3
    code, said = story.second_run
    assert code == 2
    assert f"a run is going on in {story.config.run.dir} (process {story.controller})" in said


def test_a_finished_run_is_not_repeated(story: Story):
    summary = summary_of(Path(story.config.run.dir))
    assert summary["steps"] == summary["batches"] == 12


def rob(checkpoint: Path) -> None:
    file = checkpoint / "learner.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.slow
def test_without_a_sound_checkpoint_training_begins_again_in_the_same_store(tmp_path: Path):  # fault J6
    """The newest checkpoint is damaged when the learner starts again, then all are when the run is resumed."""
    config = local_run(tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    with running(config) as run:
        run.until("two checkpoints", lambda: len(list_checkpoints(folder)) == 2)
        learner = run.until_alive("learner")
        os.kill(learner, signal.SIGSTOP)
        rob(list_checkpoints(folder)[-1])
        run.kill("learner")
        run.until("message", lambda: "is damaged" in run.text())
        run.until("restart", lambda: process_of(run.run_dir, "learner") not in (learner, None))
        run.until_steps(5)
        run.kill("controller")
        run.ended()
        assert_nobody_is_left(run.run_dir)
    for checkpoint in list_checkpoints(folder):
        rob(checkpoint)
    with resumed(run.run_dir, config) as again:
        assert again.ended() == 0, again.text()
    assert "no checkpoint is sound: training begins again from its start" in again.text()
    assert_ended_well(config)
