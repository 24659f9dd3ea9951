"""GAE, V-trace, the PPO clip and group advantages give the numbers of torchrl, where it is installed."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from soliton.advantages import group_advantages, skip_observation_gae, vtrace
from soliton.losses import ppo_clip_loss, reinforce_loss

pytest.importorskip("torchrl", reason="torchrl is not installed: pip install 'soliton[peers]'")
tensordict = pytest.importorskip("tensordict")

from tensordict import TensorDict  # noqa: E402
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential  # noqa: E402
from tensordict.nn import TensorDictModule as Module  # noqa: E402
from torchrl.modules.distributions import OneHotCategorical  # noqa: E402
from torchrl.objectives import ClipPPOLoss  # noqa: E402
from torchrl.objectives.llm import GRPOLoss, MCAdvantage  # noqa: E402
from torchrl.objectives.value import functional as theirs  # noqa: E402


def column(tensor: Tensor) -> Tensor:
    """torchrl's [time, feature]."""
    return tensor[:, None]


class Packed:
    """Three trajectories with observations between actions, and what is left of each without them."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.action_mask = self.normal(30) > -0.4
        self.segment_ids = torch.arange(30) // 10
        self.action_mask[::10] = True  # so that every reward has an action before it
        self.values, self.log_ratios = self.normal(30), 0.5 * self.normal(30)
        self.rewards = self.normal(30) * (self.normal(30) > 0.5)  # some on observations

    def normal(self, size: int) -> Tensor:
        return torch.randn(size, generator=self.generator)

    def alone(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Where the action tokens of each trajectory are, and what each of them earned."""
        for segment in range(3):
            actions = (self.action_mask & (self.segment_ids == segment)).nonzero().flatten()
            earned = torch.zeros(len(actions))
            for t in range(10 * segment, 10 * segment + 10):
                earned[int((actions <= t).sum()) - 1] += self.rewards[t]
            yield actions, earned


