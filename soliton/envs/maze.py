"""The `maze` task: find the exit of a maze of which only the next cell in each direction is seen.

    user       .#.# 3,0     north east south west of the start: '.' open, '#' wall, '!' the exit; how far the exit is
    assistant  n            one of n, e, s, w
    user       .##. 3,1
    ...                     reward 1 at the exit; none when the steps are used up

A step into a wall stays where it is and costs its turn; anything but a direction ends the episode with reward 0 and
`info["malformed"] = 1`. An episode may take `2 * shortest + 4` steps, so wandering does not pay. Prompts are drawn by
`item`: sizes 4 to 7, a wall in some places, exits 5 to 14 steps away, so that difficulty varies. There is no chance in
an episode.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from soliton.envs.base import BaseEnvironment
from soliton.envs.environment import StepResult

MOVES = {"n": (0, -1), "e": (1, 0), "s": (0, 1), "w": (-1, 0)}
MIN_STEPS, MAX_STEPS = 5, 13
"""Shortest ways that a maze may have; with the slack below an episode takes 5 to 30 turns."""
WALL_SHARE = 0.25

Cell = tuple[int, int]


class Maze(BaseEnvironment):
    """One episode; see the module's docstring for its rules."""

    @staticmethod
    def item(rng: np.random.Generator) -> dict[str, Any]:
        """A maze whose exit can be reached: rows of '.' and '#', start and exit as [x, y]."""
        while True:
            found = draw_maze(rng, int(rng.integers(4, 8)), WALL_SHARE, MIN_STEPS, MAX_STEPS)
            if found is not None:
                return found

    def opening(self) -> str:
        """The view from the start."""
        self._rows: list[str] = self.content["rows"]
        self._at: Cell = _cell(self.content["start"])
        self._exit: Cell = _cell(self.content["exit"])
        self._distances = distances(self._rows, self._exit)
        self._left = 2 * self._distances[self._at] + 4
        return self._view()

    def act(self, action: str) -> StepResult:
        """Move, if the way is open."""
        if action not in MOVES:
            return self.end(0.0, malformed=1.0)
        self._left -= 1
        self._at = self._after(action)
        if self._at == self._exit:
            return self.end(1.0)
        return self.end(0.0) if self._left == 0 else self.say(self._view())

    def expert(self, rng: np.random.Generator, noise: float) -> str:
        """A step of a shortest way, or with probability `noise` any direction."""
        if rng.random() < noise:
            return "nesw"[int(rng.integers(4))]
        return min(MOVES, key=lambda move: self._distances[self._after(move)])

    def _after(self, move: str) -> Cell:
        cell = self._at[0] + MOVES[move][0], self._at[1] + MOVES[move][1]
        return cell if cell in self._distances else self._at

    def _view(self) -> str:
        x, y = self._at
        seen = "".join(self._seen((x + dx, y + dy)) for dx, dy in MOVES.values())
        return f"{seen} {self._exit[0] - x},{self._exit[1] - y}"

    def _seen(self, cell: Cell) -> str:
        if cell == self._exit:
            return "!"
        return "." if cell in self._distances else "#"


def draw_maze(
    rng: np.random.Generator, size: int, wall_share: float, shortest: int, longest: int
) -> dict[str, Any] | None:
    """An item with a shortest way of `shortest` to `longest` steps; None if what was drawn has none."""
    rows = ["".join("#" if rng.random() < wall_share else "." for _ in range(size)) for _ in range(size)]
    cells = [(x, y) for y in range(size) for x in range(size) if rows[y][x] == "."]
    if len(cells) < 2:
        return None
    start, goal = (cells[i] for i in rng.choice(len(cells), 2, replace=False).tolist())
    if not shortest <= distances(rows, goal).get(start, 0) <= longest:
        return None
    return {"rows": rows, "start": list(start), "exit": list(goal)}


def distances(rows: list[str], goal: Cell) -> dict[Cell, int]:
    """Steps to `goal` from every cell that can reach it."""
    found = {goal: 0}
    line = deque([goal])
    while line:
        x, y = line.popleft()
        for dx, dy in MOVES.values():
            cell = (x + dx, y + dy)
            inside = 0 <= cell[0] < len(rows) and 0 <= cell[1] < len(rows)
            if inside and rows[cell[1]][cell[0]] == "." and cell not in found:
                found[cell] = found[(x, y)] + 1
                line.append(cell)
    return found


def _cell(pair: list[int]) -> Cell:
    return pair[0], pair[1]
