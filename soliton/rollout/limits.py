"""How far an episode may go. Reaching a limit truncates it; it keeps the reward it has."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Limits of one episode.

    Attributes:
        max_turns: actions handed to the environment.
        max_tokens: whole context, prompt and observations included. A prompt or an observation that leaves no room
            for one more token is not appended.
        max_turn_tokens: sampled tokens of one action. An action cut here is not handed to the environment.
        time_limit_s: seconds of the clock from the start of the episode, tool waits included; None: no limit.
        step_timeout_s: seconds of the clock that the environment may take for one answer, after which the attempt
            has failed; None: no limit.
        max_observation_chars: a longer message is cut, with a visible marker.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_turns: int = Field(default=16, ge=1)
    max_tokens: int = Field(default=256, ge=2)
    max_turn_tokens: int = Field(default=32, ge=1)
    time_limit_s: float | None = Field(default=None, gt=0)
    step_timeout_s: float | None = Field(default=None, gt=0)
    max_observation_chars: int = Field(default=4096, ge=1)
