import asyncio
import logging
import math

import msgspec
import pytest

from soliton.envs.environment import Message, StepResult
from soliton.errors import ConfigError, RunError, WorldError
from soliton.prompts.stream import make_prompt
from soliton.reasons import DropReason, Status, TruncationReason
from soliton.types import Role
from tests.fakes.manual_clock import ManualClock
from tests.fakes.scripted_environment import GO_ON, HANG, WON, ScriptedEnvironment
from tests.fakes.scripted_policy import ScriptedPolicy
from tests.unit.rollout.kit import TOKENIZER, make_episode, run_episode, sampled_text


def assert_failed(trajectory, reason):
    assert (trajectory.status, trajectory.reason) == (Status.FAILED, reason)
    assert trajectory.reward_values.size == 0  # a failure of the world is never a reward (fault F10)


FAILING_STEPS = [
    (RuntimeError("tool server died"), DropReason.ENV_ERROR),
    (WorldError("env_timeout", "judge is down"), DropReason.ENV_TIMEOUT),
    (asyncio.CancelledError(), DropReason.ENV_ERROR),
    (None, DropReason.BAD_OBSERVATION),
    ("ok", DropReason.BAD_OBSERVATION),
    (StepResult(messages=(Message("tool", None),)), DropReason.BAD_OBSERVATION),
    (StepResult(messages=None), DropReason.BAD_OBSERVATION),
    (StepResult(reward=math.nan), DropReason.BAD_REWARD),
    (StepResult(reward=math.inf, terminated=True), DropReason.BAD_REWARD),
    (StepResult(reward=None), DropReason.BAD_REWARD),
]


@pytest.mark.parametrize(("step", "reason"), FAILING_STEPS)
def test_a_failing_step_is_data_and_never_a_reward(step, reason, caplog):  # faults F10, K4
    environment = ScriptedEnvironment([StepResult(messages=(Message("tool", "ok"),), reward=0.5), step])
    with caplog.at_level(logging.WARNING):
        trajectory, _ = run_episode(environment, lambda _: "x")
    assert_failed(trajectory, reason)
    assert sampled_text(trajectory) == "x<end>x<end>"
    assert environment.num_closed == 1
    assert f"attempt d5s0a1 failed ({reason})" in caplog.text


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (RuntimeError("no sandbox"), DropReason.ENV_ERROR),
        (None, DropReason.BAD_OBSERVATION),
        (("go",), DropReason.BAD_OBSERVATION),
    ],
)
def test_a_failing_reset_makes_no_token_and_still_closes(opening, reason):  # faults B13, F8
    environment = ScriptedEnvironment([WON], opening=opening)
    trajectory, engine = run_episode(environment, lambda _: "x")
    assert_failed(trajectory, reason)
    assert len(trajectory.token_ids) == 0
    assert environment.num_closed == 1
    assert engine.requests == []


def test_an_environment_that_cannot_be_made_is_an_environment_error():
    def make(clock, seed):
        raise OSError("no space left")

    trajectory, _ = run_episode(make)
    assert_failed(trajectory, DropReason.ENV_ERROR)


def test_a_failure_while_closing_is_reported_and_changes_nothing(caplog):  # fault F8
    environment = ScriptedEnvironment([WON], closing=RuntimeError("cannot stop the sandbox"))
    trajectory, _ = run_episode(environment, lambda _: "x")
    assert trajectory.total_reward == 1.0
    assert "cannot stop the sandbox" in caplog.text


@pytest.mark.parametrize("deaf", [False, True])
def test_a_hanging_step_is_a_timeout(deaf):  # faults K1, K4, H1
    clock = ManualClock()
    environment = ScriptedEnvironment([GO_ON, HANG], deaf=deaf)
    trajectory, _ = run_episode(environment, lambda _: "x", clock=clock, step_timeout_s=5.0)
    assert_failed(trajectory, DropReason.ENV_TIMEOUT)
    assert environment.num_closed == 1
    assert clock.now() == (35.0 if deaf else 5.0)


def test_a_hanging_reset_and_a_hanging_close_are_timed_too(caplog):
    trajectory, _ = run_episode(ScriptedEnvironment([WON], opening=HANG), step_timeout_s=5.0)
    assert_failed(trajectory, DropReason.ENV_TIMEOUT)
    trajectory, _ = run_episode(ScriptedEnvironment([WON], closing=HANG), lambda _: "x", step_timeout_s=5.0)
    assert trajectory.total_reward == 1.0
    assert "closing the environment failed" in caplog.text


def test_an_answer_at_its_deadline_is_in_time():
    clock = ManualClock()
    environment = ScriptedEnvironment([WON], clock=clock, wait_s=4.9)
    trajectory, _ = run_episode(environment, lambda _: "x", clock=clock, step_timeout_s=5.0)
    assert trajectory.status is Status.TERMINATED


