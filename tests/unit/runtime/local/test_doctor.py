"""What `doctor` makes of a store's status."""

import asyncio
from pathlib import Path

from soliton.runtime.clock import RealClock
from soliton.runtime.local.doctor import describe
from soliton.store.config import StoreConfig
from soliton.store.sqlite import SqliteStore
from tests.fakes.trajectories import publication


def test_before_the_first_policy_nobody_is_said_to_roll_out(tmp_path: Path):
    store = SqliteStore.open(tmp_path / "store.sqlite", StoreConfig(batch_size=2, max_staleness=3), RealClock())

    async def described() -> list[str]:
        return describe(await store.status())

    async def begin() -> None:
        await store.finish_step([], publication(0))

    assert asyncio.run(described()) == [
        "training has not begun: a stage before it goes on, or the first policy is on its way"
    ]
    asyncio.run(begin())
    assert any("rollouts are under way" in line for line in asyncio.run(described()))
    store.close_file()
