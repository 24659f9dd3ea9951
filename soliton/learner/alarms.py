"""Non-finite numbers stop the run, with a message that says where (fault C11).

Guarantees: nothing that failed a check here reaches an optimiser step, a checkpoint or a publication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.errors import RunError

SHOWN = 8
"""How many numbers or ids one message lists."""


@dataclass(frozen=True)
class Scene:
    """Where a check happens: what names it in the message of an alarm.

    Attributes:
        what: stage and number, for instance "step 12".
        names: one per sequence of the batch, in packed order: attempt ids in RL, numbers of examples in SFT.
    """

    what: str
    names: tuple[str, ...]

    def require_finite(self, quantity: str, numbers: Tensor, segments: Tensor | None = None) -> None:
        """Check `numbers` (any shape).

        Args:
            quantity: its name in the message.
            numbers: what to check.
            segments: int64 [n] sequence of each of the n numbers; None blames the whole batch.

        Raises:
            RunError: some number is NaN or infinite.
        """
        finite = torch.isfinite(numbers.detach())
        if bool(finite.all()):
            return
        bad = numbers.detach()[~finite].flatten()
        if segments is None:
            involved: Sequence[str] = self.names
        else:
            involved = [self.names[i] for i in sorted(set(segments[~finite].tolist()))]
        raise RunError(
            f"{self.what}: {quantity} is not finite ({len(bad)} of {numbers.numel()}: "
            f"{_listed([f'{number:g}' for number in bad[:SHOWN].tolist()], len(bad))}); "
            f"trajectories: {_listed(list(involved), len(involved))}. Nothing was published. Look at actor/grad_norm, "
            f"critic/grad_norm and the learning rates of the steps before"
        )


def _listed(items: list[str], total: int) -> str:
    more = f" and {total - SHOWN} more" if total > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
