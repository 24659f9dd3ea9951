"""Where a controller puts store and metrics before a learner starts: where its newest usable checkpoint is."""

import io
import json
from pathlib import Path

import pytest

from soliton.report.quiet import QuietView
from soliton.runtime.checkpoint import list_checkpoints, write_checkpoint
from soliton.runtime.local.controller import Controller
from soliton.runtime.run_folder import RunFolder
from tests.fakes.sqlite import at_once, commit_new, train
from tests.fakes.trajectories import publication
from tests.invariants.local_runs import local_run

BATCH = 8


class Setup:
    """A run that trained `batches` batches, with a checkpoint after some of them."""

    def __init__(self, run_dir: Path, batches: int, checkpoints: tuple[int, ...]) -> None:
        self.folder = RunFolder(run_dir)
        config = local_run(run_dir)
        self.folder.create(config.to_toml())
        self.out = io.StringIO()
        self.controller = Controller(config, self.folder, QuietView(self.out))
        self.store = self.controller._store
        at_once(self.store.finish_step([], publication(0)))
        for batch in range(1, batches + 1):
            commit_new(self.store, BATCH)
            train(self.store)
            self.folder.append_metrics("train", batch, 0.0, {})
            if batch in checkpoints:
                self.checkpoint(batch, batch)

    def checkpoint(self, batches: int, version: int) -> None:
        state = json.dumps({"step": batches, "batches": batches, "version": version})
        write_checkpoint(
            self.folder.checkpoints, batches, lambda folder: (folder / "state.json").write_text(state), keep=9
        )

    def damage(self, step: int) -> None:
        (self.folder.checkpoints / f"step_{step}" / "state.json").write_text("{}")

    def go_back(self) -> tuple[int, int]:
        """Returns (batches, newest version) of the store afterwards."""
        self.controller._go_back()
        assert [row["step"] for row in self.folder.read_metrics("train")] == list(range(1, self.store.batches + 1))
        ledger = at_once(self.store.status()).ledger
        assert ledger.balance == 0
        assert ledger.trained == self.store.batches * BATCH
        return self.store.batches, self.store.newest.version


@pytest.fixture
def setup(tmp_path: Path):
    made: list[Setup] = []

    def make(batches: int, *checkpoints: int) -> Setup:
        made.append(Setup(tmp_path / "run", batches, checkpoints))
        return made[-1]

    yield make
    for one in made:
        one.store.close_file()


def test_it_goes_back_to_the_newest_checkpoint(setup):
    run = setup(5, 2, 4)
    assert run.go_back() == (4, 4)
    assert run.out.getvalue() == ""


def test_a_damaged_checkpoint_is_skipped_with_a_message(setup):  # fault J6
    run = setup(5, 2, 4)
    run.damage(4)
    assert run.go_back() == (2, 2)
    assert "step_4 is damaged (state.json does not match its checksum); using the checkpoint before it" in (
        run.out.getvalue()
    )


def test_without_a_sound_checkpoint_training_begins_again_in_the_same_store(setup):  # fault J6
    run = setup(5, 2, 4)
    run.damage(2)
    run.damage(4)
    assert run.go_back() == (0, 0)
    assert "no checkpoint is sound: training begins again from its start" in run.out.getvalue()
    ledger = at_once(run.store.status()).ledger
    assert ledger.queued + ledger.dropped.get("rolled_back", 0) == 5 * BATCH  # none is lost


def test_a_checkpoint_ahead_of_the_store_is_put_aside(setup):
    """After the machine lost power: the checkpoint was written, the store's last transactions were not."""
    run = setup(5, 2, 4)
    run.checkpoint(6, 6)
    assert run.go_back() == (4, 4)
    assert "step_6 is ahead of the store" in run.out.getvalue()
    assert [path.name for path in list_checkpoints(run.folder.checkpoints)] == ["step_2", "step_4"]


def test_a_checkpoint_of_a_policy_that_the_store_lost_is_put_aside(setup):
    run = setup(4, 2)
    run.checkpoint(4, 9)  # published again after a resume, and that was lost
    assert run.go_back() == (2, 2)
    assert "step_4 is ahead of the store" in run.out.getvalue()


def test_before_the_first_policy_there_is_nothing_to_go_back_to(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    config = local_run(tmp_path / "run")
    folder.create(config.to_toml())
    controller = Controller(config, folder, QuietView(io.StringIO()))
    controller._go_back()
    assert controller._store.batches == 0
    controller._store.close_file()
