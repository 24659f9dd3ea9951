"""The `mixed_maze` task: mazes of very different difficulty, so that a critic has something to know.

As `maze`, with prompts of three kinds, equally frequent: a near exit in an open field, a near one among walls, and a
far one among walls. How far the exit is stands in the first view, so the chance of success can be told from the prompt.
An episode takes 5 to 20 turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from soliton.envs.maze import Maze, draw_maze

MAX_TURNS = 20


@dataclass(frozen=True)
class Kind:
    """One kind of maze.

    Attributes:
        size: cells on a side.
        wall_share: how many of them are walls.
        shortest, longest: steps that the shortest way may have.
    """

    size: int
    wall_share: float
    shortest: int
    longest: int


KINDS = (Kind(7, 0.0, 5, 6), Kind(6, 0.25, 5, 8), Kind(9, 0.25, 9, 14))


class MixedMaze(Maze):
    """One episode; see the module's docstring."""

    @staticmethod
    def item(rng: np.random.Generator) -> dict[str, Any]:
        """A maze of any kind, as `Maze.item` makes it."""
        kind = KINDS[int(rng.integers(len(KINDS)))]
        while True:
            found = draw_maze(rng, kind.size, kind.wall_share, kind.shortest, kind.longest)
            if found is not None:
                return found

    def opening(self) -> str:
        """The view from the start."""
        view = super().opening()
        self._left = min(self._left, MAX_TURNS)
        return view
