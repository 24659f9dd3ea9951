"""How an attempt can end, and why: three closed lists. `soliton.types` gives them to everybody else."""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """How a trajectory ended."""

    TERMINATED = "terminated"
    """The environment said that the task is over."""
    TRUNCATED = "truncated"
    """A limit cut it; `reason` says which. It keeps the environment's reward."""
    FAILED = "failed"
    """The world failed; `reason` says how. Never trained, never in a statistic of rewards."""


class TruncationReason(enum.StrEnum):
    """Why a trajectory is `truncated` (closed list)."""

    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105  (a limit on tokens, not a password)
    TIME_LIMIT = "time_limit"
    ENVIRONMENT = "environment"


class DropReason(enum.StrEnum):
    """Why an attempt was not trained (closed list). Every dropped attempt is counted under exactly one."""

    ENV_ERROR = "env_error"
    """The environment raised."""
    ENV_TIMEOUT = "env_timeout"
    """The environment did not answer before its deadline."""
    BAD_OBSERVATION = "bad_observation"
    """The environment returned something that is not text."""
    BAD_REWARD = "bad_reward"
    """The environment returned a reward that is not a finite number."""
    ENGINE_ERROR = "engine_error"
    """The engine failed or broke its contract."""
    BAD_LOGPROB = "bad_logprob"
    """The engine returned a log-prob that is absent, not finite or above 0."""
    NO_ACTION = "no_action"
    """No token was sampled, so there is nothing to learn from."""
    STALE = "stale"
    """Older than `max_staleness` when the learner wanted to consume it."""
    GROUP_TOO_SMALL = "group_too_small"
    """Fewer than two members of its group were valid."""
    ROLLED_BACK = "rolled_back"
    """Sampled by a version that is not an ancestor of the resumed checkpoint."""
    DAMAGED = "damaged"
    """Its stored bytes were no longer those that were written."""
    REWARD_TIMEOUT = "reward_timeout"
    """Its reward was to come from outside and had not come at its deadline."""
    JUDGE_UNAVAILABLE = "judge_unavailable"
    """The judge could not be reached, or was too busy, as often as it was asked."""
    BAD_VERDICT = "bad_verdict"
    """The judge's answers held no verdict, or it refused the text."""


RETRIED_REASONS = frozenset(DropReason) - {DropReason.GROUP_TOO_SMALL}
"""Reasons after which the draw is issued again (up to the limit of attempts)."""
