import asyncio
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.envs.environment import Message, StepResult
from soliton.reasons import Status, TruncationReason
from soliton.rollout.renderer import Renderer
from soliton.types import NO_VERSION, Role
from tests.fakes.chat_tokenizers import CHATML, chat_tokenizer
from tests.fakes.manual_clock import ManualClock
from tests.fakes.scripted_environment import GO_ON, WON, ScriptedEnvironment
from tests.fakes.scripted_policy import ScriptedPolicy, logprob_at
from tests.unit.rollout.kit import (
    END,
    LEASE,
    PROMPT,
    TOKENIZER,
    encode,
    make_episode,
    run_episode,
    sampled_text,
    text_of,
)

WORKED = "<user>78-62*3<end><model>78-62<end><tool>16*3<end><model>16*3<end><tool>48<end><model>=48<end>"


def test_the_worked_example_ends_with_its_reward_on_the_last_action_token():  # fault A1
    trajectory, _ = run_episode()
    assert text_of(trajectory) == WORKED
    assert (trajectory.status, trajectory.reason) == (Status.TERMINATED, None)
    assert trajectory.attempt == LEASE.attempt
    assert trajectory.prompt_id == PROMPT.id
    ends = [i for i, token in enumerate(trajectory.token_ids) if token == END and trajectory.roles[i] == Role.ACTION]
    assert trajectory.reward_positions.tolist() == ends
    assert trajectory.reward_values.tolist() == [0.0, 0.0, 1.0]
    assert ends[-1] == len(trajectory.token_ids) - 1


def test_only_sampled_tokens_are_actions_and_carry_logprob_and_version():  # faults B1, B4
    trajectory, _ = run_episode()
    assert sampled_text(trajectory) == "78-62<end>16*3<end>=48<end>"
    mask = trajectory.action_mask
    expected = [logprob_at(i) for i in np.flatnonzero(mask)]
    assert trajectory.rollout_logprobs[mask].tolist() == pytest.approx(expected)
    assert np.isnan(trajectory.rollout_logprobs[~mask]).all()
    assert (trajectory.versions[~mask] == NO_VERSION).all()
    assert (trajectory.versions[mask] == 0).all()


def test_the_number_of_action_tokens_is_a_count_and_not_a_span():  # faults B5, B16
    long = ScriptedEnvironment([StepResult(messages=(Message("tool", "x" * 1000),)), WON])
    trajectory, _ = run_episode(long, lambda _: "ab", max_tokens=2000)
    assert trajectory.num_action_tokens == 6
    assert len(trajectory.token_ids) > 1000


def test_every_request_extends_the_one_before_by_what_was_sampled():  # fault D1
    _, engine = run_episode()
    contexts = [request.token_ids for request in engine.requests]
    for earlier, later in itertools.pairwise(contexts):
        assert later[: len(earlier)] == earlier
    assert all(request.action_start == len(request.token_ids) for request in engine.requests)
    assert len({request.seed for request in engine.requests}) == 1


BPE = chat_tokenizer(CHATML)
BPE_IDS = {text: BPE.convert_tokens_to_ids(text) for text in ("a", "b", "c", "ab", "abc")}


