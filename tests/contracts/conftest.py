"""The contract of a store runs over every implementation."""

from __future__ import annotations

from typing import Any

import pytest

from soliton.store.config import StoreConfig
from tests.contracts.stores import IMPLEMENTATIONS, Body
from tests.fakes.trajectories import publication


@pytest.fixture(params=IMPLEMENTATIONS)
def run(request):
    def run_body(body: Body, first_step: int | None = 0, **config: Any) -> None:
        """`first_step` None: no policy is published yet."""
        settings = StoreConfig(**{"batch_size": 2, "max_staleness": 1} | config)
        initial = None if first_step is None else publication(first_step, first=first_step)
        IMPLEMENTATIONS[request.param](settings, initial, body)

    return run_body
