"""Judges: whether a text meets criteria, each of them yes or no.

    criteria = (Criterion("topic", "mentions rain", lambda text: "rain" in text),)
    await RuleJudge().verdict("Write about rain.", "rain falls", criteria)      {"topic": True}

A criterion says what must hold twice: in words, for a judge that reads, and as a rule, for the default judge, which is
offline and deterministic. A judge either knows at once, or answers with an `AwaitedReward`: somebody outside will tell.

A judge that cannot be reached or gives no verdict raises `WorldError`: the attempt is dropped and counted under its
reason, and never earns 0 for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from soliton.awaited import AwaitedReward

Verdict = dict[str, bool]
"""Name of each criterion -> whether the text meets it."""


class Criterion(NamedTuple):
    """One thing that a text must do.

    Attributes:
        name: in verdicts; one word.
        says: what must hold, for a reader.
        rule: the same as a function of the text.
    """

    name: str
    says: str
    rule: Callable[[str], bool]


class Judge(Protocol):
    """Whoever judges."""

    async def verdict(self, task: str, text: str, criteria: Sequence[Criterion]) -> Verdict | AwaitedReward:
        """Whether `text`, an answer to `task`, meets each of `criteria`.

        Raises:
            WorldError: no verdict could be had (judge_unavailable, bad_verdict).
        """
        ...


class JudgeConfig(BaseModel):
    """Who judges, in environments that ask a judge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["rules", "llm", "outside"] = "rules"
    """`rules`: the environment's own rules, offline and deterministic. `llm`: a model behind an OpenAI-compatible
    endpoint. `outside`: nobody in the run; rewards come by `POST /v1/reward`, as from the user of a deployed system."""
    url: str = "http://127.0.0.1:8000/v1"
    """Base address of the endpoint of `llm`; requests go to `URL/chat/completions`."""
    model: str | None = None
    """The model that `llm` asks for; required there."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key of `llm`; None sends none. A key in a recipe would be copied
    into every run folder, so there is no other way to give it."""
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Sampling temperature of `llm`; None: the server's own. 0 gives the steadiest verdicts where it is accepted."""
    timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Seconds that one request of `llm` may take."""
    max_requests: int = Field(default=4, ge=1)
    """Requests of `llm` for one text, until a verdict comes; after the last one the attempt fails with its reason."""
    first_pause_s: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Pause of `llm` before its second request, in seconds of the run's clock; doubled with each further one."""
    within_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """Seconds within which the reward of `outside` must come; later the attempt is dropped."""


class RuleJudge:
    """The criteria's own rules."""

    async def verdict(self, task: str, text: str, criteria: Sequence[Criterion]) -> Verdict:
        """Each rule, applied to `text`."""
        del task
        return {criterion.name: criterion.rule(text) for criterion in criteria}


class OutsideJudge:
    """Nobody here: the reward comes from outside, 0 to 1. The key is JSON: the task, the text, what is asked of it.

    Args:
        within_s: how long it is awaited.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s

    async def verdict(self, task: str, text: str, criteria: Sequence[Criterion]) -> AwaitedReward:
        """What to wait for."""
        asked = {criterion.name: criterion.says for criterion in criteria}
        key = json.dumps({"task": task, "text": text, "criteria": asked})
        return AwaitedReward(within_s=self._within_s, key=key, low=0.0, high=1.0)
