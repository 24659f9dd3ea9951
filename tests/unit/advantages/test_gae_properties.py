"""skip_observation_gae over random packings: 1,000 cases for each invariance, 300 for each slow reference.

A case is a byte string (one byte per token: its bits say what the token is, so it shrinks to few tokens) and a seed
for the numbers.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.advantages import skip_observation_gae

PROPERTY = settings(max_examples=1_000, deadline=None, database=None, derandomize=True)
JUNK = np.array([0.0, 1.0, -100.0, math.nan, math.inf, -math.inf], dtype=np.float32)
NEW_SEGMENT, ACTION, REWARD = 1, 2, 4


@dataclass(frozen=True)
class Packed:
    """Packed segments; each starts with an action token, so that any reward has an owner."""

    values: np.ndarray
    rewards: np.ndarray
    mask: np.ndarray
    ids: np.ndarray
    lambdas: np.ndarray
    bootstraps: np.ndarray
    gamma: float

    def part(self, segment: int) -> "Packed":
        here = self.ids == segment
        return Packed(
            self.values[here],
            self.rewards[here],
            self.mask[here],
            np.zeros(here.sum(), dtype=np.int64),
            self.lambdas[[segment]],
            self.bootstraps[[segment]],
            self.gamma,
        )


def case(shape: bytes, seed: int) -> Packed:
    rng = np.random.default_rng(seed)
    code = np.frombuffer(shape, dtype=np.uint8)
    starts = (code & NEW_SEGMENT) > 0
    starts[0] = True
    ids = np.cumsum(starts) - 1
    size, segments = len(code), int(ids[-1]) + 1
    edges = np.array([0.0, 1.0])
    return Packed(
        values=rng.normal(size=size).astype(np.float32),
        rewards=np.where(code & REWARD, rng.normal(size=size), 0.0).astype(np.float32),
        mask=starts | ((code & ACTION) > 0),
        ids=ids,
        lambdas=rng.choice([*edges, rng.random(), rng.random()], size=segments),
        bootstraps=rng.choice([0.0, rng.normal()], size=segments).astype(np.float32),
        gamma=float(rng.choice([*edges, rng.random()])),
    )


CASE = st.builds(case, st.binary(min_size=1, max_size=24), st.integers(0, 2**32))


def gae(packed: Packed) -> np.ndarray:
    return skip_observation_gae(
        torch.from_numpy(packed.values),
        torch.from_numpy(packed.rewards),
        torch.from_numpy(packed.mask),
        gamma=packed.gamma,
        lam=torch.from_numpy(packed.lambdas),
        segment_ids=torch.from_numpy(packed.ids),
        bootstrap_values=torch.from_numpy(packed.bootstraps),
    ).numpy()


def slow_gae(packed: Packed) -> np.ndarray:
    """The definition read backwards over every token, without deleting anything; one float64 at a time."""
    result = np.zeros(len(packed.values))
    segment, next_value, next_advantage, waiting_reward = -1, 0.0, 0.0, 0.0
    for t in range(len(result) - 1, -1, -1):
        if packed.ids[t] != segment:
            segment = int(packed.ids[t])
            next_value, next_advantage, waiting_reward = float(packed.bootstraps[segment]), 0.0, 0.0
        waiting_reward += float(packed.rewards[t])
        if packed.mask[t]:
            value = float(packed.values[t])
            delta = waiting_reward + packed.gamma * next_value - value
            next_advantage = delta + packed.gamma * float(packed.lambdas[segment]) * next_advantage
            next_value, waiting_reward = value, 0.0
            result[t] = next_advantage
    return result


@settings(PROPERTY, max_examples=300)
@given(CASE)
def test_it_equals_a_slow_loop_over_every_token(packed: Packed) -> None:
    np.testing.assert_allclose(gae(packed), slow_gae(packed), atol=1e-5, rtol=1e-6)


@PROPERTY
@given(CASE, st.integers(0, 2**32))
def test_inserted_observations_change_no_advantage(packed: Packed, seed: int) -> None:  # fault A1
    rng = np.random.default_rng(seed)
    num_inserted = int(rng.integers(1, 12))
    kept = np.sort(rng.permutation(len(packed.values) + num_inserted - 1)[: len(packed.values) - 1] + 1)
    kept = np.concatenate(([0], kept)).astype(np.int64)  # the first token stays first: each id needs an owner
    size = len(packed.values) + num_inserted
    owner = np.searchsorted(kept, np.arange(size), side="right") - 1
    is_kept = np.zeros(size, dtype=bool)
    is_kept[kept] = True
    longer = replace(
        packed,
        values=np.where(is_kept, packed.values[owner], rng.choice(JUNK, size=size)),
        rewards=np.where(is_kept, packed.rewards[owner], np.float32(0)),
        mask=is_kept & packed.mask[owner],
        ids=packed.ids[owner],
    )
    after = gae(longer)
    assert after[kept].tobytes() == gae(packed).tobytes()
    assert not after[~is_kept].any()


@PROPERTY
@given(CASE, st.integers(0, 2**32))
def test_the_order_of_packing_changes_no_advantage(packed: Packed, seed: int) -> None:  # fault A7
    order = np.random.default_rng(seed).permutation(len(packed.lambdas))
    tokens = np.concatenate([np.flatnonzero(packed.ids == segment) for segment in order])
    new_id = np.argsort(order)
    shuffled = replace(
        packed,
        values=packed.values[tokens],
        rewards=packed.rewards[tokens],
        mask=packed.mask[tokens],
        ids=new_id[packed.ids[tokens]],
        lambdas=packed.lambdas[order],
        bootstraps=packed.bootstraps[order],
    )
    assert gae(shuffled).tobytes() == gae(packed)[tokens].tobytes()


@PROPERTY
@given(CASE)
def test_a_split_into_calls_changes_no_advantage(packed: Packed) -> None:  # fault A7
    alone = [gae(packed.part(segment)) for segment in range(len(packed.lambdas))]
    assert gae(packed).tobytes() == np.concatenate(alone).tobytes()


@PROPERTY
@given(CASE, st.integers(0, 2**32))
def test_masked_values_change_nothing_bit_for_bit(packed: Packed, seed: int) -> None:  # fault A4
    junk = np.random.default_rng(seed).choice(JUNK, size=len(packed.values))
    poisoned = replace(packed, values=np.where(packed.mask, packed.values, junk))
    assert gae(poisoned).tobytes() == gae(packed).tobytes()


@settings(PROPERTY, max_examples=300)
@given(CASE)
def test_a_masked_reward_counts_as_if_on_its_action(packed: Packed) -> None:  # faults A1, A2
    moved = packed.rewards.astype(np.float64) * packed.mask
    owners = np.maximum.accumulate(np.where(packed.mask, np.arange(len(moved)), 0))
    np.add.at(moved, owners[~packed.mask], packed.rewards[~packed.mask].astype(np.float64))
    np.testing.assert_allclose(gae(replace(packed, rewards=moved)), gae(packed), atol=1e-6, rtol=1e-6)
