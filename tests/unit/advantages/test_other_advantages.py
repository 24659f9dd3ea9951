"""Leave-one-out, turns, naive GAE and V-trace: hand numbers, limiting cases, slow references over random packings."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.advantages import (
    last_tokens_of_turns,
    leave_one_out_advantages,
    naive_gae,
    skip_observation_gae,
    turn_gae,
    vtrace,
)

NAN = math.nan
PROPERTY = settings(max_examples=300, deadline=None, database=None, derandomize=True)


def f32(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def mask(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers) == 1


class Packed:
    """Segments that begin with an observation or an action, rewards on or after actions; numbers from a seed."""

    def __init__(self, shape: bytes, seed: int) -> None:
        rng = np.random.default_rng(seed)
        code = np.frombuffer(shape, dtype=np.uint8)
        starts = code % 4 == 0
        starts[0] = True
        self.segments = torch.from_numpy(np.cumsum(starts) - 1)
        self.mask = torch.from_numpy(starts | (code // 4 % 3 > 0))
        self.values = torch.from_numpy(rng.normal(size=len(code)).astype(np.float32))
        self.rewards = torch.from_numpy(np.where(code % 5 == 0, rng.normal(size=len(code)), 0.0).astype(np.float32))
        self.log_ratios = torch.from_numpy(rng.normal(0, 0.7, size=len(code)).astype(np.float32))
        self.gamma, self.lam = float(rng.choice([0.0, 1.0, rng.random()])), float(rng.choice([0.0, 1.0, rng.random()]))

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        return self.values, self.rewards, self.mask, self.segments


CASE = st.builds(Packed, st.binary(min_size=1, max_size=24), st.integers(0, 2**32))


def token_gae(p: Packed, lam: float | None = None) -> torch.Tensor:
    return skip_observation_gae(
        *p.arguments[:3], gamma=p.gamma, lam=p.lam if lam is None else lam, segment_ids=p.segments
    )


# --- leave one out


def test_the_baseline_is_the_mean_of_the_others() -> None:
    advantages = leave_one_out_advantages(f32(1, 0, 0, 5), ids(3, 3, 3, 8))
    torch.testing.assert_close(advantages, f32(1, -0.5, -0.5, 0))


@PROPERTY
@given(st.binary(min_size=1, max_size=12))
def test_leave_one_out_equals_a_slow_loop(members: bytes) -> None:
    groups, rewards = [byte % 4 for byte in members], [byte / 8 for byte in members]
    expected = []
    for i, group in enumerate(groups):
        others = [r for j, r in enumerate(rewards) if groups[j] == group and j != i]
        expected.append(rewards[i] - sum(others) / len(others) if others else 0.0)
    found = leave_one_out_advantages(torch.tensor(rewards), torch.tensor(groups))
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_a_reward_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rewards\[1\]"):
        leave_one_out_advantages(f32(0, NAN), ids(0, 0))


# --- turns

TWO_TURNS = (f32(0.2, 0.4, NAN, 0.5, 0.7), f32(0, 0, 0, 0, 1), mask(1, 1, 0, 1, 1), ids(0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("turn_value", "first", "second"),
    [("mean", (0.6 - 0.3) + 0.5 * 0.4, 0.4), ("last", (0.7 - 0.4) + 0.5 * 0.3, 0.3)],
)
def test_one_advantage_per_turn_from_its_mean_or_last_value(turn_value: str, first: float, second: float) -> None:
    advantages, returns = turn_gae(*TWO_TURNS, gamma=1.0, lam=0.5, turn_value=turn_value)  # type: ignore[arg-type]
    torch.testing.assert_close(advantages, f32(first, first, 0, second, second))
    own = {"mean": (0.3, 0.6), "last": (0.4, 0.7)}[turn_value]
    torch.testing.assert_close(returns, f32(first + own[0], first + own[0], 0, second + own[1], second + own[1]))


def test_the_last_token_of_a_turn_is_marked_also_where_segments_touch() -> None:
    ends = last_tokens_of_turns(mask(1, 1, 0, 1, 1, 1), ids(0, 0, 0, 0, 1, 1))
    assert ends.tolist() == [False, True, False, True, False, True]


@PROPERTY
@given(CASE, st.sampled_from(["mean", "last"]))
def test_turns_of_one_token_are_token_gae(p: Packed, turn_value: str) -> None:
    """Between any two action tokens an observation is inserted, which changes nothing for tokens."""
    size = 2 * len(p.values)
    spread = torch.arange(0, size, 2)

    def put(tensor: torch.Tensor, fill: float) -> torch.Tensor:
        out = torch.full((size,), fill, dtype=tensor.dtype)
        out[spread] = tensor
        return out

    apart = put(p.values, NAN), put(p.rewards, 0), put(p.mask, 0), p.segments.repeat_interleave(2)
    advantages, returns = turn_gae(*apart, gamma=p.gamma, lam=p.lam, turn_value=turn_value)  # type: ignore[arg-type]
    torch.testing.assert_close(advantages[spread], token_gae(p), atol=1e-5, rtol=1e-5)
    targets = torch.where(p.mask, token_gae(p) + p.values, 0.0)
    torch.testing.assert_close(returns[spread], targets, atol=1e-5, rtol=1e-5)


@PROPERTY
@given(CASE, st.sampled_from(["mean", "last"]))
def test_turn_gae_equals_a_slow_loop_over_turns(p: Packed, turn_value: str) -> None:
    expected = np.zeros(len(p.values))
    values, rewards, actions, segments = (tensor.tolist() for tensor in p.arguments)
    for segment in set(segments):
        turns: list[dict] = []
        for t in [t for t, s in enumerate(segments) if s == segment]:
            if actions[t] and (not turns or turns[-1]["tokens"][-1] != t - 1):
                turns.append({"tokens": [], "reward": 0.0})
            if actions[t]:
                turns[-1]["tokens"].append(t)
            turns[-1]["reward"] += rewards[t]
        running, next_value = 0.0, 0.0
        for turn in reversed(turns):
            own = [values[t] for t in turn["tokens"]]
            value = sum(own) / len(own) if turn_value == "mean" else own[-1]
            running = turn["reward"] + p.gamma * next_value - value + p.gamma * p.lam * running
            expected[turn["tokens"]] = running
            next_value = value
    found, _ = turn_gae(*p.arguments, gamma=p.gamma, lam=p.lam, turn_value=turn_value)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("at", [0, 3])
def test_a_reward_before_the_first_turn_of_its_segment_is_refused(at: int) -> None:
    rewards = torch.zeros(5)
    rewards[at] = 1.0
    with pytest.raises(ValueError, match=rf"rewards\[{at}\]"):
        turn_gae(torch.zeros(5), rewards, mask(0, 1, 0, 0, 1), ids(0, 0, 0, 1, 1), gamma=1, lam=1, turn_value="mean")


# --- naive GAE


def test_naive_gae_gives_the_faulty_numbers() -> None:  # fault A1
    advantages = naive_gae(
        f32(0.5, 0.6, 0.7, 0.1, 0.1), f32(0, 0, 0, 0, 1), mask(1, 1, 1, 0, 0), ids(0, 0, 0, 0, 0), gamma=1.0, lam=0.95
    )
    torch.testing.assert_close(advantages, f32(0.3866, 0.3016, 0.2123, 0, 0), atol=1e-4, rtol=0)


def test_a_value_inside_an_observation_reaches_the_actions_before_it() -> None:
    def advantages(observed: float) -> torch.Tensor:
        return naive_gae(f32(0, 0, observed, 0), torch.zeros(4), mask(0, 1, 0, 1), ids(0, 0, 0, 0), gamma=1.0, lam=0.5)

    assert advantages(0.0).tolist() == [0, 0, 0, 0]
    assert advantages(1.0)[1].item() == pytest.approx(1 - 0.5)


@PROPERTY
@given(CASE)
def test_without_observations_naive_gae_is_token_gae(p: Packed) -> None:
    p.mask = torch.ones_like(p.mask)
    found = naive_gae(*p.arguments, gamma=p.gamma, lam=p.lam)
    assert torch.equal(found, token_gae(p))


# --- V-trace


def traced(p: Packed, lam: float | None = None, **clips: float) -> tuple[torch.Tensor, torch.Tensor]:
    return vtrace(*p.arguments[:3], p.log_ratios, p.segments, gamma=p.gamma, lam=p.lam if lam is None else lam, **clips)


def test_vtrace_numbers_by_hand() -> None:
    """Weights .5 and 2 (truncated to 1), V = .4, .6, R = 1: delta_1 = .4, delta_0 = .5 * .2."""
    ratios = torch.log(f32(0.5, 2.0))
    arguments = (f32(0.4, 0.6), f32(0, 1), mask(1, 1), ratios, ids(0, 0))
    targets, advantages = vtrace(*arguments, gamma=1.0, lam=1.0)
    torch.testing.assert_close(targets, f32(0.4 + 0.1 + 0.5 * 0.4, 1.0))
    torch.testing.assert_close(advantages, f32(0.5 * (1.0 - 0.4), 0.4))


@PROPERTY
@given(CASE)
def test_on_policy_and_unclipped_vtrace_gives_lambda_returns(p: Packed) -> None:
    p.log_ratios = torch.zeros_like(p.log_ratios)
    targets, _ = traced(p)
    lambda_returns = torch.where(p.mask, token_gae(p) + p.values, 0.0)
    torch.testing.assert_close(targets, lambda_returns, atol=1e-5, rtol=1e-5)
    _, advantages = traced(p, lam=1.0)
    torch.testing.assert_close(advantages, token_gae(p, lam=1.0), atol=1e-5, rtol=1e-5)


@PROPERTY
@given(CASE)
def test_vtrace_equals_a_slow_loop(p: Packed) -> None:
    targets, advantages = traced(p, rho_clip=1.5, c_clip=0.8)
    values, rewards, actions, segments = (tensor.tolist() for tensor in p.arguments)
    for segment in set(segments):
        places = [t for t, s in enumerate(segments) if s == segment]
        tokens = [t for t in places if actions[t]]
        earned = dict.fromkeys(tokens, 0.0)
        for t in places:
            earned[max(a for a in tokens if a <= t)] += rewards[t]
        next_v, next_value = 0.0, 0.0
        for t in reversed(tokens):
            weight = math.exp(p.log_ratios[t].item())
            rho, c = min(1.5, weight), p.lam * min(0.8, weight)
            v = values[t] + rho * (earned[t] + p.gamma * next_value - values[t]) + p.gamma * c * (next_v - next_value)
            assert targets[t].item() == pytest.approx(v, rel=1e-4, abs=1e-4)
            assert advantages[t].item() == pytest.approx(
                rho * (earned[t] + p.gamma * next_v - values[t]), rel=1e-4, abs=1e-4
            )
            next_v, next_value = v, values[t]


def test_a_nan_value_or_ratio_off_the_mask_changes_nothing() -> None:
    targets, advantages = vtrace(
        f32(0.4, NAN, 0.6), f32(0, 0, 1), mask(1, 0, 1), f32(0, NAN, 0), ids(0, 0, 0), gamma=1.0, lam=1.0
    )
    torch.testing.assert_close(targets, f32(1, 0, 1))
    torch.testing.assert_close(advantages, f32(0.6, 0, 0.4))
    with pytest.raises(ValueError, match=r"log_ratios\[2\]"):
        vtrace(f32(0, 0, 0), f32(0, 0, 1), mask(1, 0, 1), f32(0, 0, NAN), ids(0, 0, 0), gamma=1.0, lam=1.0)
