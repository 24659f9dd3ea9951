"""SAO in one file: a small language model learns to use a calculator by single-rollout asynchronous optimization.

All of "Single-Rollout Asynchronous Optimization for Agentic Reinforcement Learning" (arXiv 2607.07508) on torch and
transformers alone; § and Eq. are the paper's. Read from the top: task, rollouts, two formulas, one step, a run.

    python recipes/sao_in_one_file.py [SEED]

A token is an ACTION token if the policy sampled it; the others (the prompt, what the tool says) are observations.
"""

import math
import random
import re
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, Qwen3ForTokenClassification, set_seed

EPS_LOW, EPS_HIGH = 0.2, 0.28  # trust band (0.8, 1.28), for a model of this size; §4.1 at 30B: (0.7, 6) and (0.2, 4)
ALPHA, K = 1.5, 2  # of the length-adaptive lambda (§4.1); critic updates per actor update (§3.2)
ACTOR_LR, CRITIC_LR, GRAD_CLIP = 1e-4, 1e-3, 1.0
BATCH, IN_FLIGHT, HELD_OUT = 64, 192, 512  # a step takes 64 rollouts of 64 prompts; 192 are being written

# ---- Task: operations modulo 100, from left to right. Prompt, action, tool, action, tool, answer (reward 0 or 1):
#     78-62*3   78-62   16*3   16*3   48   =48
VOCAB, MAX_TOKENS = "\n0123456789+-*=", 96
OPERATION = re.compile(r"(\d+)([-+*])(\d+)")


def tool(chain: str, request: str) -> str:
    """Put the value of the requested operation in place of the chain's first one; nothing if it is no operation."""
    if not (asked := OPERATION.fullmatch(request)):
        return ""
    left, operator, right = int(asked[1]), asked[2], int(asked[3])
    value = {"+": left + right, "-": left - right, "*": left * right}[operator] % 100
    return OPERATION.sub(str(value), chain, count=1)


def expert(chain: str) -> str:
    return f"={chain}" if chain.isdigit() else OPERATION.match(chain)[0]


# ---- Rollouts
class Token(NamedTuple):
    id: int
    is_action: bool
    logprob: float = math.nan  # log pi_rollout, recorded when the token was sampled
    version: int = -1  # of the policy that sampled it


def line_of(text: str, is_action: bool) -> list[Token]:
    return [Token(VOCAB.index(character), is_action) for character in text + "\n"]


class Episode:
    """One rollout. What is learned from it, its trajectory, are the `tokens` and the `reward`."""

    def __init__(self, rng: random.Random) -> None:
        self.chain = "".join(f"{rng.choice('+-*')}{rng.randrange(100)}" for _ in range(rng.randint(2, 5)))[1:]
        self.tokens, self.reward, self.line, self.answer = line_of(self.chain, is_action=False), 0.0, "", self.chain
        while not self.answer.isdigit():
            self.answer = tool(self.answer, expert(self.answer))

    def act(self, token: Token) -> None:
        self.tokens.append(token)
        self.line += VOCAB[token.id]
        if self.line.endswith("\n"):
            self.reward = float(self.line == f"={self.answer}\n")
            self.chain, self.line = tool(self.chain, self.line[:-1]), ""
            self.tokens += line_of(self.chain, is_action=False) if self.chain else []

    @property
    def is_over(self) -> bool:
        return not self.chain or len(self.tokens) >= MAX_TOKENS


def rollouts(policy: PreTrainedModel, episodes: Iterator[Episode]) -> Iterator[Episode]:
    """Keep IN_FLIGHT episodes going, a token each in turn, and hand out each of them as soon as it is over.

    This is the asynchrony: whoever takes one may change the policy, and those in flight go on under the new weights.
    """
    running = list(islice(episodes, IN_FLIGHT))
    while running:
        running.sort(key=lambda episode: len(episode.tokens))  # neighbours of like length need little padding
        for i, token in enumerate(sample(policy, running)):
            running[i].act(token)
            if running[i].is_over:
                yield running[i]
                running[i] = next(episodes, None)
        running = [episode for episode in running if episode]


