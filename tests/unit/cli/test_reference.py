"""The page about the command says what the command does."""

from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from soliton.cli import app
from soliton.commands import exits
from soliton.config import parse_config
from soliton.errors import ConfigError

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "command.md").read_text(encoding="utf-8")
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_documented_exit_codes_are_those_of_the_code():
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert {int(code): meaning for code, meaning in rows} == exits.EXIT_CODES


def test_every_exit_code_of_the_code_is_in_the_table_and_in_the_help():
    constants = {value for name, value in vars(exits).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert constants | {0} == set(exits.EXIT_CODES)
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    for code, meaning in exits.EXIT_CODES.items():
        assert f"{code} {meaning}" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_on_the_page_and_teaches_with_an_example(command: str):
    assert f"`soliton {command} " in PAGE or f"`soliton {command}`" in PAGE
    shown = CliRunner().invoke(app, [command, "--help"]).stdout
    assert "Example" in shown
    assert shown.count(f"soliton {command} ") + shown.count(f"soliton {command}\n") >= 2  # usage, and an example


def test_the_message_on_the_page_is_the_real_one(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(
        'stages = ["train", "sft"]\n[method]\neps_low = 0.2\neps_high = 0.28\n[train]\nbatchsize = 4\n'
    )
    result = CliRunner().invoke(app, ["train", "recipe.toml", "train.steps=0"])
    assert result.stderr.strip() in PAGE


def test_a_configuration_made_in_code_is_refused_with_the_same_words():
    with pytest.raises(ConfigError, match="method: required and missing; add the table"):
        parse_config({}, source="test")
