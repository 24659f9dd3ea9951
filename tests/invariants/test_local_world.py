"""Real processes in a world that fails: what is counted, what is said, and that the run goes on."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from soliton.store.history import ledger_at_rest
from tests.invariants.calculator_runs import ROOT, small_run


def run_local(run_dir: Path, environment: dict[str, str] | None = None, **changes) -> None:
    """Run to the end in processes."""
    defaults = {"runtime": "local", "train": {"steps": 4, "batch_size": 16}, "checkpoint": {"every_steps": 2}}
    config = small_run(run_dir, **{**defaults, **changes})
    recipe = run_dir.parent / f"{run_dir.name}.toml"
    recipe.write_text(config.to_toml())
    command = [sys.executable, "-m", "soliton", "train", str(recipe)]
    result = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (run_dir / "out.txt").write_text(result.stdout)


def check_ledger(run_dir: Path, trained: int) -> dict[str, int]:
    """The summary says what the store holds, and everything adds up; returns what was dropped."""
    ledger = json.loads((run_dir / "summary.json").read_text())["ledger"]
    at_rest = ledger_at_rest(run_dir / "store.sqlite")
    assert at_rest.balance == 0
    assert (ledger["issued"], ledger["trained"]) == (at_rest.issued, trained)
    assert ledger["dropped"] == at_rest.dropped
    return ledger["dropped"]


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory) -> Path:
    """A run in which everything goes wrong at once: its environment, some of its prompts for good, and the date.

    Every process sees a date that jumps an hour forth and back once a second.
    """
    root = tmp_path_factory.mktemp("world")
    (root / "sitecustomize.py").write_text(
        "import time\n"
        "_real = time.time\n"
        "time.time = lambda: _real() + (3600.0 if int(time.monotonic()) % 2 else -3600.0)\n"
    )
    run_local(
        root / "run",
        {"PYTHONPATH": os.pathsep.join([str(root), str(ROOT)])},
        env={"name": "tests.fakes.hostile:Hostile", "latency": {}},
        limits={"step_timeout_s": 0.5},
        rollout={"max_attempts": 2},
    )
    return root / "run"


def test_every_failure_of_an_environment_is_a_counted_reason_and_the_run_goes_on(hostile_run: Path):  # faults F10, K4
    dropped = check_ledger(hostile_run, trained=4 * 16)
    assert set(dropped) >= {"env_error", "env_timeout", "bad_observation", "bad_reward"}
    log = (hostile_run / "logs" / "worker-0.log").read_text()
    assert "failed (env_error)" in log
    assert "ZeroDivisionError: the tool divided by zero" in log
    assert "failed (bad_reward)" in log
    assert "an environment may print what it likes" in log


def test_a_prompt_that_always_fails_is_given_up_and_counted(hostile_run: Path):
    last = [json.loads(line) for line in (hostile_run / "metrics.jsonl").read_text().splitlines()][-1]
    assert last["ledger/draws_given_up"] >= 1
    assert "the tool server of this prompt is down" in (hostile_run / "logs" / "worker-0.log").read_text()


def test_jumps_of_the_date_by_an_hour_change_no_duration(hostile_run: Path):
    rows = [json.loads(line) for line in (hostile_run / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["time_s"] < 300 for row in rows)
    assert "are tried again" not in (hostile_run / "out.txt").read_text()  # no lease expired


def test_on_a_full_disk_the_run_waits_and_goes_on_when_there_is_space(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    try:
        _run_on_a_disk_that_fills_up(disk)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(filler: Path) -> None:
    """Write until there is no space."""
    for size in (65536, 4096):
        with filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * size)


def _run_on_a_disk_that_fills_up(disk: Path) -> None:
    run_dir = disk / "run"
    filler = disk / "filler"
    seen: list[str] = []

    def fill_then_free() -> None:
        while not (run_dir / "checkpoints" / "step_2").exists():
            time.sleep(0.05)
        full_until = time.monotonic() + 8.0
        while time.monotonic() < full_until:  # what the run removes meanwhile is taken as well
            fill(filler)
            time.sleep(0.1)
        seen.append(f"{len((run_dir / 'metrics.jsonl').read_text().splitlines())} steps")
        filler.unlink()

    filling = threading.Thread(target=fill_then_free)
    filling.start()
    run_local(run_dir, train={"steps": 8, "batch_size": 16})
    filling.join()
    assert int(seen[0].split()[0]) < 8  # it really waited
    assert "the disk is full" in (run_dir / "out.txt").read_text()
    check_ledger(run_dir, trained=8 * 16)
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["stage"] == "train"] == list(range(1, 9))
