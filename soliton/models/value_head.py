"""From the critic's linear output to a value: as it is, or bounded.

Owns: the three maps and what they are called on disk. Does not know: losses. Guarantees: a map is increasing, and 0 is
in its range or is its middle: a new critic, whose output is 0 everywhere, starts from a sensible value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from soliton.errors import ConfigError

HeadName = Literal["linear", "sigmoid", "arctan"]


@dataclass(frozen=True)
class ValueHead:
    """Values V from outputs z.

    | name      | V                                 | range     | V at z = 0 |
    |-----------|-----------------------------------|-----------|------------|
    | `linear`  | z                                 | any       | 0          |
    | `sigmoid` | 1 / (1 + exp(-z))                 | (0, 1)    | 1/2        |
    | `arctan`  | (2 B / pi) arctan(pi z / (2 B))   | (-B, B)   | 0          |

    The arctangent has slope 1 at 0 and goes to its bounds as 1 / z, so that its gradient dies slowly
    (BPCO, https://arxiv.org/abs/2608.23566; the form is our choice).

    Attributes:
        name: which.
        bound: B > 0, in units of reward; 1 for the other two, which have none.
    """

    name: HeadName = "linear"
    bound: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in get_args(HeadName) or not 0 < self.bound < math.inf:
            raise ValueError(
                f"a value head is one of {get_args(HeadName)} with a finite bound > 0, got {self.name!r}, {self.bound}"
            )

    def values(self, outputs: Tensor) -> Tensor:
        """V of outputs of any shape, same shape and dtype, with gradient."""
        return _MAPS[self.name](outputs, self.bound)

    @property
    def bounds(self) -> tuple[float, float]:
        """Of V, not reached by the bounded ones; targets beyond them cannot be learned."""
        return _RANGES.get(self.name, (-self.bound, self.bound))

    def as_data(self) -> dict[str, Any]:
        """What `from_data` reads; for a manifest."""
        return {"name": self.name, "bound": self.bound}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ValueHead:
        """Of a manifest.

        Raises:
            ConfigError: a head that this version does not know.
        """
        try:
            return cls(data["name"], float(data["bound"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"a critic with the value head {dict(data)} cannot be read: {error}") from error


LINEAR = ValueHead()


def _linear(outputs: Tensor, bound: float) -> Tensor:
    del bound
    return outputs


def _sigmoid(outputs: Tensor, bound: float) -> Tensor:
    del bound
    return outputs.sigmoid()


def _arctan(outputs: Tensor, bound: float) -> Tensor:
    scale = 2.0 * bound / math.pi
    return (outputs / scale).atan() * scale


_RANGES: dict[HeadName, tuple[float, float]] = {"linear": (-math.inf, math.inf), "sigmoid": (0.0, 1.0)}
_MAPS: dict[HeadName, Callable[[Tensor, float], Tensor]] = {"linear": _linear, "sigmoid": _sigmoid, "arctan": _arctan}
