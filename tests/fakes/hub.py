"""A store behind a real hub on loopback, for tests that do not care where a store is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from soliton.errors import RunError
from soliton.store.client import HubStore
from soliton.store.hub import hub_app
from soliton.store.limits import ClientLimits, HubLimits
from soliton.store.rewards import TooEarlyError
from soliton.store.serving import serve
from soliton.types import AttemptId, Clock

TOKEN = "token-of-the-tests"
RUN_ID = "run-of-the-tests"


class RemoteStore:
    """The five calls go over HTTP, those of the run's owner straight to the store, as in the owner's process."""

    def __init__(self, hub: HubStore, owned: Any, url: str) -> None:
        self._owned = owned
        self.url = url
        self.lease, self.commit = hub.lease, hub.commit
        self.take, self.finish_step, self.status = hub.take, hub.finish_step, hub.status

    async def reward(self, attempt: AttemptId, value: float) -> str:
        """As a grader outside posts it."""
        status, answer = await post_reward(self.url, {"attempt": str(attempt), "reward": value})
        if status == 200:
            return answer["result"]
        assert answer["result"] == "refused"
        raise {409: RunError, 422: ValueError, 400: ValueError, 503: TooEarlyError}[status](answer["reason"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)


async def post_reward(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer to a posted reward."""
    sent = {"authorization": f"Bearer {TOKEN}", "x-soliton-run": RUN_ID} | headers
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/reward", data=data, headers=sent) as answer:
        text = await answer.read()
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text


@contextlib.asynccontextmanager
async def over_http(
    store: Any, clock: Clock, holder: str = "", hub: HubLimits | None = None, client: ClientLimits | None = None
) -> AsyncIterator[RemoteStore]:
    """Serve `store` and give the same store as a client of that hub sees it."""
    app = hub_app(store, token=TOKEN, run_id=RUN_ID, limits=hub)
    async with serve(app) as url, HubStore(url, TOKEN, RUN_ID, holder, clock, client) as remote:
        yield RemoteStore(remote, store, url)
