"""The prompt stream protocol, prompt identity, and the one rule that keeps held-out prompts out of training.

A stream is a pure function of its configuration, its seed and the draw: it holds no cursor, so nothing has to be saved
to resume it, and prompts are neither skipped nor repeated after a crash (fault J2). Which draws are taken is the
store's knowledge.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import msgspec

from soliton.types import Prompt

HELD_OUT_MODULUS = 8
"""One prompt in this many is held out, chosen by its id: content decides, not the order of draws."""


class PromptStream(Protocol):
    """An endless or finite sequence of prompts for training, and prompts that training never shows."""

    @property
    def num_draws(self) -> int | None:
        """How many draws there are; None for an endless stream."""
        ...

    def at(self, draw: int) -> Prompt:
        """The training prompt of `draw` (>= 0), the same on every call.

        Raises:
            ValueError: a negative draw, or one past `num_draws`.
        """
        ...

    def held_out(self, n: int, seed: int) -> list[Prompt]:
        """`n` different prompts that `at` never returns, a pure function of (n, seed).

        Raises:
            ValueError: `n` is negative or more than there are.
        """
        ...


def make_prompt(content: dict[str, Any]) -> Prompt:
    """Name `content` by its hash: 16 hex digits of blake2b over its JSON with sorted keys."""
    text = msgspec.json.encode(content, order="sorted")
    return Prompt(id=hashlib.blake2b(text, digest_size=8).hexdigest(), content=content)


def is_held_out(prompt: Prompt) -> bool:
    """Whether `prompt` belongs to evaluation: its id modulo `HELD_OUT_MODULUS` is 0."""
    return int(prompt.id, 16) % HELD_OUT_MODULUS == 0
