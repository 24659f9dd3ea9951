"""Folders and files that exist wholly or not at all, whenever the process is killed (fault J6).

A folder is written beside its final place, flushed to disk, and renamed into place. What is of no use after a power
failure needs no flush (durability "process"): some 5 to 10 ms each. Replacing an existing folder takes
two renames; killed between them, the complete previous folder still lies beside it and `recover_folder` puts it back.
One writer per path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Durability = Literal["process", "power"]
"""What written things survive whole: a kill of the process, or also a failure of the machine's power."""


@contextmanager
def atomic_folder(path: str | Path, durability: Durability = "power") -> Iterator[Path]:
    """Give an empty folder to write into; it becomes `path` when the block ends without an exception.

    An exception removes what was written and leaves an existing `path` as it was.
    """
    path = Path(path)
    new, old = _new(path), _old(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    recover_folder(path)
    new.mkdir()
    try:
        yield new
        if durability == "power":
            _fsync_tree(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if path.exists():
        path.rename(old)
    new.rename(path)
    if durability == "power":
        fsync_path(path.parent)
    if old.exists():
        shutil.rmtree(old)


def recover_folder(path: str | Path) -> None:
    """Undo what a killed `atomic_folder(path)` left: put back the previous folder if `path` is gone, drop leftovers.

    Call it before reading a folder that a killed process may have been replacing. Does nothing when nothing is left.
    """
    path = Path(path)
    new, old = _new(path), _old(path)
    if old.exists() and not path.exists():
        old.rename(path)
        fsync_path(path.parent)
    for leftover in (new, old):
        if leftover.exists():
            shutil.rmtree(leftover)


@contextmanager
def atomic_file(path: str | Path, durability: Durability = "power") -> Iterator[Path]:
    """Give a file name to write to; it becomes `path` (replacing it) when the block ends without an exception."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = _new(path)
    try:
        yield new
        if durability == "power":
            fsync_path(new)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if durability == "power":
        fsync_path(path.parent)


def _new(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _fsync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            fsync_path(Path(parent) / name)
        fsync_path(Path(parent))


def fsync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
