"""Every view gets the same story; each tells its part of it, in few lines, and nothing after the end."""

import io

import pytest
from rich.console import Console

from soliton.report import RunView, make_view
from soliton.report.live import RichView, sparkline
from soliton.report.plain import PlainView
from soliton.report.quiet import QuietView
from soliton.report.view import RunProgress, StageProgress, duration, number


class ScriptedTime:
    """Real seconds as a test wants them."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def tell(view: RunView, time: ScriptedTime, steps: int = 20, step_s: float = 1.0) -> None:
    """One stage of `steps` steps, each `step_s` seconds."""
    view.stage("train", steps)
    for step in range(1, steps + 1):
        time.now_s += step_s
        view.update(step, {"reward/mean": step / steps, "staleness/mean": 1.5, "critic/explained_var": 0.25})
    view.note("a note")
    view.alarm("grad norm is 123.0 at step 7")
    view.finish("pass@1 0.31 -> 0.60")


def test_the_plain_view_prints_a_line_every_two_seconds_and_no_control_character():
    out, time = io.StringIO(), ScriptedTime()
    tell(PlainView(out, time), time)
    lines = out.getvalue().splitlines()
    progress = [
        line for line in lines if "train 1" in line or "train 2" in line or ("train " in line and "/20" in line)
    ]
    assert len([line for line in progress if "/20" in line]) == 11  # steps 1, 3, .. 19 and the last one
    assert "== train (20 steps)" in lines
    assert "ALARM grad norm is 123.0 at step 7" in lines
    assert lines[-1] == "== pass@1 0.31 -> 0.60"
    assert out.getvalue().replace("\n", "").isprintable()


def test_the_plain_view_says_the_numbers_and_the_time_left():
    out, time = io.StringIO(), ScriptedTime()
    view = PlainView(out, time)
    view.stage("train", 100)
    for step in range(1, 11):
        time.now_s += 3.0
        view.update(step, {"reward/mean": 0.5, "trust_mask/share": 0.031})
    assert out.getvalue().splitlines()[-1] == "   train 10/100  reward 0.500  trust-mask share 3.1 %  4:30 left"


def test_the_quiet_view_says_only_alarms_and_the_result():
    out, time = io.StringIO(), ScriptedTime()
    tell(QuietView(out), time)
    assert out.getvalue() == "ALARM grad norm is 123.0 at step 7\npass@1 0.31 -> 0.60\n"


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=40, color_system=None, _environ={})


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_live_view_fits_its_terminal(width: int):
    console, time = terminal(width), ScriptedTime()
    tell(RichView(console, time), time)
    frames = [line.split("\x1b[2K")[-1] for line in text_of(console).splitlines()]
    assert max(len(line) for line in frames if "\x1b" not in line) <= width
    for shown in ("train", "20/20", "reward 1.000", "staleness 1.500", "EV 0.250", "pass@1 0.31 -> 0.60", "a note"):
        assert shown in text_of(console)
    assert any(block in text_of(console) for block in "▂▃▄▅▆▇")


def test_the_live_view_does_not_cut_a_full_line_of_a_long_run_at_80_columns():
    console, time = terminal(), ScriptedTime()
    view = RichView(console, time)
    view.stage("value_pretraining", 100_000)
    time.now_s += 7200
    everything = {
        "reward/mean": 0.5, "staleness/mean": 12.25, "trust_mask/share": 0.05, "critic/explained_var": -1.25,
        "actor/entropy": 0.75, "eval/pass_at_1": 0.25, "value_pretraining/loss": 0.125,
    }  # fmt: skip
    view.update(36_000, everything)
    view.finish("done")
    assert "…" not in text_of(console)
    for shown in ("value_pretraining", "36000/100000", "entropy 0.750", "trust-mask share 5.0 %", "loss 0.125"):
        assert shown in text_of(console)


def test_the_live_view_draws_at_most_four_frames_a_second():
    console, time = terminal(), ScriptedTime()
    tell(RichView(console, time), time, steps=1000, step_s=0.01)
    assert text_of(console).count("╭") <= 10 * 4 + 8  # and the stage, the note, the alarm, the end


def test_the_live_view_keeps_an_alarm_in_sight():
    console, time = terminal(), ScriptedTime()
    view = RichView(console, time)
    view.stage("train", 5)
    view.alarm("masked share 0.12 at step 3")
    time.now_s += 10
    view.update(4, {})
    assert text_of(console).rsplit("╭", 1)[1].count("masked share 0.12 at step 3") == 1


@pytest.mark.parametrize("kind", ["plain", "quiet", "live"])
def test_no_view_says_anything_after_the_end(kind: str):
    time, console = ScriptedTime(), terminal()
    out = io.StringIO() if kind != "live" else console.file
    view: RunView = {"plain": PlainView(out, time), "quiet": QuietView(out), "live": RichView(console, time)}[kind]
    view.stage("train", 2)
    view.finish("the end")
    said = out.getvalue()
    view.note("late")
    view.alarm("later")
    view.finish("again")
    assert out.getvalue() == said


def test_a_terminal_gets_the_live_view_a_pipe_plain_lines_and_quiet_wins():
    time = ScriptedTime()
    assert isinstance(make_view(terminal(), quiet=False, now=time), RichView)
    assert isinstance(make_view(Console(file=io.StringIO()), quiet=False, now=time), PlainView)
    assert isinstance(make_view(terminal(), quiet=True, now=time), QuietView)


def test_time_left_follows_the_latest_pace_and_counts_down_between_steps():
    stage = StageProgress("train", total=100, started_s=0.0)
    assert stage.time_left_s(5.0) is None
    stage.update(1, {}, now_s=50.1)
    assert stage.time_left_s(51.0) is None  # how long a step takes is not known yet
    for step in range(2, 66):
        stage.update(step, {}, now_s=50.0 + 2.0 * step)
    assert stage.time_left_s(50.0 + 130.0) == pytest.approx(70.0)
    assert stage.time_left_s(50.0 + 131.5) == pytest.approx(68.5)
    assert stage.time_left_s(1e9) == 0.0


def test_a_stage_of_unknown_length_has_no_time_left():
    stage = StageProgress("train", total=None, started_s=0.0)
    stage.update(3, {}, now_s=9.0)
    assert stage.time_left_s(9.0) is None


def test_a_new_stage_ends_the_one_before_and_an_update_without_a_stage_is_not_lost():
    time = ScriptedTime()
    progress = RunProgress(time)
    progress.update(1, {"reward/mean": 0.5})
    time.now_s += 4
    progress.begin("eval", None)
    time.now_s += 9
    assert [stage.name for stage in progress.stages] == ["run", "eval"]
    assert progress.stages[0].elapsed_s(time()) == 4
    assert progress.stages[0].metrics == {"reward/mean": 0.5}


def test_an_undefined_number_is_not_shown_and_an_infinite_one_is_and_stays_out_of_the_curve():
    stage = StageProgress("train", total=3, started_s=0.0)
    stage.update(1, {"reward/mean": float("nan"), "actor/entropy": float("inf")}, now_s=1.0)
    assert stage.shown("reward") is None
    assert stage.shown("entropy") == ("actor/entropy", float("inf"))
    stage.update(2, {"reward/mean": 0.5}, now_s=2.0)
    assert list(stage.history["reward/mean"]) == [0.5]
    assert "actor/entropy" not in stage.history
    assert number(float("inf")) == "inf"


def test_a_sparkline_shows_the_shape():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 1, 1], 2) == "▁█"
    assert sparkline([3.0, 3.0, 3.0], 10) == "▅▅▅"
    assert len(sparkline(list(range(1000)), 48)) == 48


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "—"), (0.2, "0:00"), (7, "0:07"), (750, "12:30"), (3723, "1:02:03"), (-1, "0:00")]
)
def test_durations_read_like_a_clock(seconds: float | None, text: str):
    assert duration(seconds) == text


def waiting_stage() -> StageProgress:
    """Ten steps of two seconds: the learner waits for half of each, rollouts for a tenth."""
    stage = StageProgress(name="train", total=20, started_s=0.0)
    for step in range(1, 11):
        waits = {"wait/batch_s": 0.9 * step, "wait/hold_s": 0.1 * step, "wait/admission_s": 0.2 * step}
        stage.update(step, {"time/clock_s": 2.0 * step, "actor/entropy": 0.5 - step / 100, **waits}, float(step))
    return stage


def test_who_waits_is_a_share_of_the_latest_steps():
    stage = waiting_stage()
    assert stage.waits() == pytest.approx({"learner": 0.5, "rollouts": 0.1})
    stage.update(11, {"time/clock_s": 22.0, "wait/batch_s": 0.5, "wait/hold_s": 0.0, "wait/admission_s": 0.0}, 11.0)
    assert stage.waits() == pytest.approx({"learner": 9.5 / 20, "rollouts": 1.8 / 20})  # its counters began again
    assert StageProgress(name="sft", total=1, started_s=0.0).waits() == {}


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_draws_the_key_curves_and_says_who_waits(width: int):
    console, time = terminal(width), ScriptedTime()
    view = RichView(console, time)
    view.stage("train", 20)
    for step in range(1, 21):
        time.now_s += 1.0
        metrics = {"reward/mean": step / 20, "critic/explained_var": 0.1, "trust_mask/share": 0.01 * (step % 3)}
        view.update(step, {**metrics, "time/clock_s": 1.0 * step, "wait/batch_s": 0.25 * step})
    view.finish("done")
    last_frame = text_of(console).rsplit("soliton", 1)[1]
    assert "waiting learner 25 %" in last_frame
    lines = [line for line in last_frame.splitlines() if "▁" in line or "▅" in line]
    assert [line.split()[1] for line in lines] == ["reward", "trust-mask", "EV"]
    assert all(len(line) <= width for line in last_frame.splitlines())


def test_the_plain_view_says_who_waits():
    out, time = io.StringIO(), ScriptedTime()
    view = PlainView(out, time)
    view.stage("train", 100)
    for step in range(1, 4):
        time.now_s += 3.0
        view.update(step, {"reward/mean": 0.5, "time/clock_s": 3.0 * step, "wait/admission_s": 1.5 * step})
    assert "waiting: rollouts 50 %" in out.getvalue()
