"""`inspect`, `compare`, `eval`, `algorithms`, `doctor`, `schema`: what they show of runs and of this installation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from soliton.cli import app
from soliton.learner.examples import SCHEMA, StepArrays, StepExamples, examples_of
from soliton.runtime import installation
from soliton.runtime.inspection import Filters, page_of
from soliton.runtime.local.connection import Connection
from soliton.runtime.run_folder import RunFolder
from soliton.store.config import StoreConfig
from soliton.store.history import stored_attempts
from soliton.store.sqlite import SqliteStore
from soliton.types import AttemptId
from tests.fakes.manual_clock import ManualClock
from tests.fakes.sqlite import at_once, overwrite_payload, train
from tests.fakes.trajectories import failed, publication, trajectory

ROOT = Path(__file__).parents[3]
WARM_START = ROOT / "tests" / "data" / "warm_start"
BAND = "[method]\neps_low = 0.2\neps_high = 0.28\n"
FEW = ["eval.num_prompts=4", "limits.max_turns=2", "engine.num_slots=4"]


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def stored_run(tmp_path: Path) -> Path:
    """Six attempts: two trained, one failed, others under way; one of the trained ones recorded as an example."""
    run = tmp_path / "run"
    folder = RunFolder(run)
    folder.create(BAND)
    store = SqliteStore.open(folder.store, StoreConfig(batch_size=2, max_staleness=4), ManualClock())
    at_once(store.finish_step([], publication(0)))
    leases = at_once(store.lease(5))
    store.commit_many([trajectory(lease.attempt, (0, 0)) for lease in leases[:3]] + [failed(leases[3].attempt)])
    attempts = train(store)
    record(folder, trajectory(attempts[0], (0, 0)))
    return run


def record(folder: RunFolder, recorded) -> None:
    import msgspec

    length = len(recorded.token_ids)
    logprobs = np.where(recorded.action_mask, recorded.rollout_logprobs + np.log(2), np.nan).astype(np.float32)
    step = StepArrays(
        trajectories=[recorded],
        staleness=[0],
        policy_logprobs=logprobs,
        sides=recorded.action_mask.astype(np.int8),
        values=np.full(length, 0.25, np.float32),
        advantages=np.full(length, 0.5, np.float32),
    )
    examples = examples_of(step, seed=0, pieces=lambda ids: [f"t{i} " for i in ids], max_tokens=99)
    (folder.path / "examples").mkdir(exist_ok=True)
    data = StepExamples(schema=SCHEMA, step=1, band=(0.8, 1.28), examples=examples)
    (folder.path / "examples" / "step_1.msgpack").write_bytes(msgspec.msgpack.encode(data))


def test_inspect_shows_the_ledger_and_every_attempt_by_state(stored_run: Path):
    text = said("inspect", str(stored_run), "--limit", "0")
    assert "issued = 2 trained + 1 queued" in text
    assert "env_error 1" in text
    assert text.count("sampled tokens") == page_of(RunFolder(stored_run), Filters()).matching


def test_sampled_text_is_marked_without_colours(stored_run: Path):
    assert "⟦" in said("inspect", str(stored_run), "--status", "trained")


def test_the_learners_view_is_shown_where_it_was_recorded(stored_run: Path):
    document = json.loads(said("inspect", str(stored_run), "--status", "trained", "--json"))
    recorded = [seen for seen in document["trajectories"] if seen["why"]]
    assert document["matching"] == 2
    assert len(recorded) == 1
    actions = [token for token in recorded[0]["tokens"] if token["role"] == "action"]
    assert actions[0]["ratio"] == pytest.approx(2.0)
    assert (actions[0]["value"], actions[0]["advantage"]) == (0.25, 0.5)
    assert all("ratio" not in token for token in recorded[0]["tokens"] if token["role"] != "action")
    table = said("inspect", str(stored_run), "--status", "trained", "--tokens")
    assert "ratio" in table
    assert "2.000" in table


@pytest.mark.parametrize(
    ("options", "matching"),
    [
        (["--status", "failed"], 1),
        (["--reason", "env_error"], 1),
        (["--draw", "0"], 1),
        (["--min-staleness", "0"], 2),
        (["--min-staleness", "1"], 0),
        (["--min-reward", "-1000"], 3),
        (["--max-reward", "-1000"], 0),
        (["--status", "queued"], 1),
    ],
)
def test_filters_of_inspect(stored_run: Path, options: list[str], matching: int):
    assert json.loads(said("inspect", str(stored_run), *options, "--json"))["matching"] == matching


def test_inspect_of_a_resumed_run_does_not_tell_the_end_of_its_earlier_start(stored_run: Path):
    (stored_run / "summary.json").write_text('{"exit": {"status": "interrupted", "reason": "Ctrl-C"}}')
    assert "interrupted (Ctrl-C)" in said("inspect", str(stored_run), "--limit", "1")
    with RunFolder(stored_run).lock():
        assert "interrupted" not in said("inspect", str(stored_run), "--limit", "1")


def test_trajectories_come_in_pages(stored_run: Path):
    def page(*options: str) -> tuple[int | None, list[str]]:
        document = json.loads(said("inspect", str(stored_run), "--json", *options))
        return document["matching"], [seen["attempt"] for seen in document["trajectories"]]

    count, everything = page("--limit", "0")
    assert count == len(everything) > 4
    assert page("--limit", "2", "--skip", "2") == (count, everything[2:4])
    rewarded = page("--min-reward", "-1000")[1]
    assert page("--min-reward", "-1000", "--limit", "1", "--skip", "1") == (None, rewarded[1:2])  # the rest is not read
    text = said("inspect", str(stored_run), "--limit", "2", "--skip", "2")
    assert f"{count} trajectories match; shown are 3 to 4 (--skip 4 goes on):" in text


def test_a_trajectory_that_is_not_shown_is_not_read(stored_run: Path):
    store = stored_run / "store.sqlite"
    last = [seen for seen in stored_attempts(store) if seen.trajectory is not None][-1]
    overwrite_payload(store, last.attempt.draw, b"\0")
    assert "shown are 1 to 2" in said("inspect", str(stored_run), "--limit", "2")
    assert "shown are 1 to 1" in said("inspect", str(stored_run), "--min-reward", "-1000", "--limit", "1")
    assert "are not those that were written" in said("inspect", str(stored_run), "--limit", "0", code=1)


def test_a_run_without_a_store_shows_its_examples(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    folder.create(BAND)
    record(folder, trajectory(AttemptId(7), (3, 4)))
    (seen,) = page_of(folder, Filters(draw=7)).shown
    assert (seen.state, seen.batch, seen.versions) == ("recorded", 0, (3, 4))


def test_inspect_refuses_what_is_no_run_and_unknown_states(tmp_path: Path, stored_run: Path):
    assert "holds no run" in said("inspect", str(tmp_path), code=2)
    assert "--status: got 'done'; allowed are terminated" in said(
        "inspect", str(stored_run), "--status", "done", code=2
    )


def ended_run(path: Path, algorithm: str) -> Path:
    path.mkdir()
    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 100}
    summary = {
        "algorithm": algorithm,
        "seed": 0,
        "steps": 2,
        "pass_at_1_after": estimate,
        "exit": {"status": "finished"},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    rows = [{"stage": "train", "step": step, "time_s": step, "reward/mean": step / 4} for step in (1, 2, 3)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_compare_makes_a_table_and_curves(tmp_path: Path):
    runs = [str(ended_run(tmp_path / name, name)) for name in ("sao", "grpo")]
    picture = tmp_path / "both.png"
    text = said("compare", *runs, "--out", str(picture))
    assert "| sao | sao | 0 | 2 |" in text
    assert f"curves: {picture}" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = json.loads(said("compare", *runs, "--no-curves", "--json"))
    assert [run["algorithm"] for run in document["runs"]] == ["sao", "grpo"]
    assert document["curves"] is None


def test_compare_refuses_a_run_that_has_not_ended(tmp_path: Path):
    assert "is no run folder" in said("compare", str(tmp_path), code=2)
    (tmp_path / "config.toml").write_text(BAND)
    assert "has not ended" in said("compare", str(tmp_path), code=2)


def test_eval_measures_a_model_folder_and_prints_the_seeds():
    one = json.loads(said("eval", str(WARM_START), *FEW, "--json"))
    assert (one["seeds"], one["pass_at_1"]["n"]) == ([1234], 4)
    assert "avg_at_k" not in one
    two = json.loads(said("eval", str(WARM_START), *FEW, "--runs", "2", "--json"))
    assert two["seeds"] == [1234, 1235]
    assert two["pass_at_1"] == one["pass_at_1"]  # the first run is the same one
    assert two["pass_at_k"]["mean"] >= two["avg_at_k"]["mean"]


def test_eval_takes_a_run_and_a_recipe_and_writes_nothing(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(BAND)
    assert "holds no finished model yet" in said("eval", str(run), code=2)
    (run / "final").symlink_to(WARM_START)
    assert json.loads(said("eval", str(run), *FEW, "--json"))["policy"] == str(run / "final")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(BAND + f'[init]\nmodel = "{WARM_START}"\n')
    assert json.loads(said("eval", str(recipe), *FEW, "--json"))["num_prompts"] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.toml", "run"]
    assert "is no recipe" in said("eval", str(tmp_path), code=2)
    assert "there is no nowhere" in said("eval", "nowhere", code=2)
    assert "there is no option --run" in said("eval", str(recipe), "--run=3", code=2)


def test_an_algorithm_is_explained_by_what_differs_from_sao():
    document = json.loads(said("algorithms", "grpo-dis", "--json"))
    assert document["choices"]["rollouts per prompt"] == "8"
    assert document["differs_from_sao"]["critic updates per actor update (K)"] == "2"
    assert "actor loss" not in document["differs_from_sao"]  # both are DIS
    assert "rollouts per prompt" in said("algorithms", "vapo")
    assert json.loads(said("algorithms", "sao", "--json"))["differs_from_sao"] == {}
    assert "did you mean 'grpo'?" in said("algorithms", "grpoo", code=2)
    assert "grpo-dis" in json.loads(said("algorithms", "--json"))


def test_doctor_without_a_run_looks_at_the_installation(monkeypatch):
    text = said("doctor")
    for what in ("Python", "torch", "cores", "disk", "/dev/shm", "ports", "extras"):
        assert what in text
    full = installation.Finding("disk", "bad", "0.0 GB free", "free some space")
    monkeypatch.setattr(installation, "_disk", lambda _: full)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    assert full.as_data() in json.loads(result.stdout)["findings"]


def test_doctor_of_a_run_that_is_over(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    folder.create(BAND)
    result = CliRunner().invoke(app, ["doctor", str(folder.path), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["alive"]) == (1, False)
    assert f"`soliton train --resume {folder.path}`" in result.stdout


def test_doctor_tells_a_run_that_goes_on_in_one_process_from_one_that_was_killed(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    folder.create(BAND)
    with folder.lock():
        assert "goes on in one process" in said("doctor", str(folder.path))
    Connection("http://127.0.0.1:1", "token", "id", os.getpid(), 0.0).write(folder.connection)
    killed = CliRunner().invoke(app, ["doctor", str(folder.path)])  # its process id may be somebody else's by now
    assert killed.exit_code == 1
    assert "was killed" in killed.stdout


def test_the_schema_is_printed_or_written(tmp_path: Path):
    assert json.loads(said("schema"))["title"] == "Soliton recipe"
    said("schema", "--out", str(tmp_path / "schema.json"))
    assert json.loads((tmp_path / "schema.json").read_text()) == json.loads(said("schema"))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("soliton al", "algorithms"),
        ("soliton algorithms grpo-", "grpo-dis"),
        ("soliton train recipe.toml train.st", "train.steps="),
    ],
)
def test_a_shell_completes_commands_presets_and_keys(line: str, offered: str):
    words = line.split()
    environment = {
        **os.environ,
        "_SOLITON_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = str(Path(sys.executable).with_name("soliton"))
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert offered in done.stdout.split()
