"""Where a result came from: the commit of the code, and the machine. Never a path or a name of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import soliton


@cache
def commit_of_the_code() -> str | None:
    """The commit of the repository that the package is imported from; None outside one.

    "+changes" at its end: files of the package or of the recipes differ from the commit. Asked once per process, so
    that all runs of one command say the same.
    """
    root = Path(soliton.__file__).parent.parent
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    changed = _git(root, "status", "--porcelain", "--", "soliton", "recipes")
    return head[:12] + ("+changes" if changed else "")


def _git(root: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run([git, "-C", str(root), *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def machine() -> str:
    """Cores, processor, Python and torch: what decides how long a run takes."""
    torch = importlib.metadata.version("torch")
    return f"{os.cpu_count()} cores, {_processor()}, Python {platform.python_version()}, torch {torch}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
