"""`/v1/reward`: whoever grades from outside lists what awaits its reward, and posts rewards. JSON, for any language.

    GET    what awaits its reward
    POST   {"attempt": "d3s0a0", "reward": 1.0}

The guard of the hub decides who may call. Guarantees: a reward reaches exactly the attempt it names, once; a
refused one has changed nothing (fault L5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from soliton.errors import RunError, StorageFullError
from soliton.store import wire
from soliton.store.rewards import RewardAck, TooEarlyError
from soliton.types import AttemptId, Trajectory


class RewardedStore(Protocol):
    """A store that takes rewards."""

    async def reward(self, attempt: AttemptId, value: float) -> RewardAck:
        """The reward of an attempt that awaits it has come."""
        ...

    def awaiting_rewards(self) -> list[tuple[Trajectory, float]]:
        """The trajectories that await their reward, and for how many more seconds each will."""
        ...


class RewardRoutes:
    """The two routes.

    Args:
        store: takes the rewards.
        read_body: reads a request's body, no further than the hub allows.
        retry_after: headers of an answer that says "come again".
    """

    def __init__(
        self, store: RewardedStore, read_body: Callable[[Request], Awaitable[bytes]], retry_after: dict[str, str]
    ) -> None:
        self._store = store
        self._read_body = read_body
        self._retry_after = retry_after

    async def awaiting(self, _: Request) -> Response:
        """A list of `wire.AwaitingAnswer`."""
        answers = []
        for trajectory, seconds_left in self._store.awaiting_rewards():
            awaited = trajectory.awaited
            assert awaited is not None
            answers.append(
                wire.AwaitingAnswer(
                    attempt=str(trajectory.attempt),
                    key=awaited.key,
                    prompt_id=trajectory.prompt_id,
                    seconds_left=round(seconds_left, 3),
                    low=awaited.low,
                    high=awaited.high,
                )
            )
        return _json(200, answers)

    async def reward(self, request: Request) -> Response:
        """200 accepted or repeated, 400 no such request, 422 no such reward, 409 refused, 503 come again."""
        body = await self._read_body(request)
        try:
            ask = msgspec.json.decode(body, type=wire.RewardRequest)
            attempt = ask.attempt_id()
        except ValueError as error:  # msgspec's are ValueErrors, too
            return _refused(400, f'{error}; expected {{"attempt": "d3s0a0", "reward": 1.0}}')
        try:
            return _json(200, wire.RewardAnswer(await self._store.reward(attempt, ask.reward)))
        except ValueError as error:
            return _refused(422, str(error))
        except (TooEarlyError, StorageFullError) as error:
            return _refused(503, str(error), self._retry_after)
        except RunError as error:
            return _refused(409, str(error))


def _json(status: int, record: object, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(record), status, headers, "application/json")


def _refused(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return _json(status, wire.RewardAnswer("refused", reason), headers)
