"""What the docs say is so: links lead somewhere, snippets run, tables match the code they speak of."""

import ast
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from soliton.metrics import METRICS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FAULT_ID = re.compile(r"\b[A-M][1-9][0-9]?\b")
FAULT_MARK = re.compile(r"\bfaults?\b[^\n]*", re.I)


def name_of(path: Path) -> str:
    """A page's path as it is written."""
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    """A page's prose: code blocks hold brackets that are no links."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path):
    broken = []
    for target in LINK.findall(without_code(page.read_text())):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file) if file else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            broken.append(target)
    assert broken == []


SNIPPETS = [
    pytest.param(text, id=f"{name_of(page)}-{i}")
    for page in PAGES
    for i, text in enumerate(SNIPPET.findall(page.read_text()))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_python_snippet_runs_as_it_is_printed(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "snippet.py"
    script.write_text(snippet)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="snippet")


def test_the_readme_shows_the_library_in_use():
    assert SNIPPET.findall((ROOT / "README.md").read_text())


def table_rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page, heads and rules left out."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row, below in zip(rows, [*rows[1:], [""]], strict=True) if not is_rule(row) and not is_rule(below)]


def is_rule(row: list[str]) -> bool:
    """Whether a row is the line under a table's head."""
    return set("".join(row)) == {"-"} or set("".join(row)) == {"-", ":"}


def test_each_core_dependency_has_its_line():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = sorted(re.split(r"[<>=~!\[ ]", requirement)[0] for requirement in project["dependencies"])
    assert [row[0] for row in table_rows("docs/dependencies.md")] == core


def test_the_glossary_has_no_word_twice():
    words = [row[0] for row in table_rows("docs/glossary.md")]
    assert len(words) > 40
    assert sorted(words) == sorted(set(words))


def functions_of(path: Path) -> set[str]:
    """Names of all test functions of a file."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_exists(page: Path):
    named = TEST.findall(page.read_text())
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or name not in functions_of(ROOT / file)
    ]
    assert missing == []


def faults_in_tests() -> set[str]:
    """Ids that a test's name or a comment carries: `fault C11`, `faults A1, A2`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__):
            for mark in FAULT_MARK.findall(path.read_text()):
                found |= set(FAULT_ID.findall(mark))
    return found


def fault_rows() -> dict[str, list[str]]:
    """id -> cells of its row."""
    return {row[0]: row for row in table_rows("docs/faults.md") if FAULT_ID.fullmatch(row[0])}


def test_every_fault_that_a_test_carries_has_its_row_with_a_test():
    covered = {fault for fault, row in fault_rows().items() if TEST.search(row[2])}
    assert faults_in_tests() - covered == set()


def test_a_fault_without_a_test_says_why():
    reasons = {fault: row[2] for fault, row in fault_rows().items() if not TEST.search(row[2])}
    assert [
        fault for fault, reason in reasons.items() if not reason.startswith(("no such surface yet: ", "open: "))
    ] == []


def test_no_fault_is_listed_twice_and_they_are_in_order():
    ids = [row[0] for row in table_rows("docs/faults.md") if FAULT_ID.fullmatch(row[0])]
    assert ids == sorted(set(ids), key=lambda fault: (fault[0], int(fault[1:])))
    assert len(ids) > 90


def test_what_to_watch_has_one_row_per_metric_and_says_what_the_table_says():
    rows = table_rows("docs/guides/what-to-watch.md")
    assert [row[:3] for row in rows] == [[m.name, m.unit, m.healthy] for m in METRICS.values()]
    for (name, _, _, flag, action), metric in zip(rows, METRICS.values(), strict=True):
        assert flag, name
        assert action, name
        limits = [limit for limit in (metric.above, metric.below) if limit is not None]
        assert all(f"{limit:g}" in flag.replace("0.10", "0.1") for limit in limits), name
        assert bool(limits) == ("(alarm)" in flag), name
