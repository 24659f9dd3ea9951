"""The page of a run: what it says, from whatever a run folder holds."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from soliton.errors import ConfigError
from soliton.learner.examples import SCHEMA, StepArrays, StepExamples, examples_of
from soliton.report.html.browser import TOKEN_BUDGET, browser_data
from soliton.report.html.charts import MAX_POINTS, binned, increments, other_panels, panels_of
from soliton.report.html.configuration import settings_of
from soliton.report.html.run import read_run
from soliton.report.html.verdict import alarms_of, ledger_of, verdict_of
from soliton.runtime.report import make_report
from tests.fakes.chromium import Chromium, find_chromium
from tests.unit.report.report_runs import EVIL, trajectory, write_run

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)


def data_of(page: Path) -> dict[str, Any]:
    """What the page's script draws from."""
    found = DATA.search(page.read_text())
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_verdict_says_that_it_learned_only_if_the_interval_excludes_zero(tmp_path: Path):
    for gain, tone in (((0.2, 0.1, 0.3), "good"), ((0.1, -0.1, 0.3), "flat"), ((-0.2, -0.3, -0.1), "bad")):
        write_run(tmp_path / tone, gain=gain)
        assert verdict_of(read_run(tmp_path / tone), [], False).tone == tone


def test_without_an_evaluation_the_verdict_speaks_of_training_reward_and_says_so(tmp_path: Path):
    write_run(tmp_path / "run", gain=None)
    verdict = verdict_of(read_run(tmp_path / "run"), [], False)
    assert verdict.tone == "open"
    assert verdict.headline.startswith("Training reward rose from")
    assert "not measured" in verdict.headline


def test_a_killed_run_a_running_one_and_an_empty_one_get_a_page(tmp_path: Path):
    write_run(tmp_path / "killed", ended=False)
    (tmp_path / "killed" / "metrics.jsonl").open("a").write('{"stage": "tra')
    assert "The run has not ended, or was killed" in make_report(tmp_path / "killed").read_text()
    assert "The run goes on" in make_report(tmp_path / "killed", is_running=True).read_text()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").write_text("seed = 1\n")
    assert "Nothing was trained" in make_report(tmp_path / "empty").read_text()


def test_a_damaged_file_is_named_on_the_page_and_the_rest_is_shown(tmp_path: Path):
    run = write_run(tmp_path / "run")
    (run / "examples" / "step_1.msgpack").write_bytes(b"\x00not msgpack")
    page = make_report(run).read_text()
    assert "step_1.msgpack is no file of recorded examples" in page
    assert "It learned" in page


def test_what_is_no_run_folder_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="is no run folder"):
        make_report(tmp_path)
    with pytest.raises(ConfigError, match="is no run folder"):
        make_report(tmp_path / "absent")


def test_a_step_that_was_made_twice_counts_once_and_the_later_one_counts(tmp_path: Path):
    run = write_run(tmp_path / "run")
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[3])
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**row, "reward/mean": 77.0}) + "\n")
    steps, values = read_run(run).series("train", "reward/mean")
    assert len(steps) == len(set(steps))
    assert values[steps.index(row["step"])] == 77.0


def test_an_alarm_names_its_steps_and_its_worst_value():
    rows = [
        {"step": step, "trust_mask/share": share} for step, share in enumerate((0.01, 0.2, 0.3, float("nan"), 0.05))
    ]
    (alarm,) = alarms_of(rows)
    assert (alarm.metric, alarm.limit, alarm.steps, alarm.first, alarm.last) == (
        "trust_mask/share",
        "above 0.1",
        2,
        1,
        2,
    )
    assert alarm.worst == 0.3


def test_the_ledger_of_the_page_adds_up(tmp_path: Path):
    for ended in (True, False):
        run = read_run(write_run(tmp_path / str(ended), ended=ended))
        places = ledger_of(run)
        assert sum(count for _, count, _ in places) == 100
        assert sum(share for _, _, share in places) == pytest.approx(1)


def test_a_setting_differs_if_it_is_not_the_default():
    rows = settings_of({"seed": 3, "train": {"steps": 5, "batch_size": 48}}, {"seed": 3, "train": {"batch_size": 32}})
    assert [(row.table, row.key, row.differs) for row in rows] == [
        ("", "seed", False),
        ("train", "steps", True),
        ("train", "batch_size", True),
    ]