def ends(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values after each step, and done at the last one."""
    after = torch.cat([values[1:], torch.zeros(1)])
    done = torch.zeros(len(values), dtype=torch.bool)
    done[-1] = True
    return after, done


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.3), (0.97, 1.0)])
def test_gae_over_action_tokens_is_theirs_on_what_is_left_without_observations(seed: int, gamma: float, lam: float):
    p = Packed(seed)
    mine = skip_observation_gae(p.values, p.rewards, p.action_mask, gamma=gamma, lam=lam, segment_ids=p.segment_ids)
    for actions, earned in p.alone():
        values = p.values[actions]
        after, done = ends(values)
        for gae in (theirs.generalized_advantage_estimate, theirs.vec_generalized_advantage_estimate):
            advantages, targets = gae(gamma, lam, *map(column, (values, after, earned, done)))
            torch.testing.assert_close(mine[actions], advantages.squeeze(1), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(mine[actions] + values, targets.squeeze(1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("rho_clip", "c_clip"), [(1.0, 1.0), (2.0, 0.8)])
def test_vtrace_is_theirs_at_lambda_one(seed: int, rho_clip: float, c_clip: float):
    p = Packed(seed)
    targets, advantages = vtrace(
        p.values,
        p.rewards,
        p.action_mask,
        p.log_ratios,
        p.segment_ids,
        gamma=0.97,
        lam=1.0,
        rho_clip=rho_clip,
        c_clip=c_clip,
    )
    for actions, earned in p.alone():
        values, log_pi = p.values[actions], p.log_ratios[actions]
        after, done = ends(values)
        found = theirs.vtrace_advantage_estimate(
            0.97,
            *map(column, (log_pi, torch.zeros_like(log_pi), values, after, earned, done)),
            rho_thresh=rho_clip,
            c_thresh=c_clip,
        )
        torch.testing.assert_close(advantages[actions], found[0].squeeze(1), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(targets[actions], found[1].squeeze(1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.0, 0.0], [0.2, 0.9, -3.0, 0.4], [1.0, 1.0, 1.0, 1.0]])
def test_group_advantages_are_theirs(rewards: list[float]):
    transform = MCAdvantage(grpo_size=4, prompt_key="group", trajectory_return="sum")
    for reward in rewards:
        step = TensorDict(
            {
                "group": torch.zeros(2, dtype=torch.int64),
                "next": {"reward": torch.tensor([[0.0], [reward]]), "done": torch.tensor([[False], [True]])},
            },
            batch_size=[2],
        )
        found = transform.inv(step)
    mine = group_advantages(torch.tensor(rewards), torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(mine.repeat_interleave(2), found["advantage"].flatten(), atol=1e-5, rtol=1e-5)


# --- the clip


class Tokens:
    """Logits of 12 tokens, what was chosen, how likely it was, and advantages of both signs."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logits = torch.randn(12, 5, generator=generator).requires_grad_()
        self.chosen = torch.randint(0, 5, (12,), generator=generator)
        self.recorded = (self.logprobs() + 0.4 * torch.randn(12, generator=generator)).detach()
        self.advantages = torch.randn(12, generator=generator)

    def logprobs(self) -> Tensor:
        return self.logits.log_softmax(-1).gather(1, self.chosen[:, None]).squeeze(1)

    def gradient(self, loss: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(loss, self.logits)
        return found

    def mine(self, low: float, high: float, mask: Tensor) -> Tensor:
        arguments = self.logprobs(), self.recorded, self.advantages, mask
        return ppo_clip_loss(*arguments, clip_low=low, clip_high=high).loss


def test_the_ppo_clip_is_theirs():
    tokens = Tokens()
    identity = Module(nn.Identity(), in_keys=["logits"], out_keys=["logits"])
    choice = ProbabilisticTensorDictModule(
        ["logits"], ["action"], distribution_class=OneHotCategorical, return_log_prob=True
    )
    loss = ClipPPOLoss(ProbabilisticTensorDictSequential(identity, choice), None, clip_epsilon=0.2, entropy_bonus=False)
    found = loss(
        TensorDict(
            {
                "logits": tokens.logits,
                "action": nn.functional.one_hot(tokens.chosen, 5),
                "action_log_prob": tokens.recorded,
                "advantage": column(tokens.advantages),
            },
            batch_size=[12],
        )
    )["loss_objective"]
    mine = tokens.mine(0.2, 0.2, torch.ones(12, dtype=torch.bool))
    torch.testing.assert_close(mine, found)
    torch.testing.assert_close(tokens.gradient(mine), tokens.gradient(found))


class Scripted(nn.Module):
    """An actor in torchrl's sense whose distribution is given."""

    in_keys = ("logits",)

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def get_dist(self, data: TensorDict, logits_key: str) -> torch.distributions.Categorical:
        distribution = torch.distributions.Categorical(logits=data[logits_key])
        distribution.mask = self.mask
        return distribution


def test_the_masked_token_mean_of_the_clip_higher_of_grpo_is_theirs():
    tokens = Tokens()
    mask = torch.tensor([True, True, False, True, True, True, True, True, False, False, True, True])
    loss = GRPOLoss(Scripted(mask), clip_epsilon=(0.2, 0.28), entropy_bonus=False, masking_strategy="generic")
    found = loss(
        TensorDict(
            {
                "logits": tokens.logits[None],
                "tokens": {"full": tokens.chosen[None]},
                "log_probs": {"full": tokens.recorded[None]},
                "advantage": tokens.advantages[None, :, None],
            },
            batch_size=[1],
        )
    ).loss_objective
    mine = tokens.mine(0.2, 0.28, mask)
    torch.testing.assert_close(mine, found.squeeze())
    torch.testing.assert_close(tokens.gradient(mine), tokens.gradient(found.squeeze()))


def test_the_comparison_sees_another_loss():
    tokens = Tokens()
    everywhere = torch.ones(12, dtype=torch.bool)
    other = reinforce_loss(tokens.logprobs(), tokens.advantages, everywhere).loss
    assert not torch.allclose(tokens.gradient(tokens.mine(0.2, 0.2, everywhere)), tokens.gradient(other))
