"""Whether this installation and machine can run: versions, cores, disk, shared memory, ports, optional extras."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import socket
import sqlite3
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["ok", "note", "bad"]
GB = 2**30
EXTRAS = {
    "wandb": "tracking",
    "trackio": "tracking",
    "mlflow": "tracking",
    "tensorboard": "reading the event files",
}
"""Optional packages -> what they are for."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: short name.
        verdict: "ok", "note" (works, and one should know), "bad" (runs will fail).
        found: what there is.
        advice: what to do; "" if nothing.
    """

    what: str
    verdict: Verdict
    found: str
    advice: str = ""

    def as_data(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return asdict(self)


def check_installation(folder: Path) -> list[Finding]:
    """Look at everything; `folder` is where runs would go."""
    return [
        _python(),
        _torch(),
        _package("transformers"),
        _threads(),
        _memory(),
        _disk(folder),
        _shared_memory(Path("/dev/shm")),  # noqa: S108  (looked at, never written to)
        _sqlite(),
        _port(),
        _extras(),
    ]


def _python() -> Finding:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info >= (3, 14):
        return Finding("Python", "note", found, "tested with 3.11 to 3.13")
    return Finding("Python", "ok", found)


def _torch() -> Finding:
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return Finding("torch", "bad", f"cannot be imported: {error}", "install it again; `make install` names a build")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPU"
    found = f"{torch.__version__}, {build}, {gpus} GPUs visible"
    return (
        Finding("torch", "note", found, "this version trains on CPU cores only")
        if gpus
        else Finding("torch", "ok", found)
    )


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "bad", "not installed", "run `make install`")


def _threads() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("OMP_NUM_THREADS")
    found = f"{cores} cores for this process, OMP_NUM_THREADS {given or 'not set'}"
    if cores < 2:
        return Finding("cores", "note", found, "learner and workers of the `local` runtime will share one core")
    return Finding("cores", "ok", found, "each process of a run uses one thread")


def _memory() -> Finding:
    table = Path("/proc/meminfo")
    if not table.exists():
        return Finding("memory", "note", "unknown on this system")
    rows = dict(line.split(":", 1) for line in table.read_text().splitlines() if ":" in line)
    free = int(rows["MemAvailable"].split()[0]) * 1024 / GB
    if free < 2:
        return Finding("memory", "note", f"{free:.1f} GB available", "the calculator demo wants about 2 GB")
    return Finding("memory", "ok", f"{free:.1f} GB available")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free / GB
    writable = os.access(folder, os.W_OK)
    found = f"{free:.1f} GB free in {folder}{'' if writable else ', which cannot be written to'}"
    if not writable:
        return Finding("disk", "note", found, "set run.dir to a folder that can")
    if free < 1:
        return Finding(
            "disk", "bad", found, "runs wait when the disk is full; free some space or set run.dir elsewhere"
        )
    return Finding("disk", "ok", found)


def _shared_memory(folder: Path) -> Finding:
    if not folder.exists():
        return Finding(str(folder), "note", "absent", "Soliton does not need it; some environments do")
    free = shutil.disk_usage(folder).free / GB
    if free < 0.25:
        return Finding(str(folder), "note", f"{free:.2f} GB free", "small; in containers give --shm-size=1g")
    return Finding(str(folder), "ok", f"{free:.1f} GB free")


def _sqlite() -> Finding:
    if sqlite3.sqlite_version_info < (3, 35, 0):
        return Finding("SQLite", "bad", sqlite3.sqlite_version, "the store of the `local` runtime needs 3.35 or newer")
    return Finding("SQLite", "ok", sqlite3.sqlite_version)


def _port() -> Finding:
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return Finding("ports", "ok", f"127.0.0.1 can be listened on (tried port {listener.getsockname()[1]})")
    except OSError as error:
        return Finding("ports", "bad", f"127.0.0.1 cannot be listened on: {error}", "the `local` runtime needs it")


def _extras() -> Finding:
    found = [name for name in EXTRAS if importlib.util.find_spec(name) is not None]
    absent = [f"{name} ({why})" for name, why in EXTRAS.items() if name not in found]
    text = f"installed: {', '.join(found) or 'none'}"
    return Finding("extras", "ok", text, f"optional and absent: {', '.join(absent)}" if absent else "")
