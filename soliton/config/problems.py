"""What is wrong with a configuration, as data: which keys it is about and what to tell the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One violation.

    Attributes:
        keys: dotted keys it is about, e.g. ("train.batch_size", "method.group_size").
        text: what, the value got, what is allowed, what to do.
    """

    keys: tuple[str, ...]
    text: str

    def touches(self, keys: Iterable[str]) -> bool:
        """Whether it is about one of `keys`, about a table that holds one, or about an entry of one."""
        return any(
            mine == other or mine.startswith(f"{other}.") or other.startswith(f"{mine}.")
            for mine in self.keys
            for other in keys
        )


class CombinationError(ValueError):
    """Keys that are valid each and contradict each other.

    Args:
        problems: every contradiction, at least one.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.text for problem in problems))
        self.problems = problems
