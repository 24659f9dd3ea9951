"""Prompts of the `calculator` task: left-to-right chains of 2-7 operations modulo 100.

Example content: `{"expression": "78-62*3", "answer": 48}`, for (78 - 62) * 3 = 48. There is no operator precedence.
Short chains are more frequent (`decay`), which keeps a trajectory at about 60 tokens in the mean.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from soliton.errors import ConfigError
from soliton.prompts.stream import is_held_out, make_prompt
from soliton.types import Prompt, stable_seed

MODULUS = 100
OPERATORS = "+-*"
MAX_MISSES = 5_000
"""Chains drawn in a row without a new held-out one, after which there are taken to be no more."""


class CalculatorPrompts:
    """A `PromptStream` of chains, pure in its arguments and the draw.

    Args:
        seed: of the training chains.
        num_prompts: size of a finite set; None draws a fresh chain for ever.
        visits: how often each prompt of a finite set is drawn, each visit in another order; None: for ever.
        min_operations, max_operations: length of a chain, in operations.
        decay: weight of a chain one operation longer, relative to the shorter one, in (0, 1]; 1 makes all lengths
            equally likely.

    Raises:
        ConfigError: a value out of its range, or `visits` without `num_prompts`.
    """

    def __init__(
        self,
        seed: int,
        *,
        num_prompts: int | None = None,
        visits: int | None = None,
        min_operations: int = 2,
        max_operations: int = 7,
        decay: float = 0.5,
    ) -> None:
        for name, value in (("num_prompts", num_prompts), ("visits", visits)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}; it must be >= 1, or None for no end")
        if visits is not None and num_prompts is None:
            raise ConfigError(f"visits = {visits} needs a finite set; set num_prompts too, or leave visits out")
        if not 1 <= min_operations <= max_operations:
            raise ConfigError(f"chains of {min_operations} to {max_operations} operations; need 1 <= min <= max")
        if not 0 < decay <= 1:
            raise ConfigError(f"decay = {decay}; it must be in (0, 1]")
        self._seed = seed
        self._num_prompts = num_prompts
        self._visits = visits
        self._lengths = np.arange(min_operations, max_operations + 1)
        weights = decay ** (self._lengths - min_operations)
        self._up_to = np.cumsum(weights) / weights.sum()
        self._order = lru_cache(maxsize=4)(self._shuffled)

    @property
    def num_draws(self) -> int | None:
        """`num_prompts * visits`; None when either is None."""
        if self._num_prompts is None or self._visits is None:
            return None
        return self._num_prompts * self._visits

    def at(self, draw: int) -> Prompt:
        """The training chain of `draw`; see `PromptStream.at`."""
        if draw < 0 or (self.num_draws is not None and draw >= self.num_draws):
            raise ValueError(f"draw {draw} does not exist; draws are 0 .. {self.num_draws or 'endless'} (exclusive)")
        index = draw
        if self._num_prompts is not None:
            visit, position = divmod(draw, self._num_prompts)
            index = self._order(visit)[position]
        rng = np.random.default_rng(stable_seed(self._seed, "calculator", index))
        while is_held_out(prompt := self._chain(rng)):
            pass
        return prompt

    def held_out(self, n: int, seed: int) -> list[Prompt]:
        """`n` different chains whose ids are held out; see `PromptStream.held_out`."""
        if n < 0:
            raise ValueError(f"cannot hold out {n} prompts; ask for 0 or more")
        rng = np.random.default_rng(stable_seed(seed, "calculator", "held_out"))
        found: dict[str, Prompt] = {}
        misses = 0
        while len(found) < n:
            prompt = self._chain(rng)
            if is_held_out(prompt) and prompt.id not in found:
                found[prompt.id] = prompt
                misses = 0
            elif (misses := misses + 1) > MAX_MISSES:
                raise ValueError(
                    f"found only {len(found)} of {n} different held-out chains; ask for fewer or longer ones"
                )
        return list(found.values())

    def _shuffled(self, visit: int) -> list[int]:
        rng = np.random.default_rng(stable_seed(self._seed, "calculator", "visit", visit))
        order: list[int] = rng.permutation(self._num_prompts or 0).tolist()
        return order

    def _chain(self, rng: np.random.Generator) -> Prompt:
        num_operations = int(self._lengths[np.searchsorted(self._up_to, rng.random(), side="right")])
        operands = rng.integers(0, MODULUS, num_operations + 1).tolist()
        operators = [OPERATORS[i] for i in rng.integers(0, len(OPERATORS), num_operations)]
        answer = operands[0]
        expression = str(operands[0])
        for operator, operand in zip(operators, operands[1:], strict=True):
            answer = {"+": answer + operand, "-": answer - operand, "*": answer * operand}[operator] % MODULUS
            expression += f"{operator}{operand}"
        return make_prompt({"expression": expression, "answer": answer})