def test_the_time_limit_stops_a_generation_and_keeps_its_tokens():
    clock = ManualClock()
    environment = ScriptedEnvironment([StepResult(messages=(Message("tool", "ok"),), reward=0.5)])
    trajectory, engine = run_episode(environment, lambda _: "abc", clock=clock, tick_s=1.0, time_limit_s=6.5)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TIME_LIMIT)
    assert sampled_text(trajectory) == "abc<end>ab"
    assert trajectory.total_reward == 0.5
    assert engine.aborted == ["d5s0a1"]


def test_the_time_limit_stops_a_wait_for_the_tool():
    clock = ManualClock()
    environment = ScriptedEnvironment([HANG])
    trajectory, _ = run_episode(environment, lambda _: "x", clock=clock, time_limit_s=3.0, step_timeout_s=50.0)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TIME_LIMIT)
    assert clock.now() == 3.0


def test_the_time_limit_before_the_first_token_leaves_nothing_to_learn_from():  # fault B9
    trajectory, _ = run_episode(ScriptedEnvironment([WON]), lambda _: "x", tick_s=9.0, time_limit_s=1.0)
    assert_failed(trajectory, DropReason.NO_ACTION)
    assert Role.ACTION not in trajectory.roles


def test_a_prompt_that_leaves_no_room_has_no_action():  # faults B9, F3
    trajectory, engine = run_episode(max_tokens=8)
    assert_failed(trajectory, DropReason.NO_ACTION)
    assert engine.requests == []


def tampered(**changes):
    return lambda completion: msgspec.structs.replace(completion, **changes)


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (tampered(logprobs=(None, -1.0)), DropReason.BAD_LOGPROB),
        (tampered(logprobs=(math.nan, -1.0)), DropReason.BAD_LOGPROB),
        (tampered(logprobs=(0.5, -1.0)), DropReason.BAD_LOGPROB),
        (tampered(logprobs=(-1.0,)), DropReason.BAD_LOGPROB),
        (tampered(logprobs=(-1.0,) * 3), DropReason.BAD_LOGPROB),
        (tampered(logprobs=()), DropReason.BAD_LOGPROB),
        (tampered(versions=(0,)), DropReason.ENGINE_ERROR),
        (tampered(token_ids=(), logprobs=(), versions=()), DropReason.ENGINE_ERROR),
        (lambda _: None, DropReason.ENGINE_ERROR),
    ],
)
def test_a_completion_that_breaks_the_contract_stores_none_of_its_tokens(tamper, reason):  # faults B11, C12, D10
    environment = ScriptedEnvironment([WON])
    trajectory, _ = run_episode(environment, lambda _: "x", tamper=tamper)
    assert_failed(trajectory, reason)
    assert Role.ACTION not in trajectory.roles
    assert environment.actions == []


class FailingEngine(ScriptedPolicy):
    def __init__(self, error):
        super().__init__(TOKENIZER, lambda _: "x")
        self._error = error

    async def generate(self, request):
        raise self._error


@pytest.mark.parametrize("error", [WorldError("engine_error", "gone"), ConnectionError("gone"), RuntimeError("gone")])
def test_an_engine_that_fails_is_an_engine_error(error):
    clock = ManualClock()
    trajectory = asyncio.run(clock.drive(make_episode(clock, FailingEngine(error)).run()))
    assert_failed(trajectory, DropReason.ENGINE_ERROR)


def test_an_engine_that_refuses_the_request_ends_the_run():  # a mistake of ours or of the configuration, not the world
    clock = ManualClock()
    with pytest.raises(RunError, match="context of 300 exceeds 256"):
        asyncio.run(clock.drive(make_episode(clock, FailingEngine(ValueError("context of 300 exceeds 256"))).run()))


def test_an_engine_that_does_not_even_answer_an_abort_is_left_behind():  # fault H1
    class DeafEngine(ScriptedPolicy):
        async def generate(self, request):
            await asyncio.Event().wait()

    clock = ManualClock()
    episode = make_episode(clock, DeafEngine(TOKENIZER, lambda _: "x"), time_limit_s=2.0)
    assert_failed(asyncio.run(clock.drive(episode.run())), DropReason.ENGINE_ERROR)


def test_an_abort_that_the_episode_did_not_ask_for_starts_the_attempt_over():  # fault F1: policy "restart"
    trajectory, _ = run_episode(ScriptedEnvironment([WON]), lambda _: "x", tamper=tampered(finish_reason="abort"))
    assert_failed(trajectory, DropReason.ENGINE_ERROR)


def test_a_prompt_of_another_task_is_a_mistake_of_the_user_and_not_of_the_world():
    clock = ManualClock()
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, lambda _: "x"), prompt=make_prompt({"question": "?"}))
    with pytest.raises(ConfigError, match="calculator"):
        asyncio.run(clock.drive(episode.run()))


def test_a_cancelled_episode_closes_its_environment():  # faults F8, K8
    clock = ManualClock()
    environment = ScriptedEnvironment([HANG])
    episode = make_episode(clock, ScriptedPolicy(TOKENIZER, lambda _: "x"), environment=environment)

    async def run():
        task = asyncio.ensure_future(episode.run())
        await clock.advance(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert environment.num_closed == 1
