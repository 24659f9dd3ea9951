"""A SQLite store in a temporary folder that goes when the store goes."""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from soliton.store.config import StoreConfig
from soliton.store.sqlite import SqliteStore
from soliton.types import Clock, Publication


def open_sqlite(config: StoreConfig, clock: Clock, initial: Publication | None = None) -> SqliteStore:
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    store = SqliteStore.open(Path(folder.name) / "store.sqlite", config, clock)
    store.folder = folder
    if initial is not None:
        at_once(store.finish_step([], initial))
    return store


def at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call that has nothing to wait for, without an event loop."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    call.close()
    raise AssertionError(f"{call} waits")
