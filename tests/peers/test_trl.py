"""Losses and advantages of GRPO, GSPO and RLOO give the gradients and numbers of TRL's trainers (extra `peers`).

TRL's `compute_loss` runs on the same weights and tokens as one step of the learner here: prompts of unlike length,
tool answers inside the completion (its `tool_mask`), completions of unlike length.
"""

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("trl", reason="trl is not installed: pip install 'soliton[peers]'")

from datasets import Dataset
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from soliton.advantages import group_advantages, leave_one_out_advantages
from soliton.learner.learner import Learner
from soliton.learner.method import Method
from soliton.models import new_causal_lm, tiny_qwen3_config
from soliton.models.character_tokenizer import character_tokenizer
from soliton.types import Role, Trajectory
from tests.unit.learner.learner_toys import item, learner, method, micro_model, one_step, trajectory

REWARDS = [1.0, 0.25, 0.0, 0.5]
"""Two groups of two."""


def trainer_of(kind: Any, config: Any, model: PreTrainedModel, folder: Path, **settings: Any) -> Any:
    arguments = config(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to=[],
        beta=0.0,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=4,
        **settings,
    )
    return kind(
        model=model,
        reward_funcs=lambda completions, **_: REWARDS,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "1+1"}, {"prompt": "2*3"}]),
        processing_class=character_tokenizer(),
    )


def trajectories() -> list[Trajectory]:
    rng = np.random.default_rng(0)
    return [
        trajectory(rng, draw=i // 2, sample=i % 2, turns=1 + i % 3, reward=reward) for i, reward in enumerate(REWARDS)
    ]


def their_inputs(made: list[Trajectory], advantages: Tensor) -> dict[str, Tensor]:
    """Prompts padded on the left, completions on the right."""
    starts = [int(np.flatnonzero(t.action_mask)[0]) for t in made]
    before, after = max(starts), max(len(t.token_ids) - s for t, s in zip(made, starts, strict=True))
    inputs = {name: torch.zeros(len(made), before, dtype=torch.int64) for name in ("prompt_ids", "prompt_mask")}
    for name in ("completion_ids", "completion_mask", "tool_mask"):
        inputs[name] = torch.zeros(len(made), after, dtype=torch.int64)
    inputs["old_per_token_logps"] = torch.zeros(len(made), after)
    for row, (t, start) in enumerate(zip(made, starts, strict=True)):
        ids, length = torch.from_numpy(t.token_ids.astype(np.int64)), len(t.token_ids) - start
        inputs["prompt_ids"][row, before - start :] = ids[:start]
        inputs["prompt_mask"][row, before - start :] = 1
        inputs["completion_ids"][row, :length] = ids[start:]
        inputs["completion_mask"][row, :length] = 1
        inputs["tool_mask"][row, :length] = torch.from_numpy(t.action_mask[start:]).long()
        inputs["old_per_token_logps"][row, :length] = torch.from_numpy(np.nan_to_num(t.rollout_logprobs[start:]))
    return inputs | {"advantages": advantages, "num_items_in_batch": inputs["tool_mask"].sum()}


def their_gradient(trainer: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    trainer.current_gradient_accumulation_steps = 1  # what Trainer.train sets
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, inputs).backward()
    return {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}


def my_gradient(chosen: Method, made: list[Trajectory]) -> tuple[dict[str, Tensor], Learner]:
    target = learner(chosen)
    seen: list[dict[str, Tensor]] = []
    original = target.actor.optimiser.step

    def step(scene: Any) -> float:
        seen.append({name: p.grad.clone() for name, p in target.actor.optimiser.parameters.items()})
        return original(scene)

    target.actor.optimiser.step = step  # type: ignore[method-assign]
    one_step(target, [item(t) for t in made])
    return seen[0], target


def assert_same(mine: dict[str, Tensor], theirs: dict[str, Tensor], scale: float = 1.0) -> None:
    assert any(bool(gradient.any()) for gradient in mine.values())
    assert mine.keys() == theirs.keys()
    for name, gradient in mine.items():
        torch.testing.assert_close(
            gradient, scale * theirs[name], rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}"
        )


def advantages_of_groups(made: list[Trajectory]) -> Tensor:
    rewards = torch.tensor([t.total_reward for t in made])
    return group_advantages(rewards, torch.tensor([t.attempt.draw for t in made]))


