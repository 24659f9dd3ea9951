"""What the world hands in is checked here, once, before it touches a record.

Every function raises `WorldError` with the reason that the ledger counts, or returns clean data. Text is made
encodable exactly once (fault D9): bytes are decoded, and NUL and lone surrogates become U+FFFD.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np

from soliton.awaited import AwaitedReward
from soliton.engines.engine import Completion, GenerateRequest
from soliton.envs.environment import Message, StepResult
from soliton.errors import WorldError
from soliton.reasons import DropReason

_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")
_ROLES = ("system", "user", "tool")
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class CheckedMessages(NamedTuple):
    """Clean messages, and how many of them were cut or cleaned."""

    messages: tuple[Message, ...]
    num_cut: int
    num_cleaned: int


def clean_text(text: str | bytes) -> str:
    """Decode bytes as UTF-8 and replace what no encoder takes (NUL, lone surrogates) by U+FFFD."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return _UNENCODABLE.sub("\ufffd", text)


def checked_messages(messages: object, max_chars: int) -> CheckedMessages:
    """The environment's messages, cleaned, each cut to `max_chars` characters and a marker that says so.

    Raises:
        WorldError: bad_observation, if they are not a sequence of system, user or tool messages of text.
    """
    if not isinstance(messages, Sequence) or not all(isinstance(m, Message) for m in messages):
        raise WorldError(DropReason.BAD_OBSERVATION, f"expected a tuple of Message, got {_show(messages)}")
    checked: list[Message] = []
    num_cut = num_cleaned = 0
    for message in messages:
        role, raw = message.role, message.content
        if role not in _ROLES:
            raise WorldError(DropReason.BAD_OBSERVATION, f"role {role!r}; an environment may speak as {_ROLES}")
        if not isinstance(raw, str | bytes):
            raise WorldError(DropReason.BAD_OBSERVATION, f"the content of a {role} message is {_show(raw)}, not text")
        content = clean_text(raw)
        num_cleaned += content != raw
        if len(content) > max_chars:
            num_cut += 1
            content = f"{content[:max_chars]}\n[cut: {len(content) - max_chars} more characters]"
        checked.append(Message(role, content))
    return CheckedMessages(tuple(checked), num_cut, num_cleaned)


def checked_step(result: object) -> StepResult:
    """The environment's answer, with a float32-representable reward. Its messages are checked separately.

    Raises:
        WorldError: bad_observation (not a `StepResult`, or flags that are not booleans), bad_reward (not a finite
            number) or env_error (`info` that does not map names to numbers).
    """
    if not isinstance(result, StepResult):
        raise WorldError(DropReason.BAD_OBSERVATION, f"step must return a StepResult, got {_show(result)}")
    if not isinstance(result.terminated, bool) or not isinstance(result.truncated, bool):
        flags = (result.terminated, result.truncated)
        raise WorldError(DropReason.BAD_OBSERVATION, f"terminated and truncated must be booleans, got {flags!r}")
    if not _is_finite(result.reward):
        raise WorldError(DropReason.BAD_REWARD, f"the reward is {_show(result.reward)}, not a finite number")
    if not isinstance(result.info, dict) or not all(
        isinstance(name, str) and isinstance(value, Real) for name, value in result.info.items()
    ):
        raise WorldError(DropReason.ENV_ERROR, f"info must map names to numbers, got {_show(result.info)}")
    if result.awaited is not None and not (isinstance(result.awaited, AwaitedReward) and result.terminated):
        raise WorldError(
            DropReason.ENV_ERROR, f"awaited must be an AwaitedReward of a terminated step, got {_show(result.awaited)}"
        )
    return StepResult(
        messages=result.messages,
        reward=float(result.reward),
        terminated=result.terminated,
        truncated=result.truncated,
        info={name: float(value) for name, value in result.info.items()},
        awaited=result.awaited,
    )


def checked_completion(completion: object, request: GenerateRequest) -> Completion:
    """The engine's answer: lists of equal length, valid ids, versions and log-probs, a finish reason that fits.

    Raises:
        WorldError: bad_logprob (fewer or more log-probs than tokens, or one that is absent, not a number, not finite
            in float32 or above 0: faults B11, C12; nothing is ever put in its place) or engine_error (anything else).
    """
    if not isinstance(completion, Completion):
        raise WorldError(DropReason.ENGINE_ERROR, f"generate must return a Completion, got {_show(completion)}")
    where = f"request {request.session} at token {len(request.token_ids)}"
    for name in ("token_ids", "logprobs", "versions"):
        value = getattr(completion, name)
        if not isinstance(value, tuple | list):
            reason = DropReason.BAD_LOGPROB if name == "logprobs" else DropReason.ENGINE_ERROR
            raise WorldError(reason, f"{where}: {name} is {_show(value)}, not a tuple")
    num_tokens = len(completion.token_ids)
    if num_tokens != len(completion.versions) or num_tokens > request.max_new_tokens:
        raise WorldError(
            DropReason.ENGINE_ERROR,
            f"{where}: {num_tokens} tokens and {len(completion.versions)} versions for at most "
            f"{request.max_new_tokens} tokens",
        )
    if num_tokens != len(completion.logprobs):
        raise WorldError(
            DropReason.BAD_LOGPROB, f"{where}: {len(completion.logprobs)} log-probs for {num_tokens} tokens"
        )
    if completion.finish_reason not in ("stop", "length", "abort"):
        raise WorldError(DropReason.ENGINE_ERROR, f"{where}: finish reason {completion.finish_reason!r}")
    if num_tokens == 0 and completion.finish_reason != "abort":
        raise WorldError(DropReason.ENGINE_ERROR, f"{where}: finished ({completion.finish_reason}) without a token")
    for i, logprob in enumerate(completion.logprobs):
        if not _is_finite(logprob) or logprob > 0:
            raise WorldError(DropReason.BAD_LOGPROB, f"{where}: log-prob {i} is {_show(logprob)}")
    for name in ("token_ids", "versions"):
        for i, value in enumerate(getattr(completion, name)):
            if not isinstance(value, int) or not 0 <= value < 2**31:
                raise WorldError(DropReason.ENGINE_ERROR, f"{where}: {name}[{i}] is {_show(value)}")
    return completion


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value) and abs(float(value)) <= _FLOAT32_MAX


def _show(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 200 else text[:200] + '...'}"
