"""How a run of processes is asked to stop, and what stops it."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from soliton.store.history import ledger_at_rest
from tests.invariants.local_runs import (
    Running,
    assert_ended_well,
    assert_nobody_is_left,
    assert_nothing_is_left,
    is_open,
    local_run,
    port_of,
    resumed,
    rows,
    running,
    summary_of,
    train_rows,
)


def assert_interrupted(run: Running, reason: str) -> None:
    assert summary_of(run.run_dir)["exit"] == {"status": "interrupted", "reason": reason}
    assert_nobody_is_left(run.run_dir)
    assert not (run.run_dir / "hub.json").exists()
    assert "Traceback" not in run.text()


def test_sigterm_during_a_stage_without_checkpoints_stops_it_soon(tmp_path: Path):
    config = local_run(tmp_path / "run", stages=["sft", "train"], sft={"num_demonstrations": 64, "epochs": 999})
    with running(config) as run:
        run.until("update of sft", lambda: len(rows(run.run_dir, "sft")) > 0)
        begun = time.monotonic()
        run.send(signal.SIGTERM)
        assert run.ended(60) == 143, run.text()
        assert time.monotonic() - begun < 30
    assert_interrupted(run, "SIGTERM")


def test_a_port_in_use_is_found_before_anything_loads(tmp_path: Path):  # fault K3
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(local_run(tmp_path / "run", local={"port": port})) as run:
            assert run.ended() == 2, run.text()
        assert f"port {port} of 127.0.0.1 is in use" in run.text()
    assert not (run.run_dir / "logs" / "learner.log").exists()
    assert_nothing_is_left(run.run_dir)


@pytest.mark.slow
def test_sigint_finishes_the_step_and_a_resumed_run_trains_nothing_twice(tmp_path: Path):
    config = local_run(tmp_path / "run")
    with running(config) as run:
        run.until_steps(3)
        run.send(signal.SIGINT)
        assert run.ended() == 0, run.text()
    assert_interrupted(run, "SIGINT")
    steps = len(train_rows(run.run_dir))
    assert (run.run_dir / "checkpoints" / f"step_{steps}").is_dir()
    assert ledger_at_rest(run.run_dir / "store.sqlite").trained == steps * config.train.batch_size
    with resumed(run.run_dir, config) as again:
        assert again.ended() == 0, again.text()
    assert_ended_well(config)


@pytest.mark.slow
def test_a_second_signal_aborts_at_once(tmp_path: Path):
    with running(local_run(tmp_path / "run")) as run:
        pid = run.until_alive("learner")
        run.until_steps(1)
        os.kill(pid, signal.SIGSTOP)  # so that the step cannot be finished
        run.send(signal.SIGINT)
        run.until("note", lambda: "once more aborts at once" in run.text())
        begun = time.monotonic()
        run.send(signal.SIGTERM)
        assert run.ended() == 130, run.text()
        assert time.monotonic() - begun < 10
    assert_interrupted(run, "Ctrl-C")


@pytest.mark.slow
def test_a_stop_waits_for_no_batch(tmp_path: Path):
    """Rollouts that take for ever do not hold up a stop: only a step that has begun is finished."""
    slow = {"kind": "heavy_tailed", "low_s": 100.0, "high_s": 200.0}
    with running(local_run(tmp_path / "run", env={"latency": slow})) as run:
        run.until_alive("worker-0")
        time.sleep(2.0)
        run.send(signal.SIGTERM)
        assert run.ended(60) == 143, run.text()
    assert_interrupted(run, "SIGTERM")


@pytest.mark.slow
def test_two_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path):  # fault K3
    configs = [local_run(tmp_path / name, seed=i, eval={"every_steps": 4}) for i, name in enumerate(("one", "two"))]
    with running(configs[0]) as first, running(configs[1]) as second:
        for run in (first, second):
            run.until("hub", lambda run=run: (run.run_dir / "hub.json").exists())
        ports = [port_of(run.run_dir) for run in (first, second)]
        assert len(set(ports)) == 2
        assert [run.ended() for run in (first, second)] == [0, 0], first.text() + second.text()
    for config, port in zip(configs, ports, strict=True):
        assert_ended_well(config)
        assert not is_open(port)


FRAGILE = """
import os, signal, sys
from soliton.envs.calculator import Calculator
from soliton.prompts.calculator import CalculatorPrompts
from soliton.runtime.training import StepReport

role, wanted = sys.argv[1], os.environ["WHO_DIES"]
if role == "worker-0" and wanted == "worker-0 dies":
    print("no dictionary here", file=sys.stderr, flush=True)
    os._exit(7)
if role == "worker-0" and wanted == "worker-0 raises":
    raise RuntimeError("no dictionary here")
if role == "learner" and wanted == "learner dies":
    step = StepReport.step
    def step_and_die(*arguments):
        step(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    StepReport.step = step_and_die

class Fragile(Calculator):
    prompts = CalculatorPrompts
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "code", "causes"),
    [
        ("worker-0 dies", 1, ["worker-0 died 3 times in a row without any progress", "no dictionary here"]),
        ("learner dies", 1, ["learner died 3 times in a row without any progress", "killed by SIGKILL"]),
        ("worker-0 raises", 2, ["fragile:Fragile", "RuntimeError: no dictionary here"]),
    ],
)
def test_a_crash_loop_stops_the_run_with_its_cause(tmp_path: Path, who: str, code: int, causes: list[str]):
    """A mistake that no restart can mend ends it at the first try."""  # faults H1, H3, K10
    (tmp_path / "fragile.py").write_text(FRAGILE)
    config = local_run(tmp_path / "run", env={"name": "fragile:Fragile"}, local={"max_restarts": 2})
    with running(config, cwd=tmp_path, environment={"WHO_DIES": who}) as run:
        assert run.ended() == code, run.text()
    ending = summary_of(run.run_dir)["exit"]
    assert ending["status"] == "stopped"
    for cause in causes:
        assert cause in ending["reason"]
        assert cause in run.text()
    assert_nobody_is_left(run.run_dir)