def test_a_step_of_grpo_has_the_gradient_of_trls_token_mean(tmp_path: Path):
    """Without recorded log-probs of an older policy TRL takes the policy's own, as the preset does."""
    made = trajectories()
    trainer = trainer_of(
        GRPOTrainer, GRPOConfig, micro_model(0), tmp_path, loss_type="bnpo", epsilon=0.2, epsilon_high=0.28
    )
    inputs = their_inputs(made, advantages_of_groups(made))
    del inputs["old_per_token_logps"]
    assert_same(my_gradient(method("grpo", group_size=2), made)[0], their_gradient(trainer, inputs))


def test_a_step_of_gspo_has_the_gradient_of_trls_sequence_ratio(tmp_path: Path):
    made = trajectories()
    trainer = trainer_of(
        GRPOTrainer,
        GRPOConfig,
        micro_model(0),
        tmp_path,
        loss_type="grpo",
        importance_sampling_level="sequence",
        epsilon=0.2,
        epsilon_high=0.28,
    )
    mine, _ = my_gradient(method("gspo", group_size=2, clip_low=0.2, clip_high=0.28), made)
    assert_same(mine, their_gradient(trainer, their_inputs(made, advantages_of_groups(made))))


def test_the_clip_of_ppo_against_the_recorded_logprobs_is_trls(tmp_path: Path):
    """`spo` is the preset that clips against the sampler with one advantage per trajectory."""
    made = trajectories()
    rewards = torch.tensor(REWARDS) - 0.5
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    trainer = trainer_of(
        GRPOTrainer, GRPOConfig, micro_model(0), tmp_path, loss_type="dapo", epsilon=0.2, epsilon_high=0.28
    )
    assert_same(my_gradient(method("spo"), made)[0], their_gradient(trainer, their_inputs(made, advantages)))


def test_a_step_of_rloo_has_trls_gradient_but_for_the_denominator(tmp_path: Path):
    """At ratio 1. TRL divides by trajectories, this library by action tokens."""
    made = [
        trajectory(np.random.default_rng(i), draw=i // 2, sample=i % 2, turns=1, reward=reward)
        for i, reward in enumerate(REWARDS)
    ]
    advantages = leave_one_out_advantages(torch.tensor(REWARDS), torch.tensor([0, 0, 1, 1]))
    trainer = trainer_of(RLOOTrainer, RLOOConfig, micro_model(0), tmp_path)
    inputs = their_inputs(made, advantages)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width = inputs["completion_ids"].shape[1]
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=mask).logits[:, -width - 1 : -1]
    taken = logits.log_softmax(-1).gather(2, inputs["completion_ids"][..., None]).squeeze(2)
    inputs["old_logps"] = (taken * inputs["completion_mask"]).sum(1)
    mine, _ = my_gradient(method("rloo", group_size=2), made)
    tokens = sum(t.num_action_tokens for t in made)
    assert_same(mine, their_gradient(trainer, inputs), scale=len(made) / tokens)


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_advantages_of_groups_are_those_that_trl_computes_from_its_rewards(kind: str, tmp_path: Path):
    """TRL generates, rewards and scores; its deviation has an epsilon of 1e-4 where the preset has 1e-6."""
    tokenizer = character_tokenizer()
    model = new_causal_lm(tiny_qwen3_config(len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=0), 0)
    classes = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}[kind]
    trainer = trainer_of(*classes, model, tmp_path)
    prompts = [{"prompt": "1+1"}, {"prompt": "1+1"}, {"prompt": "2*3"}, {"prompt": "2*3"}]
    found = trainer._generate_and_score_completions(copy.deepcopy(prompts))["advantages"]
    rewards, groups = torch.tensor(REWARDS), torch.tensor([0, 0, 1, 1])
    mine = {
        "grpo": lambda: group_advantages(rewards, groups, eps=1e-4),
        "rloo": lambda: leave_one_out_advantages(rewards, groups),
    }[kind]()
    torch.testing.assert_close(mine, found, atol=1e-6, rtol=1e-6)


def test_the_tokens_given_to_trl_are_those_of_the_trajectories():
    made = trajectories()
    inputs = their_inputs(made, torch.zeros(4))
    assert int(inputs["tool_mask"].sum()) == sum(t.num_action_tokens for t in made)
    assert int((inputs["completion_mask"] - inputs["tool_mask"]).sum()) > 0  # tool answers in between
    assert any((t.roles == Role.OBSERVATION).any() for t in made)
