"""The bytes of trajectories, one after another in a file of their own beside the SQLite index.

Owns the file and where it ends. Does not know what the bytes mean. Guarantees: bytes are in the file before the index
names them, and are never changed afterwards; what no index names (a failed transaction, a kill) is overwritten.
SQLite wrote each of them twice, into its log and into its file; here they are written once and read in one piece.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from xxhash import xxh3_64_intdigest

from soliton.atomic import fsync_path
from soliton.types import AttemptId


def payload_path(store: Path) -> Path:
    """The file of payloads that belongs to the index in `store`."""
    return store.with_suffix(".payloads")


def payload_hash(attempt: AttemptId, versions: str, body: bytes | memoryview) -> int:
    """XXH3 of a payload in 63 bits, seeded with what it belongs to: swapped payloads are noticed too."""
    owner = f"{attempt.draw}/{attempt.sample}/{attempt.attempt}/{versions}".encode()
    return xxh3_64_intdigest(body, xxh3_64_intdigest(owner)) >> 1


class PayloadReader:
    """Reads payloads, also while a run appends to the file.

    Args:
        store: path of the index. A missing file of payloads reads as an empty one.
    """

    def __init__(self, store: Path) -> None:
        path = payload_path(store)
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None

    def read(self, start: int, size: int) -> bytes:
        """`size` bytes from `start`, fewer where the file ends."""
        return b"" if self._file is None else os.pread(self._file, size, start)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the file."""
        self.close()


class PayloadWriter(PayloadReader):
    """Appends payloads for one transaction of the index at a time.

    Args:
        store: path of the index.
        end: where the last payload that the index names ends; what lies behind it is cut off.
        durable: bytes survive a power failure before the index names them, not only a kill.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, store: Path, end: int, *, durable: bool) -> None:
        path = payload_path(store)
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if durable:
            fsync_path(path.parent)  # the name of a new file lasts, too
        if os.fstat(self._file).st_size > end:
            os.ftruncate(self._file, end)
        self._end = end
        self._durable = durable
        self._pending: list[bytes] = []
        self._num_pending = 0

    def append(self, body: bytes) -> int:
        """Where `body` will lie once it is written."""
        start = self._end + self._num_pending
        self._pending.append(body)
        self._num_pending += len(body)
        return start

    def write(self) -> None:
        """Put what was appended into the file; the index may name it then.

        Raises:
            OSError: there was no space, or the disk failed.
        """
        if not self._pending:
            return
        assert self._file is not None
        rest, start = memoryview(b"".join(self._pending)), self._end
        while rest:
            written = os.pwrite(self._file, rest, start)
            rest, start = rest[written:], start + written
        if self._durable:
            os.fdatasync(self._file)

    def keep(self) -> None:
        """The index names what was written."""
        self._end += self._num_pending
        self.forget()

    def forget(self) -> None:
        """The transaction failed: what was appended is no longer wanted."""
        self._pending.clear()
        self._num_pending = 0
