"""Evaluation rollouts: every prompt once, in order, the same for equal policies."""

from dataclasses import replace

import numpy as np
import pytest

from soliton.engines.local import LocalEngine
from soliton.envs import BaseEnvironment
from soliton.errors import ConfigError, RunError
from soliton.models.load import load_causal_lm
from soliton.reasons import Status
from soliton.runtime.collect import collect
from soliton.runtime.setup import Setup, initial_critic_folder, initial_model_folder, make_setup
from tests.invariants.calculator_runs import WARM_START, small_run


@pytest.fixture(scope="module")
def setup(tmp_path_factory) -> Setup:
    config = small_run(tmp_path_factory.mktemp("unused"))
    return make_setup(config, WARM_START)


@pytest.fixture(scope="module")
def model():
    return load_causal_lm(WARM_START)


def same(left, right) -> bool:
    return all(
        np.array_equal(a.token_ids, b.token_ids)
        and np.allclose(a.rollout_logprobs, b.rollout_logprobs, atol=1e-4, equal_nan=True)
        for a, b in zip(left, right, strict=True)
    )


def test_results_come_in_the_order_of_the_prompts_and_all_are_finished(setup, model):
    prompts = setup.prompts.held_out(24, seed=1)
    done = []
    trajectories = collect(setup, model, prompts, seed=1, on_done=done.append)
    assert [t.prompt_id for t in trajectories] == [p.id for p in prompts]
    assert len(done) == 24
    assert all(t.status is not Status.FAILED for t in trajectories)
    assert 0 < sum(t.total_reward for t in trajectories) < 24


def test_a_trajectory_does_not_depend_on_what_else_is_rolled_out(setup, model):  # fault C7
    prompts = setup.prompts.held_out(24, seed=1)
    assert same(collect(setup, model, prompts[:5], seed=1), collect(setup, model, prompts, seed=1)[:5])


def test_an_engine_that_breaks_ends_the_collection_with_its_own_error(setup, model, monkeypatch):  # fault H3
    def breaks(_engine: LocalEngine) -> bool:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(LocalEngine, "step", breaks)
    with pytest.raises(ZeroDivisionError, match="a mistake of ours"):
        collect(setup, model, setup.prompts.held_out(4, seed=1), seed=1)


def test_another_seed_samples_other_tokens(setup, model):  # fault F11
    prompts = setup.prompts.held_out(8, seed=1)
    assert not same(collect(setup, model, prompts, seed=1), collect(setup, model, prompts, seed=2))


def test_training_and_held_out_prompts_are_disjoint(setup):
    held_out = {p.id for p in setup.prompts.held_out(256, seed=1234)}
    assert not held_out & {setup.prompts.at(draw).id for draw in range(2000)}


def test_what_init_names_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="holds no finished model"):
        initial_model_folder(small_run(tmp_path / "a", init={"run": str(tmp_path), "model": None}))
    with pytest.raises(ConfigError, match="no Hugging Face folder"):
        initial_model_folder(small_run(tmp_path / "a", init={"model": str(tmp_path)}))
    assert initial_critic_folder(small_run(tmp_path / "a")) is None


class Later(BaseEnvironment):
    """Ends with its reward to come from outside."""

    def opening(self):
        return str(self.content["expression"])

    def act(self, action):
        return self.end_later(within_s=5.0)


def test_a_reward_from_outside_cannot_be_evaluated_and_the_message_says_what_to_do(setup, model):
    later = replace(setup, task=replace(setup.task, make_environment=Later))
    with pytest.raises(RunError, match=r"reward awaited from outside.*drop the stages .*eval\.every_steps = 0"):
        collect(later, model, later.prompts.held_out(2, seed=1), seed=1)