def test_waits_are_shares_of_each_step_and_survive_a_counter_that_begins_again(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run"))
    run.stages["train"] = [
        {"step": 1, "wait/batch_s": 1.0, "time/clock_s": 2.0},
        {"step": 2, "wait/batch_s": 4.0, "time/clock_s": 6.0},
        {"step": 3, "wait/batch_s": 0.5, "time/clock_s": 8.0},
        {"step": 4, "wait/batch_s": None, "time/clock_s": 9.0},
    ]
    assert increments(run, "wait/batch_s", "time/clock_s") == ([1, 2, 3], [0.5, 0.75, 0.25])


def test_a_long_curve_is_averaged_and_keeps_its_mean_and_last_step():
    steps, values = [float(i) for i in range(12_000)], [float(i % 7) for i in range(12_000)]
    x, y = binned((steps, values))
    assert len(x) == MAX_POINTS
    assert x[-1] == steps[-1]
    assert sum(y) / len(y) == pytest.approx(sum(values) / len(values), abs=1e-2)


def test_the_browser_of_a_long_run_keeps_its_budget_its_first_and_its_last_step(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run"))
    example = run.examples[0].examples[0]
    long = msgspec.structs.replace(
        example,
        pieces=example.pieces * 900,
        **{
            name: getattr(example, name) * 900
            for name in (
                "roles",
                "versions",
                "rewards",
                "rollout_logprobs",
                "policy_logprobs",
                "sides",
                "values",
                "advantages",
            )
        },
    )
    steps = [StepExamples(schema=SCHEMA, step=i, band=(0.8, 1.2), examples=[long] * 6) for i in range(1, 30)]
    data = browser_data(steps)
    assert [data["steps"][0]["step"], data["steps"][-1]["step"]] == [1, 29]
    assert sum(len(e["pieces"]) for step in data["steps"] for e in step["examples"]) <= TOKEN_BUDGET
    assert data["left_out"] == 29 - len(data["steps"]) > 0


def test_the_sides_of_the_band_are_split_by_sign_where_the_run_measured_that(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run"))
    labels = [
        s["label"] for panel in panels_of(run) if panel["title"] == "Outside the trust band" for s in panel["series"]
    ]
    assert labels == ["over the upper bound", "under the lower bound"]
    for row in run.train:
        row["trust_mask/share_high_positive"] = 0.01
    labels = [
        s["label"] for panel in panels_of(run) if panel["title"] == "Outside the trust band" for s in panel["series"]
    ]
    assert labels == ["over, advantage > 0"]


def test_text_of_a_run_is_shown_and_never_interpreted(tmp_path: Path):
    run = write_run(tmp_path / "run", evil=True)
    text = make_report(run).read_text()
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    assert "<img src=x" not in text
    pieces = [
        piece
        for step in data_of(run / "report.html")["browser"]["steps"]
        for e in step["examples"]
        for piece in e["pieces"]
    ]
    assert EVIL in pieces


def test_the_page_asks_for_nothing(tmp_path: Path):
    text = make_report(write_run(tmp_path / "run")).read_text()
    assert re.findall(r'(?:src|href)="(?!data:,)', text) == []
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_a_report_of_100_steps_is_small_quick_and_needs_no_torch(tmp_path: Path):
    run = write_run(tmp_path / "run", steps=100, every=5)
    code = (
        "import sys; from pathlib import Path; from soliton.runtime.report import make_report\n"
        "make_report(Path(sys.argv[1])); sys.exit('torch' in sys.modules)"
    )
    begun = time.process_time(), time.perf_counter()
    subprocess.run([sys.executable, "-c", code, str(run)], check=True, timeout=60)
    assert time.perf_counter() - begun[1] < 20  # on two cores shared with other tests; alone it is about 1.5
    assert (run / "report.html").stat().st_size < 3_000_000


chromium = pytest.mark.skipif(find_chromium() is None, reason="no Chromium on this machine (apt-get install chromium)")


@chromium
def test_the_page_works_in_a_browser_light_and_dark(tmp_path: Path):
    run = write_run(tmp_path / "run", steps=30, every=10, evil=True)
    page = make_report(run)
    with Chromium(tmp_path / "profile") as browser:
        for dark in (False, True):
            browser.open(page, dark=dark)
            assert browser.value("document.documentElement.dataset.theme") == ("dark" if dark else "light")
            check_curves(browser)
            check_browser(browser)
            browser.screenshot(tmp_path / "page.png")
            assert (tmp_path / "page.png").stat().st_size > 50_000
        browser.click("#theme")
        assert browser.value("document.documentElement.dataset.theme") == "light"
        assert browser.console == []
        assert {address.split("/")[-1] for address in browser.requests} == {"report.html"}
        assert browser.value("document.title").endswith("Soliton")
        assert browser.value("window.broken") is None


def check_curves(browser: Chromium) -> None:
    """Every panel is drawn, and hovering over one says step and value."""
    assert browser.value("document.querySelectorAll('#panels svg').length") >= 10
    browser.hover("#panels svg")
    tip = browser.value("document.querySelector('#tip').textContent")
    assert re.match(r"step \d+\nmean reward  [\d.]+", tip)
    assert browser.value("document.querySelectorAll('#panels path[d*=NaN]').length") == 0
    browser.click("#everything summary")
    browser.wait_for("document.querySelectorAll('#others svg').length > 3")


def check_browser(browser: Chromium) -> None:
    """Clicks and keys move through steps, examples, tokens and colours."""

    def facts() -> dict[str, str]:
        return dict(
            browser.value(
                "[...document.querySelectorAll('#token div')]"
                ".map(d => [d.querySelector('dt').textContent, d.querySelector('dd').textContent])"
            )
        )

    def chosen() -> int:
        return int(
            browser.value("[...document.querySelectorAll('#list button')].findIndex(b => b.ariaSelected === 'true')")
        )

    browser.click("#tokens [data-i='3']")
    assert facts()["role"] == "action"
    assert re.fullmatch(r"[\d.]+", facts()["ratio"])
    assert set(facts()) > {"log-prob at sampling", "log-prob now", "value", "advantage", "version", "reward"}
    browser.press("ArrowLeft")
    assert facts()["role"] == "observation"
    browser.hover("#tokens [data-i='4']")
    assert facts()["role"] == "action"
    browser.press("ArrowDown")
    assert chosen() == 1
    browser.click("#list button:first-child")
    assert chosen() == 0
    step = "document.querySelector('#step').selectedOptions[0].textContent"
    assert browser.value(step) == "step 30"
    browser.press("PageUp")
    assert browser.value(step) == "step 20"
    browser.click("#step-before")
    assert browser.value(step) == "step 10"
    browser.click("#tokens")
    for key, name in zip("12345", ("role", "advantage", "ratio", "value", "version"), strict=True):
        browser.press(key)
        assert browser.value("document.querySelector('#colours [aria-checked=true]').textContent") == name
    assert browser.value("document.querySelector('#tokens .t2').style.background") != ""


def test_examples_cut_the_middle_of_a_long_trajectory(tmp_path: Path):
    long = trajectory(0, length=500)
    arrays = StepArrays([long], [2], None, None, None, np.zeros(500, np.float32))
    (example,) = examples_of(arrays, seed=0, pieces=lambda ids: [str(i) for i in ids], max_tokens=100)
    assert (len(example.pieces), example.cut_at, example.num_tokens) == (100, 50, 500)
    assert example.pieces[49:51] == [str(long.token_ids[49]), str(long.token_ids[450])]


def test_a_run_of_several_environments_has_curves_of_each(tmp_path: Path):
    run = read_run(write_run(tmp_path / "run"))
    for row in run.train:
        row |= {"env/maze/reward/mean": 0.25, "env/my:Game/reward/mean": 0.75, "env/maze/trajectory/count": 3.0}
    run.stages["eval"] = [{"step": 6, "eval/pass_at_1": 0.5, "env/maze/eval/pass_at_1": 0.5}]
    ends = {"before": {"maze": {"mean": 0.25}}, "after": {"maze": {"mean": 0.75}, "my:Game": {"mean": 1.0}}}
    run.summary["pass_at_1_by_environment"] = ends
    panels = {panel["title"]: panel for panel in panels_of(run)}
    held_out = panels["Held-out pass@1 by environment"]["series"]
    assert [(s["label"], s["x"], s["y"]) for s in held_out] == [
        ("maze", [0, 6, 12], [0.25, 0.5, 0.75]),
        ("my:Game", [12], [1]),
    ]
    assert [s["label"] for s in panels["Reward by environment"]["series"]] == ["maze", "my:Game"]
    others = [panel["title"] for panel in other_panels(run)]
    assert "env/maze/trajectory/count" in others
    assert "env/maze/reward/mean" not in others
