import numpy as np
import pytest

from soliton.awaited import AwaitedReward
from soliton.engines.engine import Completion, GenerateRequest
from soliton.envs.environment import Message, StepResult
from soliton.errors import WorldError
from soliton.reasons import DropReason
from soliton.rollout.checks import checked_completion, checked_messages, checked_step, clean_text

REQUEST = GenerateRequest(session="d0s0a0", token_ids=(1, 2), action_start=2, max_new_tokens=4)


def completion(**changes) -> Completion:
    fields = {"token_ids": (3, 4), "logprobs": (-0.5, 0.0), "versions": (0, 1), "finish_reason": "stop"}
    return Completion(**{**fields, **changes})


def reason_of(check, *args) -> str:
    with pytest.raises(WorldError) as caught:
        check(*args)
    return caught.value.reason


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\ud835b", "a\ufffdb"),
        ("\udce9", "\ufffd"),
        ("a\x00b", "a\ufffdb"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82\xac", "€"),
        ("\u202eabc", "\u202eabc"),
        ("plain\n", "plain\n"),
        ("", ""),
    ],
)
def test_text_is_made_encodable_once(raw, clean):  # fault D9
    assert clean_text(raw) == clean
    assert clean_text(clean) == clean
    clean.encode()


def test_what_was_done_to_messages_is_counted():  # faults D9, F3, K6
    messages = [Message("tool", b"\xff"), Message("user", "x" * 25), Message("tool", "fine")]
    checked = checked_messages(messages, max_chars=20)
    assert checked.messages == (
        Message("tool", "\ufffd"),
        Message("user", "x" * 20 + "\n[cut: 5 more characters]"),
        Message("tool", "fine"),
    )
    assert (checked.num_cut, checked.num_cleaned) == (1, 1)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "text",
        5,
        [None],
        ["text"],
        {"role": "user"},
        [Message("tool", None)],
        [Message("tool", 7)],
        [Message("assistant", "x")],
        [Message("judge", "x")],
    ],
)
def test_what_is_no_message_is_a_bad_observation(messages):
    assert reason_of(checked_messages, messages, 100) == DropReason.BAD_OBSERVATION


@pytest.mark.parametrize("reward", [None, "1.0", float("nan"), float("inf"), 1e39, 1j, [1.0]])
def test_a_reward_that_is_no_finite_number_is_a_bad_reward(reward):  # fault L5
    assert reason_of(checked_step, StepResult(reward=reward)) == DropReason.BAD_REWARD


def test_rewards_of_other_number_types_are_taken_as_floats():
    for reward in (1, True, np.float32(1.0), np.int64(1)):
        result = checked_step(StepResult(reward=reward))
        assert type(result.reward) is float
        assert result.reward == 1.0


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (None, DropReason.BAD_OBSERVATION),
        (("ok", 1.0), DropReason.BAD_OBSERVATION),
        (StepResult(terminated=None), DropReason.BAD_OBSERVATION),
        (StepResult(truncated="no"), DropReason.BAD_OBSERVATION),
        (StepResult(info={"a": "b"}), DropReason.ENV_ERROR),
        (StepResult(info=None), DropReason.ENV_ERROR),
    ],
)
def test_what_is_no_step_result_fails_with_its_reason(result, reason):
    assert reason_of(checked_step, result) == reason


@pytest.mark.parametrize(
    "logprobs",
    [
        (-0.5, None),
        (-0.5, float("nan")),
        (-0.5, "NaN"),
        (-0.5, float("inf")),
        (-0.5, float("-inf")),
        (-0.5, 1e308),
        (-0.5, -1e308),
        (-0.5, 1e-6),
        None,
        (),
        (-0.5,),
        (-0.5, -0.5, -0.5),
    ],
)
def test_a_bad_logprob_is_never_replaced(logprobs):  # faults B11, C12
    assert reason_of(checked_completion, completion(logprobs=logprobs), REQUEST) == DropReason.BAD_LOGPROB


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": (0,)},
        {"versions": (0, -1)},
        {"versions": (0, None)},
        {"versions": None},
        {"token_ids": (3, -4)},
        {"token_ids": (3, 2**31)},
        {"token_ids": (3, "4")},
        {"token_ids": None},
        {"token_ids": (), "logprobs": (), "versions": ()},
        {"token_ids": (1,) * 5, "logprobs": (-1.0,) * 5, "versions": (0,) * 5},
        {"finish_reason": "error"},
        {"finish_reason": None},
    ],
)
def test_any_other_breach_of_contract_is_an_engine_error(changes):  # faults B11, D10
    assert reason_of(checked_completion, completion(**changes), REQUEST) == DropReason.ENGINE_ERROR


def test_no_completion_at_all_is_an_engine_error():
    assert reason_of(checked_completion, None, REQUEST) == DropReason.ENGINE_ERROR


def test_a_valid_completion_passes_unchanged_and_an_abort_may_be_empty():
    assert checked_completion(completion(), REQUEST) == completion()
    nothing = completion(token_ids=(), logprobs=(), versions=(), finish_reason="abort")
    assert checked_completion(nothing, REQUEST) is nothing


def test_only_a_terminated_step_may_await_its_reward():
    awaited = AwaitedReward(within_s=1.0)
    assert checked_step(StepResult(terminated=True, awaited=awaited)).awaited == awaited
    for result in (StepResult(awaited=awaited), StepResult(terminated=True, awaited=1.0)):
        with pytest.raises(WorldError, match="awaited must be an AwaitedReward of a terminated step"):
            checked_step(result)
