"""The layers of the tree hold, the data plane stays slim, and nothing is imported that is not declared."""

import ast
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import soliton

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SLIM_PACKAGES = ("soliton.envs", "soliton.prompts", "soliton.rollout", "soliton.store")
MODULES = [module.name for module in pkgutil.walk_packages(soliton.__path__, "soliton.")]
SLIM = [
    "soliton",
    "soliton.cli",
    "soliton.runtime.local.controller",
    "soliton.types",
    "soliton.errors",
    "soliton.config",
    "soliton.engines.engine",
]
SLIM += [name for name in MODULES if name.startswith(SLIM_PACKAGES)]
HEAVY = ("torch", "transformers", "tokenizers", "scipy", "matplotlib", "vllm", "sglang", "ray")

CHECK = """
import importlib, sys
for name in {modules}:
    importlib.import_module(name)
    heavy = sorted(set({heavy}) & set(sys.modules))
    if heavy:
        sys.exit(f"importing {{name}} imports {{heavy}}")
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, in the root of the repository."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_imports_go_down_only():
    done = run_python("from importlinter.cli import lint_imports_command; lint_imports_command()")
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


def test_the_data_plane_and_the_command_import_nothing_heavy():
    """Workers, stores and `soliton --help` run on machines without torch, and start at once."""
    done = run_python(CHECK.format(modules=SLIM, heavy=HEAVY))
    assert done.returncode == 0, done.stderr


def test_the_slim_check_sees_a_heavy_import():
    assert "importing scipy imports ['scipy']" in run_python(CHECK.format(modules=["scipy"], heavy=HEAVY)).stderr


TRACKERS = ROOT / "soliton" / "report" / "trackers"
"""The one folder that may import what only an extra installs: a run goes on without it."""


def top_level_imports(path: Path) -> set[str]:
    """First parts of the names of all modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
    return names


def canonical(name: str) -> str:
    """The name of a distribution as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared_modules(requirements: list[str]) -> set[str]:
    """Importable names of the distributions that `requirements` name."""
    wanted = {canonical(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}
    owners_of = importlib.metadata.packages_distributions()
    return {module for module, owners in owners_of.items() if wanted & {canonical(owner) for owner in owners}}


@pytest.mark.parametrize("folder", ["soliton", "benchmarks", "recipes", "tests"])
def test_everything_imported_is_a_declared_dependency(folder: str):
    """What only comes along with another package is gone when that package changes its mind."""
    project = PYPROJECT["project"]
    allowed = set(sys.stdlib_module_names) | {"soliton"} | declared_modules(project["dependencies"])
    if folder == "tests":
        allowed |= declared_modules(project["optional-dependencies"]["dev"])
        allowed |= {"tests", "benchmarks", "recipes", *(path.stem for path in (ROOT / "tests").rglob("*"))}
    trackers = set(project["optional-dependencies"]) - {"dev", "peers"}  # each has the name of its module
    peers = {re.split(r"[^\w]", requirement)[0] for requirement in project["optional-dependencies"]["peers"]}
    of_extras = {TRACKERS: trackers, ROOT / "tests" / "peers": peers}
    undeclared = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / folder).rglob("*.py")
        if (names := top_level_imports(path) - allowed - {folder} - of_extras.get(path.parent, set()))
    }
    assert undeclared == {}
