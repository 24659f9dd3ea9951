"""docs/guides/rewards-from-outside.md: its environment ends without a reward, its script posts one."""

import asyncio
import json
import runpy
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from soliton.awaited import AwaitedReward
from soliton.config import load_config
from soliton.prompts.stream import make_prompt
from soliton.runtime.clock import RealClock
from soliton.runtime.obstacles import refuse_obstacles
from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
from tests.fakes.hub import RUN_ID, TOKEN, over_http
from tests.fakes.trajectories import publication, trajectory
from tests.guides.guide_pages import commands, save_files

PAGE = "rewards-from-outside.md"


def test_the_pages_environment_ends_with_its_reward_awaited(tmp_path: Path):

    save_files(PAGE, tmp_path)
    namespace = runpy.run_path(str(tmp_path / "essay.py"))

    async def play():
        essay = namespace["Essay"]()
        await essay.reset(make_prompt({"prompt": "Write 3 words."}), 0)
        return await essay.step("one two three")

    result = asyncio.run(play())
    assert result.terminated
    assert result.awaited == AwaitedReward(within_s=600, key="Write 3 words.", low=0.0, high=1.0)


def test_the_pages_recipe_can_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert ["train", "essay.toml"] in commands(PAGE)
    refuse_obstacles(load_config(tmp_path / "essay.toml"), resumed=False)


@pytest.mark.slow
def test_the_pages_run_trains_on_rewards_that_the_pages_script_posts(tmp_path: Path):
    save_files(PAGE, tmp_path)
    script = runpy.run_path(str(tmp_path / "post_rewards.py"))
    hub = tmp_path / "runs" / "essay" / "hub.json"
    small = ["train.steps=2", "train.batch_size=4"]
    command = [sys.executable, "-m", "soliton", "train", "essay.toml", "--quiet", *small]
    with subprocess.Popen(command, cwd=tmp_path) as run:
        while run.poll() is None:
            time.sleep(0.2)
            with suppress(OSError):  # the hub is not there yet, or no longer
                script["reward_all"](hub, lambda key: len(key) % 2)
    assert run.returncode == 0
    summary = json.loads((tmp_path / "runs" / "essay" / "summary.json").read_text())
    assert summary["ledger"]["trained"] >= 8  # a batch of equal rewards moves nothing and is no step


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
