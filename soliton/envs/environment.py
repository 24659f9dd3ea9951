"""The environment protocol: three coroutines and plain messages.

An environment never sees a token, a log-prob or a version. One instance serves one episode. It must be a pure
function of `(prompt, seed)`, the actions and the phase of each (`surroundings.py`) if it is to run in the bit-exact
`inline` runtime, where episodes are parked at each checkpoint and rebuilt by replaying their recorded actions.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from soliton.awaited import AwaitedReward
from soliton.types import Prompt


class Message(msgspec.Struct, frozen=True):
    """One chat message, as `apply_chat_template` understands it.

    Attributes:
        role: "system", "user", "tool" or (in demonstrations) "assistant".
        content: text.
    """

    role: str
    content: str


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The environment's answer to one action.

    Attributes:
        messages: what the model sees next; may be empty when the episode ends.
        reward: earned by this action; finite. 0.0 means "earned nothing", never "unknown".
        terminated: the task is over.
        truncated: the environment's own limit cut the episode.
        info: numbers for metrics.
        awaited: the rest of the reward comes later, from outside; only when `terminated`.
    """

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, float] = {}
    awaited: AwaitedReward | None = None


class Environment(Protocol):
    """One episode of a task."""

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Start the episode; returns the first messages (system and user)."""
        ...

    async def step(self, action: str) -> StepResult:
        """Apply one action (the decoded completion without its stop token or string)."""
        ...

    async def close(self) -> None:
        """Free what the episode holds. Called exactly once, also after a failure."""
        ...