@given(st.lists(st.sampled_from(sorted(BPE_IDS)), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_sampled_ids_stay_verbatim_when_the_text_has_other_tokenisations(pieces):  # faults D1, D7
    sampled = [*(BPE_IDS[piece] for piece in pieces), BPE.eos_token_id]
    environment = ScriptedEnvironment([StepResult(messages=(Message("tool", "abc"),)), WON])
    clock = ManualClock()
    engine = ScriptedPolicy(BPE, lambda _: sampled)
    episode = make_episode(clock, engine, environment=environment, renderer=Renderer(BPE))
    trajectory = asyncio.run(clock.drive(episode.run()))
    assert trajectory.token_ids[trajectory.action_mask].tolist() == sampled * 2
    start = engine.requests[0].action_start
    assert list(engine.requests[1].token_ids[start : start + len(sampled)]) == sampled
    assert environment.actions == ["".join(pieces)] * 2


def test_an_action_that_ends_by_a_stop_string_gets_its_end_token_as_template():  # fault B4
    environment = ScriptedEnvironment([GO_ON, WON])
    renderer = Renderer(TOKENIZER, stop_strings=(";",))
    trajectory, _ = run_episode(environment, lambda _: encode("go;"), renderer=renderer)
    assert environment.actions == ["go", "go"]
    assert text_of(trajectory) == "<user>go<end><model>go;<end><tool>ok<end><model>go;"
    assert sampled_text(trajectory) == "go;go;"
    (_, first_action_end, *_) = [i for i, token in enumerate(trajectory.token_ids) if token == END]
    assert trajectory.roles[first_action_end - 1 : first_action_end + 1].tolist() == [Role.ACTION, Role.TEMPLATE]


def test_the_turn_limit_truncates_and_keeps_the_reward():  # fault A5
    environment = ScriptedEnvironment([StepResult(messages=(Message("tool", "ok"),), reward=0.5)])
    trajectory, _ = run_episode(environment, lambda _: "x", max_turns=3)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TURN_LIMIT)
    assert trajectory.total_reward == 1.5
    assert text_of(trajectory).endswith("<tool>ok<end><model>")
    assert environment.num_closed == 1


def test_terminated_and_truncated_by_the_environment_are_told_apart():  # faults A5, A7
    last = Message("tool", "bye")
    for terminated, truncated, expected in [
        (True, False, (Status.TERMINATED, None)),
        (True, True, (Status.TERMINATED, None)),
        (False, True, (Status.TRUNCATED, TruncationReason.ENVIRONMENT)),
    ]:
        step = StepResult(messages=(last,), reward=0.25, terminated=terminated, truncated=truncated)
        trajectory, _ = run_episode(ScriptedEnvironment([step]), lambda _: "x")
        assert (trajectory.status, trajectory.reason) == expected
        assert trajectory.total_reward == 0.25
        assert text_of(trajectory).endswith("bye<end><model>") == (expected[0] is Status.TRUNCATED)


def test_a_cut_action_is_truncation_and_never_a_malformed_action():  # faults F4, D7
    environment = ScriptedEnvironment([GO_ON])
    trajectory, _ = run_episode(environment, lambda _: "0123456789", max_turn_tokens=4)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TOKEN_LIMIT)
    assert sampled_text(trajectory) == "0123"
    assert environment.actions == []
    assert trajectory.total_reward == 0.0


def test_the_budget_of_a_turn_is_computed_before_the_call():  # fault F3
    trajectory, engine = run_episode(max_tokens=len(encode(WORKED)) - 5, max_turn_tokens=30)
    assert [request.max_new_tokens for request in engine.requests][-1] < 30
    assert all(len(r.token_ids) + r.max_new_tokens <= len(encode(WORKED)) - 5 for r in engine.requests)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TOKEN_LIMIT)


def test_an_answer_at_the_last_token_of_the_budget_is_scored():  # fault F4
    trajectory, _ = run_episode(max_tokens=len(encode(WORKED)))
    assert trajectory.status is Status.TERMINATED
    assert trajectory.total_reward == 1.0
    trajectory, _ = run_episode(max_turns=3)
    assert trajectory.status is Status.TERMINATED


def test_an_observation_ten_times_the_context_truncates_and_is_not_appended():  # fault F3
    step = StepResult(messages=(Message("tool", "y" * 1000),), reward=0.5)
    trajectory, _ = run_episode(ScriptedEnvironment([step]), lambda _: "x", max_tokens=100, max_observation_chars=5000)
    assert (trajectory.status, trajectory.reason) == (Status.TRUNCATED, TruncationReason.TOKEN_LIMIT)
    assert trajectory.total_reward == 0.5
    assert "y" not in text_of(trajectory)


