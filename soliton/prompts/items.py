"""Prompts of any task: from a list of items, or from a function that draws one.

Example item: `{"prompt": "2+2", "answer": "4"}`. Whether an item trains or is held out is decided by its content's
hash alone (`is_held_out`), so a list that grows keeps every item on its side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from soliton.errors import ConfigError
from soliton.prompts.stream import is_held_out, make_prompt
from soliton.types import Prompt, stable_seed

Item = dict[str, Any]
MAX_REMEMBERED = 4096
"""Items of a finite set that are kept after they were drawn."""
MAX_MISSES = 5_000
"""Items drawn in a row without a new one, after which there are taken to be no more."""


class ListedPrompts:
    """An endless `PromptStream` over a finite list: every visit shows each training item once, in another order.

    Args:
        items: contents; equal ones count once.
        seed: of the order.
        num_prompts: take only so many training items; None takes all.

    Raises:
        ConfigError: an item that is no mapping of JSON values, or no training item.
    """

    def __init__(self, items: Sequence[Item], *, seed: int, num_prompts: int | None = None) -> None:
        prompts = list({prompt.id: prompt for prompt in map(checked_prompt, items)}.values())
        self._held_out = [prompt for prompt in prompts if is_held_out(prompt)]
        self._training = [prompt for prompt in prompts if not is_held_out(prompt)][:num_prompts]
        if not self._training:
            raise ConfigError(
                f"prompts: got {len(prompts)} different items, of which {len(self._held_out)} are held out and none "
                "is left to train on; add items"
            )
        self._seed = seed
        self._order = lru_cache(maxsize=4)(self._shuffled)

    @property
    def num_draws(self) -> int | None:
        """None: the list is shown again and again."""
        return None

    def at(self, draw: int) -> Prompt:
        """The training item of `draw`; see `PromptStream.at`."""
        visit, position = divmod(_checked_draw(draw), len(self._training))
        return self._training[self._order(visit)[position]]

    def held_out(self, n: int, seed: int) -> list[Prompt]:
        """`n` of the held-out items; see `PromptStream.held_out`."""
        if not 0 <= n <= len(self._held_out):
            total = len(self._held_out) + len(self._training)
            raise ValueError(
                f"cannot hold out {n} prompts: of these {total} items {len(self._held_out)} are held out (about one in "
                "eight, chosen by content); ask for so many at most, or add items"
            )
        order = np.random.default_rng(stable_seed(seed, "items", "held_out")).permutation(len(self._held_out))
        return [self._held_out[i] for i in order[:n].tolist()]

    def _shuffled(self, visit: int) -> list[int]:
        rng = np.random.default_rng(stable_seed(self._seed, "items", "visit", visit))
        order: list[int] = rng.permutation(len(self._training)).tolist()
        return order


class DrawnPrompts:
    """A `PromptStream` over a function that draws an item; pure in its arguments and the draw.

    Args:
        draw_item: a content from a seeded generator and nothing else.
        seed: of the training items.
        num_prompts: show only the first so many, again and again, every visit in another order; None: a fresh one per
            draw for ever.
    """

    def __init__(
        self, draw_item: Callable[[np.random.Generator], Item], *, seed: int, num_prompts: int | None = None
    ) -> None:
        self._draw_item = draw_item
        self._seed = seed
        self._num_prompts = num_prompts
        self._order = lru_cache(maxsize=4)(self._shuffled)
        # What is shown again is not drawn again: a maze takes a millisecond.
        self._item_of_set = lru_cache(MAX_REMEMBERED)(self._item)
        self._held_out = lru_cache(maxsize=4)(self._drawn_held_out)

    @property
    def num_draws(self) -> int | None:
        """None: draws never end."""
        return None

    def at(self, draw: int) -> Prompt:
        """The training item of `draw`; see `PromptStream.at`."""
        if self._num_prompts is None:
            return self._item(_checked_draw(draw))
        visit, position = divmod(_checked_draw(draw), self._num_prompts)
        return self._item_of_set(self._order(visit)[position])

    def held_out(self, n: int, seed: int) -> list[Prompt]:
        """`n` different held-out items; see `PromptStream.held_out`."""
        if n < 0:
            raise ValueError(f"cannot hold out {n} prompts; ask for 0 or more")
        return list(self._held_out(n, seed))

    def _item(self, index: int) -> Prompt:
        rng = np.random.default_rng(stable_seed(self._seed, "item", index))
        for _ in range(MAX_MISSES):
            prompt = checked_prompt(self._draw_item(rng))
            if not is_held_out(prompt):
                return prompt
        raise ConfigError(f"prompts: {MAX_MISSES} items in a row are held out; the function must draw different items")

    def _drawn_held_out(self, n: int, seed: int) -> tuple[Prompt, ...]:
        rng = np.random.default_rng(stable_seed(seed, "item", "held_out"))
        found: dict[str, Prompt] = {}
        misses = 0
        while len(found) < n:
            prompt = checked_prompt(self._draw_item(rng))
            if is_held_out(prompt) and prompt.id not in found:
                found[prompt.id] = prompt
                misses = 0
            elif (misses := misses + 1) > MAX_MISSES:
                raise ValueError(
                    f"cannot hold out {n} prompts: the function draws only {len(found)} different held-out items "
                    "(about one in eight of all it can draw); ask for so many at most, or let it draw more"
                )
        return tuple(found.values())

    def _shuffled(self, visit: int) -> list[int]:
        rng = np.random.default_rng(stable_seed(self._seed, "item", "visit", visit))
        order: list[int] = rng.permutation(self._num_prompts or 0).tolist()
        return order


def checked_prompt(item: object) -> Prompt:
    """A prompt of `item`.

    Raises:
        ConfigError: it is no mapping from names to JSON values.
    """
    if not isinstance(item, dict) or not all(isinstance(name, str) for name in item):
        raise ConfigError(f"prompts: an item is a dict with text keys such as {{'prompt': '2+2'}}, got {item!r}")
    try:
        return make_prompt(item)
    except TypeError as error:
        raise ConfigError(
            f"prompts: the item {item!r} cannot be written as JSON ({error}); use text, int(...), float(...), bool, "
            "lists and dicts"
        ) from error


def _checked_draw(draw: int) -> int:
    if draw < 0:
        raise ValueError(f"draw {draw} does not exist; draws are >= 0")
    return draw
