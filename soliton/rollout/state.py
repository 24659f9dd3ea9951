"""What an unfinished episode is: everything needed to go on in another process, and nothing that lives.

Worked example, the calculator episode `78-62*3` parked while the tool computes its second step:

    phase "stepping"   tokens <user>78-62*3<end><model>78-62<end><tool>16*3<end><model>16*3<end>
    turns [Turn(action="78-62", began_s=1.0, messages=(tool "16*3",), reward=0.0), ...]
    pending Pending(action="16*3", began_s=3.5)

The environment itself is not saved: it is rebuilt by `reset` and by replaying `turns`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from soliton.awaited import AwaitedReward
from soliton.engines.engine import Completion
from soliton.envs.environment import Message
from soliton.rollout.renderer import Rendered
from soliton.types import NO_VERSION, Lease, Role

Phase = Literal["fresh", "generating", "stepping"]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One finished step of the environment, as recorded: the cleaned messages, not the raw ones.

    Attributes:
        action: the text handed to the environment.
        began_s: clock time at which the step began; simulated latencies are measured from here.
        messages, reward, terminated, truncated, awaited: the checked `StepResult`.
    """

    action: str
    began_s: float
    messages: tuple[Message, ...]
    reward: float
    terminated: bool
    truncated: bool
    awaited: AwaitedReward | None = None


class Pending(msgspec.Struct, frozen=True):
    """A step that the environment has not answered yet."""

    action: str
    began_s: float


class EpisodeState(msgspec.Struct, kw_only=True):
    """An episode between two awaits. `msgspec.msgpack` writes and reads it without loss.

    Attributes:
        lease: the attempt and when it was issued.
        prompt_id: `Prompt.id`; the prompt itself comes from the stream again.
        phase: "fresh" (nothing has happened), "generating" (the action from `action_start` on may be partial) or
            "stepping" (`pending` waits for the environment).
        token_ids, roles, logprobs, versions: one entry per token; NaN and -1 where nothing was sampled.
        action_start: index of the first token of the action being generated.
        reward_positions, reward_values: one entry per finished step.
        opening: what `reset` returned, cleaned.
        turns: finished steps.
        pending: the step in progress; None outside "stepping".
        started_s: clock time of the first `run`; None while fresh.
        generating_s, tool_wait_s: time waited so far.
        info: numbers the environment reported (the last value of each name wins), and `observations_cut`,
            `observations_cleaned`: how many messages were shortened or had undecodable characters replaced.
    """

    lease: Lease
    prompt_id: str
    phase: Phase = "fresh"
    token_ids: list[int] = []
    roles: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    action_start: int = 0
    reward_positions: list[int] = []
    reward_values: list[float] = []
    opening: tuple[Message, ...] = ()
    turns: list[Turn] = []
    pending: Pending | None = None
    started_s: float | None = None
    generating_s: float = 0.0
    tool_wait_s: float = 0.0
    info: dict[str, float] = {}

    def append_unsampled(self, rendered: Rendered) -> None:
        """Append template and observation tokens: no log-prob, no version."""
        assert Role.ACTION not in rendered.roles
        self.token_ids += rendered.token_ids
        self.roles += rendered.roles
        self.logprobs += [float("nan")] * len(rendered.token_ids)
        self.versions += [NO_VERSION] * len(rendered.token_ids)

    def append_sampled(self, completion: Completion) -> None:
        """Append tokens that the engine sampled, verbatim."""
        self.token_ids += completion.token_ids
        self.roles += [Role.ACTION.value] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        self.versions += completion.versions
