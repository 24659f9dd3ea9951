"""A store behind a real hub on loopback, for tests that do not care where a store is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from soliton.store.client import HubStore
from soliton.store.hub import hub_app
from soliton.store.limits import ClientLimits, HubLimits
from soliton.store.serving import serve
from soliton.types import Clock

TOKEN = "token-of-the-tests"
RUN_ID = "run-of-the-tests"


class RemoteStore:
    """The five calls go over HTTP, those of the run's owner straight to the store, as in the owner's process."""

    def __init__(self, hub: HubStore, owned: Any, url: str) -> None:
        self._owned = owned
        self.url = url
        self.lease, self.commit = hub.lease, hub.commit
        self.take, self.finish_step, self.status = hub.take, hub.finish_step, hub.status

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)


@contextlib.asynccontextmanager
async def over_http(
    store: Any, clock: Clock, holder: str = "", hub: HubLimits | None = None, client: ClientLimits | None = None
) -> AsyncIterator[RemoteStore]:
    """Serve `store` and give the same store as a client of that hub sees it."""
    app = hub_app(store, token=TOKEN, run_id=RUN_ID, limits=hub)
    async with serve(app) as url, HubStore(url, TOKEN, RUN_ID, holder, clock, client) as remote:
        yield RemoteStore(remote, store, url)
