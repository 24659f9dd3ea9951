"""docs/algorithm.md: every function and test that it names exists, and nothing public is missing from it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import soliton.advantages
import soliton.losses
from soliton.algorithms.build import PRESETS
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.traits import TRAITS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "algorithm.md"
TEXT = PAGE.read_text()
MAP = TEXT.partition("## Presets")[0]
LINK = re.compile(r"\[((?:`\w+`(?:, )?)+)\]\(\.\./([\w/.]+\.py)\)")
"""One or more names in code, linked to the file that defines them."""
NAME = re.compile(r"`([\w.-]+)`")


@cache
def defined_in(file: str) -> set[str]:
    """Functions and classes of a file."""
    nodes = ast.walk(ast.parse((ROOT / file).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


NAMED = [(file, name) for names, file in LINK.findall(TEXT) for name in NAME.findall(names)]


def rows_of(section: str) -> list[list[str]]:
    """The cells of the rows of a section's table, without its head."""
    text = TEXT.partition(f"\n{section}\n")[2].partition("\n#")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


EQUATIONS = ["### The paper's method", "### Baselines and related work", "### Options of every method"]


def test_every_name_is_defined_in_the_file_that_it_links_to():
    assert len(NAMED) > 100
    assert [f"{file}: {name}" for file, name in NAMED if name not in defined_in(file)] == []


@pytest.mark.parametrize("section", EQUATIONS)
def test_every_equation_has_a_function_a_test_and_a_use(section: str):
    rows = rows_of(section)
    assert len(rows) > 5
    for equation, function, tests, use in rows:
        assert all(file.startswith("soliton/") for _, file in LINK.findall(function)), equation
        assert LINK.findall(function), equation
        found = LINK.findall(tests)
        assert found, equation
        assert all(file.startswith("tests/") for _, file in found), equation
        assert all(name.startswith("test_") for names, _ in found for name in NAME.findall(names)), equation
        assert use, equation


def test_every_test_in_code_is_linked():
    """A name without a link is checked by nobody."""
    linked = {name for _, name in NAMED}
    assert {name for name in NAME.findall(TEXT) if name.startswith("test_")} <= linked


def test_no_public_loss_or_advantage_is_missing():
    public = {*soliton.losses.__all__, *soliton.advantages.__all__} - {"LossResult"}
    assert public - {name for _, name in NAMED} == set()


def test_the_table_of_presets_has_each_once():
    assert sorted(row[0].strip("`") for row in rows_of("## Presets")) == sorted(PRESETS)


def test_the_presets_table_says_how_each_uses_its_critic():
    for name, _, _, critic in rows_of("## Presets"):
        use = TRAITS[name.strip("`")].critic  # type: ignore[index]
        if use is None:
            assert critic == "none", name
        elif not critic.startswith("as "):
            stated = critic.partition(";")[0].split(", ")
            assert stated == [str(use.updates), use.trainable, "yes" if use.pretrained else "no"], name


def test_presets_in_the_last_column_exist_and_each_is_in_some_row():
    used = {name for section in EQUATIONS[:2] for row in rows_of(section) for name in NAME.findall(row[-1])}
    assert used - set(PRESETS) == set()
    assert set(PRESETS) - used == set()


def test_keys_of_options_exist():
    keys = {row[-1].partition(" ")[0] for row in rows_of(EQUATIONS[2])}
    assert keys <= set(MethodOptions.model_fields)
