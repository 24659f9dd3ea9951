"""Where the hub of a run answers: `hub.json`, readable by its owner alone, there as long as the run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from soliton.errors import RunError


class Connection(msgspec.Struct, frozen=True):
    """How to reach the hub.

    Attributes:
        url: `http://host:port`.
        token: random, of this run and this start alone.
        run_id: of this start; a hub of another run refuses it.
        controller: process id.
        clock_origin_s: 0 of the run's clock on the machine's monotonic clock.
    """

    url: str
    token: str
    run_id: str
    controller: int
    clock_origin_s: float

    def write(self, path: Path) -> None:
        """Write the file, never readable by others."""
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(msgspec.to_builtins(self), file)

    @staticmethod
    def read(path: Path) -> Connection:
        """Read the file.

        Raises:
            RunError: no run goes on there.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=Connection)
        except FileNotFoundError:
            raise RunError(f"{path.parent}: no run is going on there (it has no {path.name})") from None
        except msgspec.MsgspecError as error:
            raise RunError(f"{path} is damaged: {error}; start the run again with --resume") from error
