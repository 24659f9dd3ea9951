"""Before anything trains: does the task make a first episode and enough held-out prompts, and can the model read it?

A mistake in somebody's first environment is found here, in a second, with its own message, and not as thousands of
failed attempts.
"""

from __future__ import annotations

import numpy as np

from soliton.envs.environment import Message
from soliton.envs.latency import LatencyConfig
from soliton.errors import ConfigError, WorldError
from soliton.rollout.checks import checked_messages
from soliton.runtime.clock import VirtualClock
from soliton.runtime.mixture import environment_of
from soliton.runtime.setup import Setup
from soliton.types import Prompt


def check_task(setup: Setup) -> list[str]:
    """Open an episode of each first prompt in every phase, let the expert play a game, count the held-out prompts.

    Returns:
        What looks wrong and may still be meant.

    Raises:
        ConfigError: the environment cannot open an episode, its prompt does not fit `limits.max_tokens`, or there are
            fewer held-out prompts than `eval.num_prompts`; or its expert cannot play a game for the warm start.
    """
    config = setup.config
    if "eval" in config.stages or config.eval.every_steps:
        try:
            setup.prompts.held_out(config.eval.num_prompts, config.eval.seed)
        except ValueError as error:
            raise ConfigError(f"eval.num_prompts: got {config.eval.num_prompts}; {error}") from error
    _check_surroundings(setup)
    warnings = [
        warning
        for name, prompt in _first_prompts(setup).items()
        for phase in range(1, setup.task.phases + 1)
        for warning in _check_opening(setup, name, prompt, phase)
    ]
    _check_expert(setup)
    return list(dict.fromkeys(warnings))


def _check_surroundings(setup: Setup) -> None:
    """Whether the task has as many phases, and asks a judge, as the recipe says."""
    env, phases = setup.config.env, setup.task.phases
    name = ", ".join(part.name for part in env.mix) or env.name
    if len(env.shifts) >= phases:
        has = f"has {phases} phases, so it shifts {phases - 1} times at most" if phases > 1 else "has no phases"
        raise ConfigError(
            f"env.shifts: got {list(env.shifts)}, but {name!r} {has}; drop steps (a class of your own says how "
            "many phases it has: phases = 3)"
        )
    if env.judge.kind != "rules" and not setup.task.judged:
        raise ConfigError(
            f"env.judge.kind: got {env.judge.kind!r}, but {name!r} asks no judge; drop the key (a class of your "
            "own that asks self.surroundings.judge says so: judged = True)"
        )


def _first_prompts(setup: Setup) -> dict[str, Prompt]:
    """Name of each environment of the run -> its first prompt."""
    mix = setup.config.env.mix
    if not mix:
        return {setup.config.env.name: setup.prompts.at(0)}
    found: dict[str, Prompt] = {}
    for prompt in map(setup.prompts.at, range(sum(part.weight for part in mix))):
        found.setdefault(environment_of(prompt.id) or prompt.id, prompt)
    return found


def _check_expert(setup: Setup) -> None:
    """Let the expert of each environment play one game, if there is to be a warm start on its games."""
    demonstrate, config = setup.task.demonstrate, setup.config
    if "sft" not in config.stages or demonstrate is None:
        return
    for name, prompt in _first_prompts(setup).items():
        try:
            setup.renderer.demonstration(demonstrate(prompt, np.random.default_rng(0), config.sft.noise))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"env.name: {name!r}: the expert's game of {prompt.content!r} raised {type(error).__name__}: {error}"
            ) from error


def _check_opening(setup: Setup, name: str, prompt: Prompt, phase: int) -> list[str]:
    limits = setup.config.limits
    opening = _open(setup, name, prompt, phase)
    try:
        messages = checked_messages(opening, limits.max_observation_chars).messages
        rendered = setup.renderer.first(messages)
    except (WorldError, ConfigError) as error:
        raise ConfigError(f"env.name: {name!r}: reset returned {opening!r}: {error}") from error
    if len(rendered.token_ids) >= limits.max_tokens:
        raise ConfigError(
            f"limits.max_tokens: got {limits.max_tokens}, but the first prompt of {name!r} already has "
            f"{len(rendered.token_ids)} tokens; raise it, or shorten the prompt"
        )
    unknown = setup.tokenizer.unk_token_id
    if unknown is not None and unknown in rendered.token_ids:
        text = " ".join(message.content for message in messages)
        return [
            f"the tokenizer has no token for some of {text[:200]!r}, so the model sees {setup.tokenizer.unk_token!r} "
            "there; use characters that it knows"
        ]
    return []


def _open(setup: Setup, name: str, prompt: Prompt, phase: int) -> tuple[Message, ...]:
    clock = VirtualClock(0)
    make = setup.environment_factory(LatencyConfig(), lambda _: phase)

    async def first_messages() -> tuple[Message, ...]:
        environment = make(clock, 0)
        try:
            return await environment.reset(prompt, 0)
        finally:
            await environment.close()

    try:
        return clock.run(first_messages())
    except ConfigError as error:
        raise ConfigError(f"env.name: {name!r}: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"env.name: {name!r} cannot open an episode: {type(error).__name__}: {error} (prompt {prompt.content!r})"
        ) from error
