"""AdamW with a clip, a schedule counted in its own updates, and a state that is tensors and numbers.

Owns the parameters it was given and no others: a frozen parameter is not in here, so neither weight decay nor the
momentum of a zero gradient can move it (fault A14).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from soliton.errors import RunError
from soliton.learner.alarms import Scene

Schedule = Callable[[int], float]
"""Number of updates done -> factor on the learning rate of the next one."""

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def warm_up(updates: int) -> Schedule:
    """Factor (u + 1) / updates, then 1. The first update is already non-zero; `updates = 0` is constant 1."""
    return lambda done: min(1.0, (done + 1) / updates) if updates else 1.0


def warm_up_then_cosine(updates: int, total: int) -> Schedule:
    """As `warm_up`, then half a cosine that would reach 0 one update after the last of `total`."""
    rise = warm_up(updates)
    fall = max(1, total - updates)
    return lambda done: rise(done) if done < updates else 0.5 * (1 + math.cos(math.pi * (done - updates) / fall))


class Optimiser:
    """One optimiser step per call of `step`, over gradients that the caller has accumulated.

    Attributes:
        updates: steps taken, the only clock of the schedule.
        parameters: name -> parameter, exactly what moves.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        *,
        lr: float,
        schedule: Schedule,
        betas: tuple[float, float],
        weight_decay: float,
        grad_clip: float,
    ) -> None:
        self.parameters = dict(parameters)
        self.updates = 0
        self._base_lr = lr
        self._schedule = schedule
        self._grad_clip = grad_clip
        self._adamw = torch.optim.AdamW(
            list(self.parameters.values()), lr=lr, betas=betas, weight_decay=weight_decay, fused=True
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next update."""
        return self._base_lr * self._schedule(self.updates)

    def discard_gradients(self) -> None:
        """Forget what was accumulated; nothing moves and no schedule advances."""
        self._adamw.zero_grad(set_to_none=True)

    def step(self, scene: Scene) -> float:
        """Clip, move, count and clear.

        Returns:
            Global L2 norm of the gradient before the clip.

        Raises:
            RunError: the norm, or a parameter after the update, is not finite.
        """
        parameters = list(self.parameters.values())
        norm = clip_gradients(parameters, self._grad_clip, scene)
        for group in self._adamw.param_groups:
            group["lr"] = self.lr
        self._adamw.step()
        self.discard_gradients()
        self.updates += 1
        require_finite_parameters(parameters, scene)
        return norm

    def state(self) -> dict[str, Tensor]:
        """`{parameter name}/{moment}` -> tensor; empty only before the first update."""
        tensors = {
            f"{name}/{moment}": self._adamw.state[parameter][moment]
            for name, parameter in self.parameters.items()
            if parameter in self._adamw.state
            for moment in MOMENTS
        }
        assert bool(tensors) == bool(self.updates), "an optimiser that has stepped has moments (fault J5)"
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Take over moments and count.

        Raises:
            RunError: names or shapes are not exactly those of this optimiser after `updates` updates.
        """
        expected = {f"{name}/{moment}" for name in self.parameters for moment in MOMENTS} if updates else set()
        require_same_names("moments of an optimiser", expected, set(tensors))
        self._adamw.state.clear()
        for name, parameter in self.parameters.items() if updates else ():
            moments = {moment: tensors[f"{name}/{moment}"].clone() for moment in MOMENTS}
            for moment in ("exp_avg", "exp_avg_sq"):
                if moments[moment].shape != parameter.shape:
                    raise RunError(
                        f"checkpoint: {name}/{moment} has shape {tuple(moments[moment].shape)}, the parameter "
                        f"{tuple(parameter.shape)}; it belongs to another model"
                    )
            self._adamw.state[parameter] = moments
        self.updates = updates


def clip_gradients(parameters: Sequence[Parameter], limit: float, scene: Scene) -> float:
    """Scale the gradients down to the global L2 norm `limit`, if theirs is larger.

    Returns:
        Global L2 norm before.

    Raises:
        RunError: the norm is not finite.
    """
    for parameter in parameters:
        if parameter.grad is None:  # no token reached it: gradient 0, so that its moments exist like the others'
            parameter.grad = torch.zeros_like(parameter)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    scene.require_finite("gradient norm", norm)
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return float(norm)


def require_finite_parameters(parameters: Sequence[Parameter], scene: Scene) -> None:
    """Raise `RunError` if a parameter is not finite."""
    norm = torch.nn.utils.get_total_norm([p.detach() for p in parameters])
    scene.require_finite("norm of the parameters after the update", norm)


def require_same_names(what: str, expected: set[str], got: set[str]) -> None:
    """Nothing may be missing and nothing unknown: a silently dropped moment restarts training (fault J5).

    Raises:
        RunError: the sets differ; the message lists both differences.
    """
    if expected == got:
        return
    missing, unknown = sorted(expected - got), sorted(got - expected)
    raise RunError(
        f"checkpoint: {what} do not fit: {len(missing)} missing {missing[:5]}, {len(unknown)} unknown {unknown[:5]}. "
        f"It was written by another model, method or version; resume with the recipe that wrote it"
    )
