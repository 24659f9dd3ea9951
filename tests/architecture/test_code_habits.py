"""The house rules that no linter knows, checked on the syntax tree. Each rule is also shown a breach."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "soliton").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py")) + sorted((ROOT / "recipes").rglob("*.py"))
EVERYTHING = PACKAGE + TESTS + SCRIPTS

MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 80
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
BANNED_NAMES = {"eval", "exec", "compile", "__import__"}
BANNED_CALLS = {"torch.load", "torch.save", "os.system", "os.popen", "yaml.load", "recv_pyobj"}
OLD_NAME = re.compile(r"^old_")

Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
Rule = Callable[[ast.Module], Iterator[str]]


def missing_docstring(tree: ast.Module) -> Iterator[str]:
    """A module without a docstring."""
    if not ast.get_docstring(tree):
        yield "line 1: no module docstring"


def long_functions(tree: ast.Module) -> Iterator[str]:
    """Functions beyond the limit."""
    for node in ast.walk(tree):
        if isinstance(node, Functions):
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {lines} lines"


def banned_words(tree: ast.Module) -> Iterator[str]:
    """Definitions whose names say nothing, and arguments named `old_*`."""
    for node in ast.walk(tree):
        if isinstance(node, (*Functions, ast.ClassDef)):
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", node.name)}
            if words & BANNED_WORDS:
                yield f"line {node.lineno}: {node.name}"
        if isinstance(node, ast.arg) and OLD_NAME.match(node.arg):
            yield f"line {node.lineno}: argument {node.arg}"


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain; empty where it does not begin with a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and dotted(node.value):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def forbidden(tree: ast.Module) -> Iterator[str]:
    """Code that runs data as code: deserialisers that execute, `eval`, a shell."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {str(node.module).partition(".")[0]}
        else:
            names = set()
        if names & BANNED_MODULES:
            yield f"line {node.lineno}: imports {names & BANNED_MODULES}"
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            on = {keyword.arg for keyword in node.keywords if not is_constant(keyword.value, False)}
            if name in BANNED_NAMES | BANNED_CALLS or name.rpartition(".")[2] in BANNED_CALLS:
                yield f"line {node.lineno}: calls {name}"
            if on & {"allow_pickle", "shell", "trust_remote_code"}:
                yield f"line {node.lineno}: {name} with {on & {'allow_pickle', 'shell', 'trust_remote_code'}}"


def is_constant(node: ast.expr, value: object) -> bool:
    """Whether an argument is literally this value."""
    return isinstance(node, ast.Constant) and node.value is value


def breaches(rule: Rule, paths: list[Path]) -> list[str]:
    """`file: what` of every breach."""
    return [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in rule(ast.parse(path.read_text()))]


def test_every_module_says_what_it_is():
    assert breaches(missing_docstring, PACKAGE + SCRIPTS) == []


def test_functions_fit_a_screen():
    assert breaches(long_functions, EVERYTHING) == []


def test_files_stay_readable():
    lines = {path: len(path.read_text().splitlines()) for path in PACKAGE}
    assert {str(path.relative_to(ROOT)): n for path, n in lines.items() if n > MAX_FILE_LINES} == {}


def test_names_say_what_a_thing_is():
    assert breaches(banned_words, PACKAGE) == []
    parts = {part for path in EVERYTHING for part in path.relative_to(ROOT).with_suffix("").parts}
    assert {part for part in parts if set(part.split("_")) & BANNED_WORDS} == set()


def test_data_is_never_run_as_code():
    """fault M3, L2: no pickle in any form, no eval, no shell."""
    assert breaches(forbidden, PACKAGE + SCRIPTS) == []


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (missing_docstring, "x = 1"),
        (long_functions, "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
        (banned_words, "class WeightManager: ..."),
        (banned_words, "def common_path(): ..."),
        (banned_words, "def loss(policy_logprobs, old_logprobs): ..."),
        (forbidden, "import pickle"),
        (forbidden, "from cloudpickle import loads"),
        (forbidden, "eval('1')"),
        (forbidden, "exec(text)"),
        (forbidden, "import torch\ntorch.load(path)"),
        (forbidden, "np.load(path, allow_pickle=True)"),
        (forbidden, "subprocess.run(command, shell=True)"),
        (forbidden, "subprocess.run(command, shell=wanted)"),
        (forbidden, "socket.recv_pyobj()"),
        (forbidden, "AutoModel.from_pretrained(path, trust_remote_code=True)"),
    ],
)
def test_each_rule_sees_its_breach(rule: Rule, source: str):
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (missing_docstring, '"""What it is."""'),
        (long_functions, "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)),
        (banned_words, "from contextlib import contextmanager\ndef commit(): ..."),
        (forbidden, "model.eval()\nre.compile('a')\nnp.load(path, allow_pickle=False)\nsubprocess.run(c, shell=False)"),
    ],
)
def test_no_rule_sees_what_is_fine(rule: Rule, source: str):
    assert not list(rule(ast.parse(source)))


def test_test_files_have_unlike_names():
    """pytest imports them by their bare names."""
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_test_names_are_sentences():
    nodes = [node for path in TESTS for node in ast.walk(ast.parse(path.read_text()))]
    names = [node.name for node in nodes if isinstance(node, Functions) and node.name.startswith("test_")]
    assert [name for name in names if name.count("_") < 3] == []


def test_no_file_names_a_machine():
    """Paths of one machine work nowhere else."""
    tracked = [*EVERYTHING, *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").glob("*.toml"), *ROOT.glob("*.md")]
    machine = re.compile(r"(?<![\w.])/(work|root|home|Users)/")
    assert [str(path.relative_to(ROOT)) for path in tracked if machine.search(path.read_text())] == []


def test_the_version_is_written_once_in_each_place_it_belongs():
    import soliton

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == soliton.__version__
    assert f"## {soliton.__version__}" in (ROOT / "CHANGELOG.md").read_text()
