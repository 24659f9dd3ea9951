"""A worker's engine follows the published versions, and no attempt begins before its lease's version is loaded."""

import asyncio
from pathlib import Path

import torch

from soliton.runtime.clock import VirtualClock
from soliton.runtime.local.worker import LOOK_EVERY_S, FollowedWeights, WorkersStore
from soliton.types import AttemptId, Lease, Publication
from soliton.weights import PublishedVersions, weights_sha256


class RecordingEngine:
    def __init__(self) -> None:
        self.version = 0
        self.loaded: list[tuple[int, float]] = []

    async def load_weights(self, weights, version: int) -> None:
        self.version = version
        self.loaded.append((version, float(weights["w"][0])))


class OneLease:
    def __init__(self, version: int) -> None:
        self._lease = Lease(AttemptId(0), 0.0, version, "worker-0")

    async def lease(self, limit: int, holder: str = "") -> list[Lease]:
        return [self._lease]


class SilentChannel:
    def send(self, event) -> None: ...


def publish(versions: PublishedVersions, version: int) -> None:
    weights = {"w": torch.full((3,), float(version))}
    versions.publish(weights, Publication(version, version - 1, version, weights_sha256(weights)))


def test_a_lease_waits_for_the_weights_that_it_names(tmp_path: Path):  # fault I4
    clock, engine, versions = VirtualClock(0), RecordingEngine(), PublishedVersions(tmp_path)
    weights = FollowedWeights(versions, engine, clock)
    store = WorkersStore(OneLease(2), weights, SilentChannel(), clock)

    async def main() -> None:
        following = asyncio.create_task(weights.run())
        leasing = asyncio.create_task(store.lease(1))
        publish(versions, 1)
        await clock.sleep_until(1.0)
        assert engine.loaded == [(1, 1.0)]
        assert not leasing.done()
        publish(versions, 2)
        await clock.sleep_until(1.0 + 2 * LOOK_EVERY_S)
        assert leasing.done()
        assert engine.loaded == [(1, 1.0), (2, 2.0)]
        following.cancel()

    clock.run(main())


def test_versions_in_between_are_skipped(tmp_path: Path):
    clock, engine, versions = VirtualClock(0), RecordingEngine(), PublishedVersions(tmp_path)
    for version in (1, 2, 5):
        publish(versions, version)

    async def main() -> None:
        following = asyncio.create_task(FollowedWeights(versions, engine, clock).run())
        await clock.sleep_until(1.0)
        following.cancel()

    clock.run(main())
    assert engine.loaded == [(5, 5.0)]
