import numpy as np
import pytest
import torch

from soliton.errors import RunError
from soliton.learner.config import ValuePretrainingConfig
from soliton.learner.packing import pack
from soliton.learner.value_pretraining import monte_carlo_returns, pretrain_values, split_by_prompt
from soliton.models import Critic
from soliton.reasons import Status
from soliton.types import AttemptId, Times, Trajectory
from tests.unit.learner.learner_toys import learner, method, micro_model, moved, trajectory, weights


def readable(count: int, seed: int) -> list[Trajectory]:
    """The reward can be read off the second token."""
    rng = np.random.default_rng(seed)
    made = []
    for draw in range(count):
        good = int(rng.integers(0, 2))
        ids = [1, 5 + good, *rng.integers(8, 20, int(rng.integers(2, 5)))]
        actions = np.arange(len(ids)) >= 2
        made.append(
            Trajectory(
                attempt=AttemptId(draw), prompt_id=f"p{draw // 2}", status=Status.TERMINATED, token_ids=ids,
                roles=np.where(actions, 2, 1), rollout_logprobs=np.where(actions, -1.0, np.nan),
                versions=np.where(actions, 0, -1), reward_positions=[len(ids) - 1], reward_values=[float(good)],
                times=Times(0.0, 0.0, 1.0),
            )
        )  # fmt: skip
    return made


def config(**settings: object) -> ValuePretrainingConfig:
    return ValuePretrainingConfig(**({"lr": 1e-2, "batch_size": 16, "micro_batch_tokens": 60} | settings))


def test_the_critic_learns_returns_it_can_read_and_says_how_well():
    critic = Critic.from_causal_lm(micro_model())
    before, seen = weights(critic), []
    result = pretrain_values(critic, readable(128, 0), config(max_epochs=4), seed=0, progress=seen.append)
    assert result.corpus_size == 128 == result.num_train + result.num_held_out
    assert result.num_held_out == 16
    assert result.explained_variance_before == pytest.approx(0.0, abs=1e-6)
    assert result.explained_variance_after > 0.8
    assert [e.epoch for e in seen] == list(range(result.epochs + 1))
    assert seen[result.best_epoch].explained_variance == result.explained_variance_after
    assert seen[-1].loss < seen[1].loss
    assert result.updates == result.epochs * 7
    assert moved(before, critic) == set(before)  # all parameters train, attention too


def test_a_frozen_critic_trains_wholly_here_and_is_frozen_again_by_the_learner():
    target = learner()
    critic = target.critic.model
    before = weights(critic)
    pretrain_values(critic, readable(64, 0), config(max_epochs=1), seed=0)
    assert "backbone.layers.0.self_attn.q_proj.weight" in moved(before, critic)
    assert all(p.requires_grad for p in critic.parameters())


def test_it_stops_at_a_plateau_and_keeps_the_best_epoch():
    seen = []
    critic = Critic.from_causal_lm(micro_model())
    settings = config(max_epochs=30, patience=2, min_gain=0.01)
    result = pretrain_values(critic, readable(64, 1), settings, seed=0, progress=seen.append)
    assert result.epochs < 30
    best = max(e.explained_variance for e in seen)
    assert result.explained_variance_after == best
    # No gain over the last `patience` epochs.
    earlier = max(e.explained_variance for e in seen[: -settings.patience])
    assert all(e.explained_variance < earlier + settings.min_gain for e in seen[-settings.patience :])
    from soliton.learner.value_pretraining import held_out_explained_variance

    _, held_out = split_by_prompt(readable(64, 1), 0)
    assert held_out_explained_variance(critic, held_out, 60) == pytest.approx(best, abs=1e-6)


def test_no_prompt_is_in_both_parts_and_the_seed_decides():
    made = readable(80, 0)
    train, held_out = split_by_prompt(made, 0)
    assert {t.prompt_id for t in train}.isdisjoint({t.prompt_id for t in held_out})
    assert len({t.prompt_id for t in held_out}) == 5  # an eighth of 40 prompts
    assert {t.attempt for t in split_by_prompt(made, 0)[1]} == {t.attempt for t in held_out}
    assert {t.attempt for t in split_by_prompt(made, 1)[1]} != {t.attempt for t in held_out}


def test_targets_are_the_sum_of_rewards_to_come():
    t = trajectory(np.random.default_rng(0), turns=3, reward=2.5)
    batch = pack([t], what="test", max_padded_tokens=100, device=torch.device("cpu"))
    returns = monte_carlo_returns(batch)
    assert returns[batch.action_mask].tolist() == [2.5] * t.num_action_tokens
    assert returns[~batch.action_mask].tolist() == [0.0] * int((~batch.action_mask).sum())


def test_the_pretrained_head_is_what_rl_starts_from():  # fault A13
    critic = Critic.from_causal_lm(micro_model())
    result = pretrain_values(critic, readable(64, 0), config(max_epochs=3), seed=0)
    from soliton.learner.config import LearnerConfig
    from soliton.learner.learner import Learner
    from tests.unit.learner.learner_toys import item

    target = Learner(actor=micro_model(), critic=critic, method=method(), config=LearnerConfig())
    target.start_step([item(t) for t in split_by_prompt(readable(64, 0), 0)[1]])
    target.update_actor()
    assert target.finish_step()["critic/explained_var"] == pytest.approx(result.explained_variance_after, abs=1e-5)


def test_one_prompt_or_equal_returns_are_refused():
    made = readable(2, 0)
    with pytest.raises(ValueError, match="at least 2 prompts"):
        pretrain_values(Critic.from_causal_lm(micro_model()), made, config(), seed=0)
    rng = np.random.default_rng(0)
    same = [trajectory(rng, draw, reward=1.0) for draw in range(16)]
    with pytest.raises(RunError, match="equal"):
        pretrain_values(Critic.from_causal_lm(micro_model()), same, config(), seed=0)
