"""The three kinds of failure, and who each one is for.

* `ConfigError`: a mistake of the user, found before anything loads. The message says what, the value got,
  what is allowed and what to do.
* `WorldError`: a failure of the world (environment, tool, engine, grader). It carries a closed reason and becomes
  data on a trajectory, never a reward of 0.
* `RunError`: the run cannot go on honestly (non-finite numbers, a violated ledger, a damaged checkpoint).

Our own mistakes are assertions.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SolitonError(Exception):
    """Base of every error that Soliton raises on purpose."""


class ConfigError(SolitonError):
    """A mistake in a recipe, an override or a call: what, the value got, what is allowed, what to do."""


class RunError(SolitonError):
    """The run stops here: going on would give wrong or dishonest results. The message names step and numbers."""


class StorageFullError(RunError):
    """No space is left where the store writes. Nothing was recorded: the same call works once there is space."""


class Interrupted(SolitonError):  # noqa: N818  (a wish of the user, not a failure)
    """The user asked the run to stop, and it did: the step is finished and the checkpoint written.

    Attributes:
        exit_code: of the command.
    """

    def __init__(self, cause: str, exit_code: int) -> None:
        super().__init__(cause)
        self.exit_code = exit_code


class WorldError(SolitonError):
    """A failure of the world, turned into data at one boundary (`soliton.rollout.episode`).

    Attributes:
        reason: a member of `soliton.types.DropReason`, as its string value.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: `; did you mean 'sao'?`, or "" if nothing known resembles it."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
