"""Checkpoints: folders that are either whole or not there.

A checkpoint is an atomic folder (`soliton.atomic`) with a manifest of each file's size and sha256. Loading
verifies the manifest; a damaged checkpoint is skipped with a message and its predecessor is used (fault J6). At least
two are kept.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from soliton.atomic import atomic_folder
from soliton.failpoints import failpoint

MANIFEST = "manifest.json"


def write_checkpoint(root: Path, step: int, write_files: Callable[[Path], None], keep: int) -> Path:
    """Write `root/step_<step>` atomically; remove all but the newest `keep` up to it, and every later one.

    A later checkpoint is one that was skipped as damaged: this run has gone back behind it.

    Args:
        root: the run's `checkpoints` folder.
        step: learner step; a checkpoint of the same step is replaced.
        write_files: writes the payload files into the folder it is given.
        keep: >= 2.
    """
    final = root / f"step_{step}"
    with atomic_folder(final) as folder:
        write_files(folder)
        failpoint("checkpoint.files_written")
        manifest = {file.name: _describe(file) for file in sorted(folder.iterdir())}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
        failpoint("checkpoint.before_rename")
    failpoint("checkpoint.after_rename")
    kept = [checkpoint for checkpoint in list_checkpoints(root) if step_of(checkpoint) <= step][-keep:]
    for other in list_checkpoints(root):
        if other not in kept:
            shutil.rmtree(other)
    return final


def list_checkpoints(root: Path) -> list[Path]:
    """Checkpoint folders, oldest first; their contents are not verified."""
    folders = [p for p in root.glob("step_*") if p.is_dir() and p.name.removeprefix("step_").isdigit()]
    return sorted(folders, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The learner step in a checkpoint's name."""
    return int(checkpoint.name.removeprefix("step_"))


def newest_whole_checkpoint(root: Path, note: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose files all match their manifest; None if there is none.

    Args:
        root: the run's `checkpoints` folder.
        note: told of every checkpoint that is skipped, and why.
    """
    for checkpoint in reversed(list_checkpoints(root)):
        problem = damage(checkpoint)
        if problem is None:
            return checkpoint
        note(f"{checkpoint.name} is damaged ({problem}); using the checkpoint before it")
    return None


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    for name, expected in manifest.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if _describe(file) != expected:
            return f"{name} does not match its checksum"
    return None


def _describe(file: Path) -> dict[str, int | str]:
    data = file.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
