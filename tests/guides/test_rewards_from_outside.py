"""docs/guides/rewards-from-outside.md: its environment ends without a reward, its script posts one."""

import asyncio
import json
import runpy
from pathlib import Path

from soliton.awaited import AwaitedReward
from soliton.prompts.stream import make_prompt
from soliton.runtime.clock import RealClock
from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
from tests.fakes.hub import RUN_ID, TOKEN, over_http
from tests.fakes.trajectories import publication, trajectory
from tests.guides.guide_pages import blocks, save_files

PAGE = "rewards-from-outside.md"


def test_the_pages_environment_ends_with_its_reward_awaited(tmp_path: Path):

    source = next(block for block in blocks(PAGE, "python") if "end_later" in block)
    (tmp_path / "essay.py").write_text(source)
    namespace = runpy.run_path(str(tmp_path / "essay.py"))

    async def play():
        essay = namespace["Essay"]()
        await essay.reset(make_prompt({"prompt": "Write 3 words."}), 0)
        return await essay.step("one two three")

    result = asyncio.run(play())
    assert result.terminated
    assert result.awaited == AwaitedReward(within_s=600, key="Write 3 words.", low=0.0, high=1.0)


def test_the_pages_script_rewards_what_waits(tmp_path: Path):
    save_files(PAGE, tmp_path)
    script = runpy.run_path(str(tmp_path / "post_rewards.py"))

    async def main():
        clock = RealClock()
        store = MemoryStore(StoreConfig(batch_size=2, max_staleness=3), clock, publication(0))
        async with over_http(store, clock) as remote:
            for lease in await store.lease(2):
                awaited = AwaitedReward(within_s=600, key=f"job {lease.attempt.draw}", low=0.0, high=1.0)
                await store.commit(trajectory(lease.attempt, (0,), awaited=awaited))
            hub = tmp_path / "hub.json"
            hub.write_text(json.dumps({"url": remote.url, "token": TOKEN, "run_id": RUN_ID}))
            await asyncio.to_thread(script["reward_all"], hub, lambda key: 0.5 if key == "job 1" else 0.0)
            return [item.trajectory.total_reward for item in await store.take()]

    assert asyncio.run(main()) == [1.0, 1.5]
