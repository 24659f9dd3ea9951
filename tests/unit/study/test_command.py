"""`soliton study` as it is typed."""

from pathlib import Path

from typer.testing import CliRunner

from soliton.cli import app


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["study", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_a_study_that_there_is_not_is_refused_with_those_that_there_are():
    message = said("mains", code=2)
    assert "study 'mains': there are 'sweep', 'main'" in message
    assert message.rstrip().endswith("and 'all'; did you mean 'main'?")
    assert "--seeds: got 0; allowed is a whole number >= 1" in said("main", "--seeds", "0", code=2)


def test_the_page_alone_runs_nothing_and_says_what_is_not_there(tmp_path: Path):
    shown = said("main", "--page", "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs"))
    assert shown.startswith("main:\n  NOT KNOWN YET")
    assert "no results of grpo yet" in shown
    assert not (tmp_path / "runs").exists()
    assert "## Verdicts" in (tmp_path / "out" / "study.md").read_text()


def test_the_help_names_the_options():
    shown = said("--help")
    assert all(option in shown for option in ("--seeds", "--jobs", "--out", "--runs", "--quick", "--page"))
