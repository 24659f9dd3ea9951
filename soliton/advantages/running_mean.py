"""Running means of past rewards as baselines, of each prompt or of all.

Owns: the window and its order. Does not know: tokens, tensors, where rewards come from.
Guarantees: the window is ordered by draw, so the order in which trajectories arrive does not matter; a trajectory's
own reward is never in its baseline, if it is asked for before it is observed.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Scope = Literal["prompt", "global"]
EVERYWHERE = ""


class RunningMean:
    """Mean of the last `window` rewards by draw, and a stated prior where there is none yet.

        b(x) = (1/n) sum of the n <= window newest rewards of x;   prior if n = 0

    Example: window 2, rewards 1, 0, 0 at draws 3, 9, 5 give (0 + 0) / 2, whichever came first.

    Args:
        window: >= 1 rewards.
        scope: "prompt" keeps one window per prompt, "global" one for all.
        prior: baseline before the first reward.

    Raises:
        ValueError: a window below 1.
    """

    def __init__(self, *, window: int, scope: Scope, prior: float) -> None:
        if window < 1:
            raise ValueError(f"window must be >= 1, got {window}")
        self._window = window
        self._scope = scope
        self._prior = prior
        self._rewards: dict[str, list[tuple[int, int, float]]] = {}

    def baseline(self, prompt_id: str) -> float:
        """Expected reward of a prompt, from what was observed."""
        rewards = self._rewards.get(self._key(prompt_id))
        return sum(reward for *_, reward in rewards) / len(rewards) if rewards else self._prior

    def observe(self, prompt_id: str, draw: int, sample: int, reward: float) -> None:
        """Take in one reward; beyond the window the one of the oldest draw goes."""
        rewards = self._rewards.setdefault(self._key(prompt_id), [])
        bisect.insort(rewards, (draw, sample, reward))
        del rewards[: -self._window]

    def state(self) -> dict[str, list[list[float]]]:
        """JSON-able: windows by prompt id ("" for all), each reward as draw, sample, reward."""
        return {key: [list(entry) for entry in rewards] for key, rewards in self._rewards.items()}

    def load_state(self, state: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Take over what `state` returned."""
        self._rewards = {
            key: [(int(draw), int(sample), float(reward)) for draw, sample, reward in rewards]
            for key, rewards in state.items()
        }

    def _key(self, prompt_id: str) -> str:
        return prompt_id if self._scope == "prompt" else EVERYWHERE
