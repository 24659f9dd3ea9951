"""Metrics of a step by hand numbers: ages, ratios, gaps by version, entropy bins, values; the same for every method."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from soliton.algorithms.build import PRESETS
from soliton.algorithms.traits import TRAITS
from soliton.learner.actor import ActorPass
from soliton.learner.packing import pack
from soliton.learner.step_metrics import (
    actor_metrics,
    consumption_metrics,
    entropy_metrics,
    lag_metrics,
    parity_metrics,
)
from soliton.losses import band_metrics
from soliton.metrics import METRICS
from tests.unit.learner.learner_toys import item, learner, method, one_step, trajectory

EVERY_METHOD = {
    "reward/mean", "tokens/action", "trajectory/truncated_share", "staleness/mean", "staleness/max",
    "staleness/generating_mean", "staleness/waiting_mean", "staleness/token_mean", "staleness/token_max",
    "actor/loss", "actor/grad_norm", "actor/entropy", "actor/signal_share", "trust_mask/share",
    "trust_mask/share_low", "trust_mask/share_high", "trust_mask/share_high_positive",
    "trust_mask/share_high_negative", "trust_mask/share_low_positive", "trust_mask/share_low_negative",
    "trust_mask/share_entropy_high", "ratio/mean", "ratio/max", "ratio/effective_share", "log_ratio/abs_mean",
    "parity/same_version_gap_mean", "parity/older_version_gap_mean", "advantage/mean", "advantage/std",
    "reward/by_staleness_0", "reward/by_staleness_3",
}  # fmt: skip
WITH_A_CRITIC = {"critic/loss", "critic/explained_var", "critic/grad_norm", "critic/value_min", "critic/value_max"}


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_method_reports_the_same_metrics_and_all_are_in_the_table(name: str):
    rng = np.random.default_rng(0)
    made = [trajectory(rng, d, turns=3, reward=float(d % 2), first_version=d) for d in range(4)]
    target = learner(method(name))
    target.start_step([item(t, staleness=s) for t, s in zip(made, (0, 0, 3, 5), strict=True)], version=5)
    target.update_actor()
    metrics = target.finish_step()
    expected = EVERY_METHOD | (WITH_A_CRITIC if TRAITS[name].critic else set())
    assert expected - set(metrics) == set()
    assert set(metrics) - set(METRICS) == set()
    assert all(math.isfinite(value) for value in metrics.values())


def with_versions(t, versions: list[int]):
    fields = {name: getattr(t, name) for name in t.__struct_fields__}
    given = np.full(len(t.token_ids), -1)
    given[t.action_mask] = versions
    return type(t)(**{**fields, "versions": given})


def two_trajectories():
    """Four action tokens of versions 1, 1, 3, 3 and two of version 4."""
    rng = np.random.default_rng(5)
    made = []
    for draw, versions in enumerate(([1, 1, 3, 3], [4, 4])):
        t = trajectory(rng, draw, turns=1)
        while t.num_action_tokens != len(versions):
            t = trajectory(rng, draw, turns=1)
        made.append(with_versions(t, versions))
    return pack(made, what="test", max_padded_tokens=1000, device=torch.device("cpu"))


def test_generating_waiting_and_token_ages_by_hand():
    assert lag_metrics(two_trajectories(), 5) == {
        "staleness/generating_mean": 1.0,  # (2 + 0) / 2
        "staleness/waiting_mean": 1.5,  # (5 - 3, 5 - 4) / 2
        "staleness/token_mean": pytest.approx(5 - 16 / 6),
        "staleness/token_max": 4.0,
    }


def test_without_a_version_of_its_own_the_learner_reports_no_age_against_it():
    assert list(lag_metrics(two_trajectories(), None)) == ["staleness/generating_mean"]
    batch = two_trajectories()
    found = parity_metrics(batch, batch.rollout_logprobs.nan_to_num(), None)
    assert sorted(found) == ["parity/newest_gap_max", "parity/newest_gap_mean"]


def test_gaps_of_the_learners_own_version_are_apart_from_those_of_older_ones():  # fault C13
    batch = two_trajectories()
    policy = batch.rollout_logprobs.nan_to_num()
    policy[batch.versions == 4] += 0.25
    policy[batch.versions == 1] -= 1.0
    found = parity_metrics(batch, policy, 4)
    assert found["parity/same_version_gap_mean"] == found["parity/same_version_gap_max"] == pytest.approx(0.25)
    assert found["parity/older_version_gap_mean"] == pytest.approx(0.5)
    assert "parity/same_version_gap_mean" not in parity_metrics(batch, policy, 5)


def test_rewards_by_age_by_hand_and_ages_that_do_not_occur_are_absent():
    rng = np.random.default_rng(0)
    items = [
        item(trajectory(rng, d, reward=reward, truncated=d == 0), staleness=age)
        for d, (reward, age) in enumerate([(1.0, 0), (0.0, 0), (1.0, 2), (0.25, 3), (0.75, 9)])
    ]
    found = consumption_metrics(items, dropped=None)
    by_age = {name: value for name, value in found.items() if "by_staleness" in name}
    assert by_age == {
        "reward/by_staleness_0": 0.5,
        "reward/by_staleness_2": 1.0,
        "reward/by_staleness_3": 0.5,
    }
    assert (found["staleness/mean"], found["staleness/max"], found["trajectory/truncated_share"]) == (2.8, 9.0, 0.2)


def test_ratio_mean_and_effective_sample_size_by_hand():
    log_ratios = torch.tensor([3.0, 1.0, 1.0, 1.0]).log()
    everywhere = torch.ones(4, dtype=torch.bool)
    done = ActorPass(
        moved=True, lr=0.0, grad_norm=0.0, loss=0.0, entropies=torch.tensor([1.0, 2.0, 0.0, 1.0]),
        logprobs=log_ratios, band=band_metrics(log_ratios, torch.zeros(4), everywhere, low=0.5, high=2.0),
        signal=torch.tensor([True, False, True, True]), terms={},
    )  # fmt: skip
    found = actor_metrics(done)
    assert found["ratio/mean"] == pytest.approx(1.5)
    assert found["ratio/effective_share"] == pytest.approx(36 / 12 / 4)
    assert (found["actor/entropy"], found["actor/signal_share"], found["trust_mask/share_high"]) == (1, 0.75, 0.25)
    equal = replace(done, band=band_metrics(torch.zeros(4), torch.zeros(4), everywhere, low=0.5, high=2.0))
    assert actor_metrics(equal)["ratio/effective_share"] == 1


def test_mask_shares_by_entropy_by_hand():
    batch = two_trajectories()
    entropies = torch.zeros(len(batch.rewards))
    entropies[batch.action_mask] = torch.tensor([0.05, 0.05, 0.5, 2.0, 2.0, 2.0])
    outside = torch.zeros(len(batch.rewards), dtype=torch.bool)
    outside[batch.action_mask] = torch.tensor([True, False, False, True, True, False])
    policy = batch.rollout_logprobs.nan_to_num() + torch.where(outside, 5.0, 0.0)
    assert entropy_metrics(batch, policy, entropies, (0.5, 2.0)) == {
        "trust_mask/share_entropy_low": 0.5,
        "trust_mask/share_entropy_middle": 0.0,
        "trust_mask/share_entropy_high": pytest.approx(2 / 3),
    }
    low_only = entropy_metrics(batch, policy, torch.zeros_like(entropies), (0.5, 2.0))
    assert list(low_only) == ["trust_mask/share_entropy_low"]


def test_the_range_of_values_is_of_action_tokens_before_the_fit():
    target = learner()
    with torch.no_grad():
        target.critic.model.value_head.bias.fill_(0.5)
    rng = np.random.default_rng(0)
    metrics = one_step(target, [item(trajectory(rng, d)) for d in range(2)])
    assert metrics["critic/value_min"] == metrics["critic/value_max"] == metrics["critic/value_mean"] == 0.5