def test_a_long_observation_is_cut_with_a_visible_marker():  # faults F3, K6
    step = StepResult(messages=(Message("tool", "y" * 1000),))
    trajectory, _ = run_episode(ScriptedEnvironment([step, WON]), lambda _: "x", max_observation_chars=10)
    assert "<tool>yyyyyyyyyy\n[cut: 990 more characters]<end>" in text_of(trajectory)
    assert trajectory.info == {"observations_cut": 1.0}


def test_undecodable_tool_output_does_not_end_an_episode():  # fault D9
    step = StepResult(messages=(Message("tool", "a\ud835\x00b"), Message("tool", b"\xff")))
    trajectory, _ = run_episode(ScriptedEnvironment([step, step, WON]), lambda _: "x")
    assert trajectory.status is Status.TERMINATED
    assert "<tool>a<unk><unk>b<end><tool><unk><end>" in text_of(trajectory)
    assert trajectory.info == {"observations_cleaned": 4.0}


@given(
    max_tokens=st.integers(8, 80),
    max_turn_tokens=st.integers(1, 12),
    max_turns=st.integers(1, 6),
    words=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 30)), min_size=1, max_size=5),
)
@settings(max_examples=100, deadline=None)
def test_no_limit_is_passed_and_each_reward_sits_on_the_end_of_an_action(max_tokens, max_turn_tokens, max_turns, words):
    steps = [StepResult(messages=(Message("tool", "o" * size),), reward=0.5) for _, size in words]
    says = iter(["a" * size for size, _ in words] * max_turns)
    trajectory, engine = run_episode(
        ScriptedEnvironment(steps),
        lambda _: next(says),
        max_tokens=max_tokens,
        max_turn_tokens=max_turn_tokens,
        max_turns=max_turns,
    )
    assert trajectory.status is Status.TRUNCATED
    assert len(trajectory.token_ids) <= max_tokens
    assert len(engine.requests) <= max_turns
    for position in trajectory.reward_positions:
        assert trajectory.roles[position] == Role.ACTION
        assert trajectory.token_ids[position] == END
    assert trajectory.total_reward == 0.5 * len(trajectory.reward_values)


def test_times_are_told_apart():
    clock = ManualClock(start=10.0)
    environment = ScriptedEnvironment([GO_ON, WON], clock=clock, wait_s=2.0)
    trajectory, _ = run_episode(environment, lambda _: "abc", clock=clock, tick_s=0.5)
    times = trajectory.times
    assert (times.issued_s, times.started_s, times.finished_s) == (0.0, 10.0, 18.0)
    assert (times.generating_s, times.tool_wait_s) == (4.0, 4.0)


def test_seeds_depend_on_run_attempt_and_purpose_alone():  # fault F11
    environment = ScriptedEnvironment([WON])
    _, engine = run_episode(environment, lambda _: "x")
    assert environment.seed == LEASE.attempt.seed(1, "environment")
    assert engine.requests[0].seed == LEASE.attempt.seed(1, "engine")
    assert environment.seed != engine.requests[0].seed


def test_a_version_that_changes_in_a_turn_is_stamped_per_token():
    clock = ManualClock()
    engine = ScriptedPolicy(TOKENIZER, lambda _: "abcd", clock=clock, tick_s=1.0)
    episode = make_episode(clock, engine, environment=ScriptedEnvironment([WON]))

    async def run():
        task = asyncio.ensure_future(episode.run())
        await clock.advance(2.5)
        await engine.load_weights({}, version=7)
        return await clock.drive(task)

    trajectory = asyncio.run(run())
    assert trajectory.versions[trajectory.action_mask].tolist() == [0, 0, 7, 7, 7]


def test_what_the_environment_reports_is_kept():
    first = StepResult(messages=(Message("tool", "ok"),), info={"a": 1.0, "b": 2})
    steps = [first, StepResult(terminated=True, info={"a": 3.0})]
    trajectory, _ = run_episode(ScriptedEnvironment(steps), lambda _: "x")
    assert trajectory.info == {"a": 3.0, "b": 2.0}
