"""Tasks that live and die together."""

from __future__ import annotations

import asyncio
from typing import Any


async def until_done(awaited: asyncio.Task[Any], *others: asyncio.Task[Any]) -> None:
    """Wait for `awaited`; a failure of any of the tasks ends all of them with its traceback (fault H3)."""
    pending = [awaited, *others]
    try:
        while not awaited.done():
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in pending if task.done()]:
                task.result()
                pending.remove(task)
    except BaseException:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        raise
