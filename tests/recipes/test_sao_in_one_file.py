"""The one-file SAO takes the library's step, and its parts do what they say."""

import ast
import random
import re
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recipes import sao_in_one_file as one_file
from soliton.store.store import BatchItem
from soliton.types import Trajectory
from tests.unit.learner.learner_toys import batch_of, learner, method, micro_model, one_step

SOURCE = Path(one_file.__file__).read_text()


def plain(t: Trajectory) -> SimpleNamespace:
    """A trajectory of the library as the file reads it."""
    columns = zip(t.token_ids.tolist(), t.action_mask.tolist(), t.rollout_logprobs.tolist(), strict=True)
    return SimpleNamespace(tokens=[one_file.Token(*column) for column in columns], reward=t.total_reward)


def stale(items: list[BatchItem], policy: torch.nn.Module) -> list[BatchItem]:
    """The same with recorded log-probs around those of the policy, inside and outside of the band on both sides."""
    found = []
    rng = np.random.default_rng(0)
    for item in items:
        t = item.trajectory
        with torch.no_grad():
            now = one_file.logprobs_of(policy, one_file.Batch([plain(t)])).numpy()
        recorded = np.full(len(t.token_ids), np.nan, dtype=np.float32)
        recorded[t.action_mask] = np.minimum(now + rng.normal(0.0, 0.2, len(now)), -1e-3)
        fields = {name: getattr(t, name) for name in t.__struct_fields__} | {"rollout_logprobs": recorded}
        found.append(BatchItem(trajectory=type(t)(**fields), staleness=0, min_trusted_version=0, queued_s=0.0))
    return found


def gradients_at_each_update(optimizer: torch.optim.Optimizer) -> list[list[torch.Tensor]]:
    seen: list[list[torch.Tensor]] = []

    def note(moved: torch.optim.Optimizer, *_: object) -> None:
        seen.append([p.grad.clone() for group in moved.param_groups for p in group["params"] if p.grad is not None])

    optimizer.register_step_pre_hook(note)
    return seen


def assert_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_one_step_equals_the_step_of_the_library_to_a_millionth():
    rates = {"actor_lr": one_file.ACTOR_LR, "critic_lr": one_file.CRITIC_LR, "grad_clip": one_file.GRAD_CLIP}
    band = {"eps_low": one_file.EPS_LOW, "eps_high": one_file.EPS_HIGH, "alpha": one_file.ALPHA}
    library = learner(method("sao", critic_updates=one_file.K, **band), **rates)
    assert library.critic is not None
    with torch.no_grad():  # values that are not zero
        library.critic.model.value_head.weight.normal_(generator=torch.Generator().manual_seed(5))
    policy = micro_model(0)
    policy.config.num_labels = 1
    critic = one_file.critic_from(policy)
    critic.score.load_state_dict(library.critic.model.value_head.state_dict())
    for name, parameter in critic.named_parameters():
        parameter.requires_grad_(".mlp." in name or name.startswith("score."))
    optimizers = [torch.optim.AdamW(m.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.0)
                  for m, lr in ((policy, one_file.ACTOR_LR), (critic, one_file.CRITIC_LR))]  # fmt: skip
    mine = [gradients_at_each_update(optimizer) for optimizer in optimizers]
    theirs = [gradients_at_each_update(t.optimiser._adamw) for t in (library.actor, library.critic)]
    items = stale(batch_of(0), policy)

    numbers = one_file.sao_step(policy, critic, *optimizers, [plain(item.trajectory) for item in items])
    metrics = one_step(library, items)

    assert 0.1 < numbers["masked"] < 0.9
    assert [len(updates) for updates in mine] == [1, one_file.K] == [len(updates) for updates in theirs]
    for one, other in zip(mine, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    assert_equal(list(policy.parameters()), list(library.actor.model.parameters()))
    assert_equal(list(critic.model.parameters()), list(library.critic.model.backbone.parameters()))
    assert_equal(list(critic.score.parameters()), list(library.critic.model.value_head.parameters()))
    assert numbers["actor_loss"] == pytest.approx(metrics["actor/loss"], abs=1e-6)
    assert numbers["masked"] == pytest.approx(metrics["trust_mask/share"], abs=1e-6)
    assert numbers["explained"] == pytest.approx(metrics["critic/explained_var"], abs=1e-5)


def test_the_papers_numbers_of_the_advantages():
    assert one_file.skip_observation_gae([0.2, 0.5, 0.6], 1.0) == pytest.approx([0.61975, 0.41111, 0.4], abs=1e-5)
    assert one_file.skip_observation_gae([0.4, 0.3], 0.0) == pytest.approx([-0.3, -0.3])


def test_every_recorded_token_is_the_policys_own_and_a_trajectory_holds_several_versions():
    torch.manual_seed(0)
    policy = one_file.Qwen3ForCausalLM(tiny()).eval()
    policy.version = 0
    stream = one_file.rollouts(policy, (one_file.Episode(random.Random(i)) for i in range(40)))
    some = []
    for version, t in enumerate(islice(stream, 10)):
        some.append(t)
        policy.version = version + 1
    fresh = [t for t in some if {token.version for token in t.tokens if token.is_action} == {0}]
    assert fresh
    with torch.no_grad():
        batch = one_file.Batch(some)
        torch.testing.assert_close(one_file.logprobs_of(policy, batch), batch.recorded, atol=1e-5, rtol=1e-5)
    assert any(len({token.version for token in t.tokens if token.is_action}) > 1 for t in some)
    assert len(list(stream)) == 30  # every other episode is waited for


def tiny() -> one_file.Qwen3Config:
    return one_file.Qwen3Config(
        vocab_size=len(one_file.VOCAB), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, use_cache=False,
    )  # fmt: skip


def test_an_expert_without_slips_earns_the_reward():
    class Steady(random.Random):
        def random(self) -> float:
            return 1.0

    for seed in range(20):
        chain = random.Random(seed)
        episode = one_file.Episode(chain)
        while not episode.is_over:
            for token in one_file.line_of(one_file.expert(episode.chain), is_action=True):
                episode.act(token)
        assert episode.reward == 1
    earned = [one_file.demonstration(random.Random(seed)).reward for seed in range(200)]
    assert 0.2 < sum(earned) / 200 < 0.8


def test_it_runs_from_end_to_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_file, "BATCH", 4)
    monkeypatch.setattr(one_file, "IN_FLIGHT", 8)
    monkeypatch.setattr(one_file, "HELD_OUT", 4)
    one_file.main(imitations=2, pretraining_batches=1, steps=5)
    said = capsys.readouterr().out
    assert "step   5" in said
    assert "success after SAO" in said


@pytest.mark.slow
def test_it_learns_the_calculator(capsys: pytest.CaptureFixture[str]):
    one_file.main(seed=0)
    before, after = (float(number) for number in re.findall(r"success after \w+: ([0-9.]+)", capsys.readouterr().out))
    assert 0.2 < before < 0.5
    assert after > before + 0.2


def test_it_is_a_page_on_torch_and_transformers_alone():
    assert len(SOURCE.splitlines()) <= 250
    imported = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported - set(sys.stdlib_module_names) == {"torch", "transformers"}
