"""The value tracker of SPO: a Beta belief about the success of each prompt, which forgets as the policy drifts.

Owns: the belief. Does not know: how drift is measured, tokens, tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class BetaTracker:
    """Success probability of each prompt.

        v(x) = alpha / (alpha + beta)
        rho = clip(2^(-D / half_drift), rho_min, rho_max),   alpha <- rho alpha + R,   beta <- rho beta + 1 - R
        at the first visit alpha + beta = 1 / (1 - rho_min) and v = prior      (SPO, https://arxiv.org/abs/2509.13232)

    D is how far the policy has moved since the prompt's last visit; 1 / (1 - rho) visits are remembered. The paper's
    prior comes from samples of each prompt before training; here it is a stated number (a choice).
    Example: prior 0.5, first visit, R = 1, D = 0: alpha = 0.96 * 4 + 1, v = 4.84 / 8.68 = 0.558.

    Args:
        prior: v before the first visit, in [0, 1].
        rho_min: least share of the belief that is kept, in [0, 1).
        rho_max: largest, in [rho_min, 1].
        half_drift: D at which half would be forgotten, > 0.

    Raises:
        ValueError: an argument out of its range.
    """

    def __init__(
        self, *, prior: float, rho_min: float = 0.875, rho_max: float = 0.96, half_drift: float = 0.06
    ) -> None:
        if not (0 <= prior <= 1 and 0 <= rho_min < 1 and rho_min <= rho_max <= 1 and half_drift > 0):
            raise ValueError(
                "prior must be in [0, 1], 0 <= rho_min <= rho_max <= 1 with rho_min < 1, half_drift > 0; got "
                f"{prior}, {rho_min}, {rho_max}, {half_drift}"
            )
        self._rho = (rho_min, rho_max)
        self._half_drift = half_drift
        strength = 1.0 / (1.0 - rho_min)
        self._first = (strength * prior, strength * (1.0 - prior))
        self._beliefs: dict[str, tuple[float, float]] = {}

    def baseline(self, prompt_id: str) -> float:
        """V of a prompt."""
        alpha, beta = self._beliefs.get(prompt_id, self._first)
        return alpha / (alpha + beta)

    def observe(self, prompt_id: str, reward: float, drift: float) -> None:
        """Take in one reward.

        Args:
            prompt_id: of the prompt.
            reward: in [0, 1].
            drift: D, >= 0; 0 at the first visit.

        Raises:
            ValueError: a reward outside [0, 1], which is no success probability.
        """
        if not 0 <= reward <= 1:
            raise ValueError(
                f"reward {reward} of prompt {prompt_id}: spo models a probability of success, so rewards must lie in "
                "[0, 1]; scale them, or use running-mean"
            )
        alpha, beta = self._beliefs.get(prompt_id, self._first)
        low, high = self._rho
        rho = min(max(2.0 ** (-drift / self._half_drift), low), high)
        self._beliefs[prompt_id] = (rho * alpha + reward, rho * beta + 1.0 - reward)

    def state(self) -> dict[str, list[float]]:
        """JSON-able: alpha and beta by prompt id."""
        return {prompt_id: list(belief) for prompt_id, belief in self._beliefs.items()}

    def load_state(self, state: Mapping[str, Sequence[float]]) -> None:
        """Take over what `state` returned."""
        self._beliefs = {prompt_id: (float(alpha), float(beta)) for prompt_id, (alpha, beta) in state.items()}
