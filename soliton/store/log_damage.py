"""What SQLite leaves out of its log without a word: transactions after a place that is not what was written.

A log that ends in the middle of a transaction is what a kill leaves: nothing in it was acknowledged. A whole
transaction that SQLite does not take is something else: bytes of it, or of one before it, were changed, or the machine
lost power. Changed salts of the very last frame look like the end of the log and are not seen.

Source of the formats: https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

_HEADER = struct.Struct(">IIIIIIII")
"""Of the log: mark, format, page size, number of the log, two salts, two sums over all that."""
_FRAME = struct.Struct(">IIII8x")
"""Before each page: its number, pages of the file after the transaction (0: it goes on), two salts; two sums."""
_MARKS = {0x377F0682: "<", 0x377F0683: ">"}
"""Of a log -> the byte order in which its sums are made."""


def lost_transactions(connection: sqlite3.Connection, path: Path) -> int:
    """Whole transactions in the log that are not in the database; to be asked before anything is written.

    Reads the log, on which SQLite takes no locks. Never the index beside it, nor the database: closing one of those
    would give up all locks that this process has on it (https://www.sqlite.org/howtocorrupt.html, 2.2), and the next
    process to look would begin the index again under the feet of this one.

    Args:
        connection: to the database, in WAL mode; moves what the log holds into the database.
        path: of the database.
    """
    log = Path(f"{path}-wal")
    if not log.exists() or log.stat().st_size < _HEADER.size:
        return 0
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    _, taken, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
        frames = []
        while len(frame := file.read(_FRAME.size + page_size)) == _FRAME.size + page_size:
            frames.append(_FRAME.unpack_from(frame))
    if not frames:
        return 0
    # Frames with other salts are left over from before SQLite began the log again.
    salts = _HEADER.unpack(header)[4:6] if _is_whole(header) else frames[0][2:]
    return sum(ends_transaction > 0 and tuple(of_frame) == salts for _, ends_transaction, *of_frame in frames[taken:])


def _is_whole(header: bytes) -> bool:
    """Whether the sums in the header are those of what stands before them."""
    mark, *_, first_written, second_written = _HEADER.unpack(header)
    if mark not in _MARKS:
        return False
    words = struct.unpack(f"{_MARKS[mark]}6I", header[:24])
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return (first, second) == (first_written, second_written)