@torch.no_grad()
def sample(policy: PreTrainedModel, episodes: list[Episode], rows: int = 32) -> Iterator[Token]:
    """The next token of each, at temperature 1 and top-p 1. No keys and values are kept: new weights act at once."""
    for start in range(0, len(episodes), rows):
        some = episodes[start : start + rows]
        last = torch.tensor([len(episode.tokens) - 1 for episode in some])
        logprobs = policy(padded(some, "id")).logits[torch.arange(len(some)), last].log_softmax(-1)
        chosen = torch.multinomial(logprobs.exp(), 1)
        for token, logprob in zip(chosen, logprobs.gather(1, chosen), strict=True):
            yield Token(int(token), True, float(logprob), policy.version)


# ---- The two formulas
def dis_loss(logprobs: Tensor, recorded: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """Direct double-sided importance sampling (§3.1, Eq. 1-3), over all action tokens of the batch.

        r = exp(log pi_theta - log pi_rollout),   f(r) = r inside the band, else 0, whatever the sign of A
        loss = - mean of f(r) A log pi_theta

    REINFORCE with a weight: no gradient goes through f(r), and there is no pi_old. A token outside the band adds
    nothing and stays in the mean. Returns the loss, and which tokens are inside.
    """
    log_ratio = (logprobs - recorded).detach()
    inside = (log_ratio > math.log1p(-EPS_LOW)) & (log_ratio < math.log1p(EPS_HIGH))
    weight = log_ratio.masked_fill(~inside, -math.inf).exp()  # decided before exp, which could overflow
    return -(weight * advantages * logprobs).mean(), inside


def skip_observation_gae(values: list[float], reward: float) -> list[float]:
    """Token GAE over the action tokens of a trajectory, as if there were no observations (§3.2, Eq. 4-5); gamma is 1.

        delta_k = r_k + V_{k+1} - V_k,   A_k = delta_k + lambda A_{k+1},   lambda = 1 - 1 / (alpha l)   (§4.1)

    V_k is the value of all that stands before action token k; the reward belongs to the last of the l action tokens.
    """
    lam = max(0.0, 1 - 1 / (ALPHA * len(values)))
    advantages, advantage, expected = [], 0.0, reward
    for value in reversed(values):
        advantage = expected - value + lam * advantage
        advantages.append(advantage)
        expected = value
    return advantages[::-1]


# ---- One step
def critic_from(policy: PreTrainedModel) -> PreTrainedModel:
    """V of the tokens so far, at every position: as large as the policy, started from it, with a head that says 0."""
    critic = Qwen3ForTokenClassification(policy.config)  # a classifier of tokens with one label
    critic.model.load_state_dict(policy.model.state_dict())
    for parameter in critic.score.parameters():
        nn.init.zeros_(parameter)
    return critic.eval()


def padded(trajectories: list[Episode], field: str) -> Tensor:
    rows = [torch.tensor([getattr(token, field) for token in t.tokens]) for t in trajectories]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


class Batch:
    def __init__(self, trajectories: list[Episode]) -> None:
        self.ids = padded(trajectories, "id")  # [B, L], padding on the right, where causal attention never looks
        self.acted = padded(trajectories, "is_action")[:, 1:]  # [B, L - 1]: the output at t speaks about token t + 1
        self.recorded = padded(trajectories, "logprob")[:, 1:][self.acted]  # [n] log pi_rollout of the action tokens
        rewards = torch.tensor([t.reward for t in trajectories])
        self.returns = rewards[:, None].expand_as(self.acted)[self.acted]  # [n] at lambda_critic = 1 (§4.1)


def logprobs_of(policy: PreTrainedModel, batch: Batch) -> Tensor:
    logprobs = policy(batch.ids).logits[:, :-1][batch.acted].log_softmax(-1)
    return logprobs.gather(1, batch.ids[:, 1:][batch.acted][:, None]).squeeze(1)


def move(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], GRAD_CLIP)
    optimizer.step()
    optimizer.zero_grad()


