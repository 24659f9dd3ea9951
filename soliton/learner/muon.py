"""Muon: momentum whose every matrix is made orthogonal before it moves the weights; AdamW for what is no matrix.

Owns the hidden matrices of a model and their momentum, and through AdamW the embeddings, the output projection and the
vectors. Does not know what the gradient is of. For models trained from nothing: it reaches AdamW's loss in about a
third of the updates (docs/lab-notes.md). torch.optim.Muon computes the same in bfloat16, which a CPU without such
instructions does five times slower than float32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from transformers import PreTrainedModel

from soliton.learner.alarms import Scene
from soliton.learner.optimiser import Schedule, clip_gradients, require_finite_parameters

MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)
"""a, b, c of s -> a s + b s^3 + c s^5, which drives singular values in (0, 1] to about 1 (between 0.7 and 1.2)."""


def orthogonalised(matrices: Tensor, steps: int = NEWTON_SCHULZ_STEPS) -> Tensor:
    """Near to U V^T of each matrix's singular value decomposition, by Newton-Schulz iteration.

        X = M / |M|_F;   `steps` times:  A = X X^T,  X = a X + (b A + c A^2) X

    Args:
        matrices: float32 [N, R, C]; a matrix of zeros stays one.
        steps: of the iteration.

    Returns:
        [N, R, C], singular values between about 0.7 and 1.2 where those of `matrices` are not tiny.
    """
    a, b, c = _QUINTIC
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


def hidden_matrices(model: PreTrainedModel) -> dict[str, Parameter]:
    """Parameters that multiply hidden states: of two or three dimensions ([experts, R, C]), no (un)embedding."""
    outer: tuple[Callable[[], nn.Module | None], ...] = (model.get_input_embeddings, model.get_output_embeddings)
    excluded = {id(parameter) for get in outer if (module := get()) is not None for parameter in module.parameters()}
    return {n: p for n, p in model.named_parameters() if p.dim() in (2, 3) and id(p) not in excluded}


class MuonOptimiser:
    """One optimiser step per call of `step`, over gradients that the caller has accumulated.

        m = 0.95 m + 0.05 g;   W = W - lr * max(1, R / C)^0.5 * orthogonalised(0.05 g + 0.95 m)

    Attributes:
        updates: steps taken, the only clock of the schedule.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        muon_lr: float,
        lr: float,
        schedule: Schedule,
        betas: tuple[float, float],
        weight_decay: float,
        grad_clip: float,
    ) -> None:
        self.updates = 0
        self._parameters = list(model.parameters())
        self._muon_lr, self._base_lr, self._schedule = muon_lr, lr, schedule
        self._weight_decay, self._grad_clip = weight_decay, grad_clip
        matrices = hidden_matrices(model)
        by_shape: dict[tuple[int, ...], list[Parameter]] = defaultdict(list)
        for parameter in matrices.values():
            by_shape[tuple(parameter.shape[-2:])].append(parameter)
        self._groups = list(by_shape.values())
        self._momenta = [torch.zeros_like(_stacked(group)) for group in self._groups]
        others = [p for name, p in model.named_parameters() if name not in matrices]
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)

    @property
    def lr(self) -> float:
        """AdamW's learning rate of the next update; Muon's is in constant proportion to it."""
        return self._base_lr * self._schedule(self.updates)

    def step(self, scene: Scene) -> float:
        """Clip, move, count and clear.

        Returns:
            Global L2 norm of the gradient before the clip.

        Raises:
            RunError: the norm, or a parameter after the update, is not finite.
        """
        norm = clip_gradients(self._parameters, self._grad_clip, scene)
        for group in self._adamw.param_groups:
            group["lr"] = self.lr
        self._adamw.step()
        for parameters, momentum in zip(self._groups, self._momenta, strict=True):
            self._move(parameters, momentum)
        for parameter in self._parameters:
            parameter.grad = None
        self.updates += 1
        require_finite_parameters(self._parameters, scene)
        return norm

    @torch.no_grad()
    def _move(self, parameters: list[Parameter], momentum: Tensor) -> None:
        gradients = _stacked([p.grad for p in parameters if p.grad is not None])
        momentum.lerp_(gradients, 1 - MOMENTUM)
        rows, columns = momentum.shape[1:]
        lr = self._muon_lr * self._schedule(self.updates)
        moves = orthogonalised(gradients.lerp(momentum, MOMENTUM)).mul_(-lr * max(1.0, rows / columns) ** 0.5)
        start = 0
        for parameter in parameters:
            count = parameter.numel() // (rows * columns)
            parameter.mul_(1 - lr * self._weight_decay)
            parameter.add_(moves[start : start + count].view_as(parameter))
            start += count


def _stacked(matrices: list[Tensor] | list[Parameter]) -> Tensor:
    """[N, R, C] of matrices [R, C] and stacks of them [n, R, C]."""
    return torch.cat([m.detach().reshape(-1, *m.shape[-2:]) for m in matrices])
