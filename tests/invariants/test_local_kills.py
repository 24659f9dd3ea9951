"""kill -9 of any role at any moment: it is started again, nothing is lost or trained twice, nothing is left behind."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

from soliton.store.history import stored_attempts
from tests.invariants.local_runs import (
    Running,
    assert_ended_well,
    assert_nobody_is_left,
    assert_restarted_in_time,
    assert_stopped_well,
    is_open,
    local_run,
    port_of,
    process_of,
    restarts,
    resumed,
    running,
    train_rows,
)

CHILDREN = ("learner", "worker-0", "worker-1", "evaluator")


def test_a_run_whose_roles_are_all_killed_ends_as_if_nothing_had_happened(tmp_path: Path):  # faults H1, H8, I6, J2
    """Each role at a named place, then a worker at a random moment."""
    config = local_run(tmp_path / "run", local={"workers": 2, "max_restarts": 5})
    rng = np.random.default_rng(20261130)
    failpoints = "worker.after_commit:9,learner.between_weights_and_cursor:4,evaluator.before_report:1"
    with running(config, environment={"SOLITON_FAILPOINT": failpoints}) as run:
        run.until_steps(2)  # at the third step the learner dies, and there is time
        port = port_of(run.run_dir)
        time.sleep(rng.uniform(0.0, 0.5))
        run.kill(f"worker-{rng.integers(2)}")
        assert run.ended() == 0, run.text()
    assert_restarted_in_time(run.run_dir, "learner", "worker-0", "worker-1", "evaluator")
    assert_ended_well(config)
    assert not is_open(port)
    again = [a for a in stored_attempts(run.run_dir / "store.sqlite") if a.attempt.attempt > 0]
    assert again, "what the dead workers had leased was issued again"


LEARNER_PLACES = (
    "learner.after_take:2",
    "learner.between_weights_and_cursor:1",  # the first publication of all
    "learner.after_finish:3",
    "train.step:2",
    "checkpoint.files_written:1",
    "checkpoint.files_written:2",
    "checkpoint.before_rename:1",
    "checkpoint.after_rename:1",
    "checkpoint.after_rename:4",  # the last one: rollouts are about to end
)
WORKER_PLACES = (
    "worker.between_lease_and_first_token:1",
    "worker.between_lease_and_first_token:3",
    "worker.before_commit:1",
    "worker.after_commit:1",
    "worker.between_publish_and_load:1",
    "worker.between_publish_and_load:3",
    "worker.before_commit:20",
    "worker.after_commit:20",
    "worker.after_commit:33",
)


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "worker"), list(zip(LEARNER_PLACES, WORKER_PLACES, strict=True)))
def test_killed_at_every_named_place_a_run_ends_well(tmp_path: Path, learner: str, worker: str):  # faults J2, J6, I6
    config = local_run(tmp_path / "run")
    with running(config, environment={"SOLITON_FAILPOINT": f"{learner},{worker},evaluator.before_report:2"}) as run:
        assert run.ended() == 0, run.text()
    assert_restarted_in_time(run.run_dir, "learner", "worker-0", "evaluator")
    assert_ended_well(config)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["store.before_commit:1", "store.after_commit:20", "store.before_commit:40"])
def test_a_controller_killed_at_every_named_place_takes_its_children_along_and_resumes(tmp_path: Path, place: str):
    config = local_run(tmp_path / "run")
    with running(config, environment={"SOLITON_FAILPOINT": place}) as run:
        assert run.ended() == -signal.SIGKILL, run.text()
        assert_nobody_is_left(run.run_dir)
    with resumed(run.run_dir, config) as again:
        assert again.ended() == 0, again.text()
    assert_ended_well(config)


SLOW_TOOLS = {"latency": {"kind": "heavy_tailed", "low_s": 1.0, "high_s": 5.0}}
ENDLESS = {"env": SLOW_TOOLS, "train": {"steps": 100_000, "batch_size": 8}}
"""A run that is not over before it has been killed often enough, however fast the machine; it is stopped then."""
KILLS = 20


def started(run: Running) -> float:
    """Seconds until the first batch is trained: random moments are drawn from longer, whatever the machine."""
    begun = time.monotonic()
    run.until_steps(1)
    return time.monotonic() - begun


def goes_on_and_stops(run: Running) -> None:
    """Five more steps, then SIGTERM."""
    run.until_steps(len(train_rows(run.run_dir)) + 5)
    run.send(signal.SIGTERM)
    assert run.ended() == 143, run.text()


@pytest.mark.slow
def test_twenty_kills_of_each_role_at_random_moments(tmp_path: Path):  # faults H1, J2, J6, I6
    """All in one run and in random order, so that roles also die while others are starting again."""
    config = local_run(tmp_path / "run", local={"workers": 2, "max_restarts": 100}, **ENDLESS)
    rng = np.random.default_rng(20)
    with running(config) as run:
        longest_s = started(run)
        dead: dict[str, int] = {}
        for number, role in enumerate(rng.permutation(KILLS * [*CHILDREN])):
            time.sleep(rng.uniform(0.0, longest_s / 2))
            run.until(
                f"restart of {role} before kill {number}",
                lambda role=role: process_of(run.run_dir, role) not in (dead.get(role), None),
            )
            dead[role] = run.until_alive(role)
            run.kill(role)
        goes_on_and_stops(run)
    assert_restarted_in_time(run.run_dir, *CHILDREN)
    assert len(restarts(run.run_dir)) == KILLS * len(CHILDREN)
    assert_stopped_well(run, config)
    with resumed(run.run_dir, config) as run:
        goes_on_and_stops(run)
    assert_stopped_well(run, config)


@pytest.mark.slow
def test_twenty_kills_of_the_controller_at_random_moments(tmp_path: Path):  # faults J1, J2, K8
    config = local_run(tmp_path / "run", **ENDLESS)
    rng = np.random.default_rng(21)
    longest_s = 0.0
    arguments: tuple[str, ...] = ()
    for _ in range(KILLS):
        with running(config, *arguments) as run:
            longest_s = longest_s or 1.5 * started(run)
            time.sleep(rng.uniform(0.0, longest_s))
            run.kill("controller")
            assert run.ended() == -signal.SIGKILL, run.text()
            assert_nobody_is_left(run.run_dir)
        arguments = ("--resume", str(run.run_dir))
    with resumed(run.run_dir, config) as run:
        goes_on_and_stops(run)
    assert_stopped_well(run, config)