def fit_critic(critic: PreTrainedModel, optimizer: torch.optim.Optimizer, batch: Batch) -> Tensor:
    """One update by the squared error to the return; gives the values of the action tokens from BEFORE it."""
    values = critic(batch.ids).logits[:, :-1, 0][batch.acted]
    move(optimizer, (values - batch.returns).square().mean())
    return values.detach()


def sao_step(policy, critic, actor_optimizer, critic_optimizer, trajectories: list[Episode]) -> dict[str, float]:
    """K updates of the critic and one of the actor, each over the whole batch (§3)."""
    batch = Batch(trajectories)
    values = fit_critic(critic, critic_optimizer, batch)  # not yet knowing these rewards (§3.2 can be read otherwise)
    of_each = zip(values.split(batch.acted.sum(1).tolist()), trajectories, strict=True)
    advantages = torch.tensor([a for v, t in of_each for a in skip_observation_gae(v.tolist(), t.reward)])
    loss, inside = dis_loss(logprobs_of(policy, batch), batch.recorded, advantages)
    move(actor_optimizer, loss)  # a distributed run publishes these weights now, while the critic goes on
    for _ in range(K - 1):
        fit_critic(critic, critic_optimizer, batch)
    unexplained = float((batch.returns - values).var() / batch.returns.var())
    return {"actor_loss": loss.item(), "masked": 1 - inside.float().mean().item(), "explained": 1 - unexplained}


# ---- A run
def demonstration(rng: random.Random) -> Episode:
    """An expert with slips of the pen: who imitates it knows the task, and fails often."""
    episode = Episode(rng)
    while not episode.is_over:
        line, slips = expert(episode.chain), rng.random() < 0.25
        line = re.sub(r"\d$", rng.choice("0123456789"), line) if slips else line
        for token in line_of(line, is_action=True):
            episode.act(token)
    return episode


def success(policy: PreTrainedModel) -> float:
    held_out = (Episode(random.Random(f"held out {i}")) for i in range(HELD_OUT))
    return fmean(t.reward for t in rollouts(policy, held_out))  # every episode waited for


def main(seed: int = 0, imitations: int = 400, pretraining_batches: int = 8, steps: int = 60) -> None:
    set_seed(seed)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "initializer_range": 0.08}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True}
    policy = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(VOCAB), num_labels=1, use_cache=False, **sizes, **heads))
    policy.version = 0
    adamw, rng = partial(torch.optim.AdamW, betas=(0.9, 0.95), weight_decay=0.0), random.Random(seed)
    optimizer = adamw(policy.parameters(), 3e-3)
    for left in range(imitations, 0, -1):  # the warm start: supervised, on demonstrations
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (imitations - left) / 40, 2 * left / imitations)
        move(optimizer, -logprobs_of(policy, Batch([demonstration(rng) for _ in range(32)])).mean())
    print(f"success after imitation: {success(policy):.3f}", flush=True)

    stream, critic = rollouts(policy, (Episode(random.Random(f"{seed} {i}")) for i in count())), critic_from(policy)
    corpus = [Batch(list(islice(stream, BATCH))) for _ in range(pretraining_batches)]
    optimizer = adamw(critic.parameters(), CRITIC_LR)
    for batch in corpus * 4:  # value pretraining (§3.2): all of the critic learns what the first policy earns
        fit_critic(critic, optimizer, batch)
    for name, parameter in critic.named_parameters():  # from now on its attention is frozen (§3.2)
        parameter.requires_grad_(".mlp." in name or name.startswith("score."))
    optimizers = adamw(policy.parameters(), ACTOR_LR), adamw(critic.parameters(), CRITIC_LR)
    for step in range(1, steps + 1):
        trajectories = list(islice(stream, BATCH))
        ages = [policy.version - token.version for t in trajectories for token in t.tokens if token.is_action]
        metrics = {"reward": fmean(t.reward for t in trajectories), "age": fmean(ages), "oldest": max(ages)}
        metrics |= sao_step(policy, critic, *optimizers, trajectories)
        policy.version = step
        if step % 5 == 0:
            print(f"step {step:3}", *(f"{name} {value:.3f}" for name, value in metrics.items()), sep="  ", flush=True)
    print(f"success after SAO: {success(policy):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
