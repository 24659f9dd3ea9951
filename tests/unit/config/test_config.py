import math
from pathlib import Path

import pytest

from soliton.config import RunConfig, load_config, parse_config
from soliton.errors import ConfigError

MINIMAL = {"method": {"eps_low": 0.2, "eps_high": 0.28}, "learner": {"actor_lr": 1e-4, "critic_lr": 1e-3}}


def parsed(**changes) -> RunConfig:
    return parse_config({**MINIMAL, **changes}, source="test")


def message_of(**changes) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(**changes)
    return str(caught.value)


def test_a_resolved_configuration_written_as_toml_and_read_again_is_the_same(tmp_path: Path):
    config = parsed(seed=7, max_staleness="unbounded", stages=["train"])
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert load_config(path) == config
    assert load_config(path).sha256() == config.sha256()


def test_the_hash_depends_on_everything_but_the_run_folder():
    assert parsed(run={"dir": "a"}).sha256() == parsed(run={"dir": "b"}).sha256()
    assert parsed(seed=1).sha256() != parsed(seed=2).sha256()


def test_overrides_take_toml_values_and_bare_words(tmp_path: Path):
    path = tmp_path / "recipe.toml"
    path.write_text(parsed().to_toml())
    config = load_config(path, ["algorithm=grpo", "train.steps=3", "learner.actor_lr=1e-5", "eval.num_prompts = 5"])
    assert (config.algorithm, config.train.steps, config.learner.actor_lr) == ("grpo", 3, 1e-5)
    assert config.eval.num_prompts == 5


@pytest.mark.parametrize("override", ["train.steps", "=3", ""])
def test_a_malformed_override_says_what_one_looks_like(tmp_path: Path, override: str):
    path = tmp_path / "recipe.toml"
    path.write_text(parsed().to_toml())
    with pytest.raises(ConfigError, match=r"expected key\.path=value"):
        load_config(path, [override])


def test_an_override_through_a_value_is_refused(tmp_path: Path):
    path = tmp_path / "recipe.toml"
    path.write_text(parsed().to_toml())
    with pytest.raises(ConfigError, match="'seed' is a value, not a table"):
        load_config(path, ["seed.x=1"])


def test_every_violation_is_reported_at_once():
    text = message_of(sed=3, train={"steps": 0, "batchsize": 4}, algorithm="sap")
    assert "4 problems\n" in text
    assert "sed: unknown key; did you mean 'seed'?" in text
    assert "train.batchsize: unknown key; did you mean 'batch_size'?" in text
    assert "train.steps: got 0" in text
    assert "algorithm: got 'sap'" in text


def test_a_missing_band_is_an_error_and_never_symmetric():
    text = message_of(method={"eps_low": 0.2})
    assert "method.eps_high: required and missing" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": "grpo", "train": {"batch_size": 50}}, "no multiple of the group size 8 of 'grpo'; use 56"),
        ({"method": {**MINIMAL["method"], "group_size": 4}}, "'sao' has a critic and samples one rollout"),
        ({"algorithm": "grpo", "method": {**MINIMAL["method"], "group_size": 1}}, "compares >= 2 rollouts"),
        ({"method": {**MINIMAL["method"], "clip_low": 0.1}}, "method.clip_low: got 0.1, but 'sao' does not read it"),
        ({"algorithm": "grpo", "method": {**MINIMAL["method"], "alpha": 2.0}}, "'grpo' does not read it"),
        (
            {"algorithm": "reinforce", "method": {**MINIMAL["method"], "group_size": 2}},
            "'reinforce' samples one",
        ),
        ({"algorithm": "rloo", "method": {**MINIMAL["method"], "clip_low": 0.1}}, "'rloo' does not read it"),
        ({"algorithm": "vtrace", "method": {**MINIMAL["method"], "policy_lambda": 0.9}}, "'vtrace' does not read it"),
        ({"method": {**MINIMAL["method"], "baseline_window": 9}}, "method.baseline_window: got 9, but 'sao'"),
        ({"algorithm": "spo"}, "so prompts must come back; set env.num_prompts"),
        ({"algorithm": "running-mean"}, 'or method.baseline_scope = "global"'),
        ({"schedule": "synchronous", "max_staleness": 3}, "schedule = 'synchronous' means 0"),
        ({"schedule": "one-step-off", "when_too_old": "mask_tokens"}, "schedule = 'one-step-off' means 'wait'"),
        ({"sft": {"muon_lr": 0.1}}, "sft.muon_lr: got 0.1, but sft.optimiser = 'adamw' does not read it"),
        ({"sampling": {"top_p": 0.9}}, "each ratio would be biased by the mass cut off"),
        ({"sampling": {"top_k": 5}}, "use top_p = 1 and top_k = 0"),
        ({"max_staleness": -1}, "max_staleness: got -1"),
        ({"max_staleness": "unbounded", "when_too_old": "wait"}, "without a bound nothing is"),
        ({"method": {**MINIMAL["method"], "policy_lambda": 1.5}}, "method.policy_lambda"),
        ({"method": {**MINIMAL["method"], "alpha": math.inf}}, "method.alpha: got inf"),
        ({"method": {**MINIMAL["method"], "eps_high": math.inf}}, "method.eps_high: got inf"),
        ({"stages": ["train", "sft"]}, "in this order"),
        ({"stages": []}, "non-empty"),
        ({"init": {"run": "a", "model": "b"}}, "both run and model are given"),
        ({"limits": {"max_turn_tokens": 300, "max_tokens": 200}}, "a turn cannot be longer than its trajectory"),
    ],
)
def test_impossible_combinations_are_refused(changes, said):
    assert said in message_of(**changes)


def test_a_missing_recipe_and_broken_toml_are_clear(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such recipe"):
        load_config(tmp_path / "nothing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(broken)


def test_what_is_outstanding_can_be_limited_apart_from_what_is_in_flight():
    unbounded = {
        **MINIMAL,
        "max_staleness": "unbounded",
        "rollout": {"max_in_flight": 100},
        "train": {"batch_size": 10},
    }
    assert parse_config(unbounded, source="test").store_config().max_outstanding == 110
    more = {**unbounded, "rollout": {"max_in_flight": 100, "max_outstanding": 5_000}}
    assert parse_config(more, source="test").store_config().max_outstanding == 5_000
    assert parse_config(MINIMAL, source="test").store_config().max_outstanding is None
