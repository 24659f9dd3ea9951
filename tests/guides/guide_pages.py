"""The code blocks of a guide as the files that its reader would save, and small runs of its recipes."""

import io
import re
import shlex
from pathlib import Path

from soliton.report.quiet import QuietView
from soliton.runtime.run import run_recipe

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
FILE = re.compile(r"# (\w+\.(?:py|toml|jsonl))\n")
SMALL = (
    "sft.num_demonstrations=384",
    "sft.batch_size=8",
    'stages=["sft","train","eval"]',  # a policy that solves nothing yet has no values to pretrain
    "train.steps=2",
    "train.batch_size=4",
    "rollout.max_in_flight=8",
    "eval.num_prompts=4",
)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    return [body for kind, body in BLOCK.findall((GUIDES / page).read_text()) if kind == language]


def commands(page: str) -> list[list[str]]:
    """The arguments of every `soliton` line of a page's shell blocks, in order."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("soliton ")]


def save_files(page: str, folder: Path) -> dict[str, str]:
    """Save every block that begins with its file's name, as the reader does; returns name -> text."""
    files = {}
    for _, body in BLOCK.findall((GUIDES / page).read_text()):
        if match := FILE.match(body):
            files[match[1]] = body
            (folder / match[1]).write_text(body)
    return files


def lines_of_code(text: str) -> int:
    """Lines that are neither empty nor only a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def run_small(recipe: Path, *overrides: str) -> int:
    """Run a recipe with a few steps of a few trajectories, in this process."""
    return run_recipe(recipe, [*SMALL, *overrides], stages=None, resume=None, view=QuietView(io.StringIO()))
