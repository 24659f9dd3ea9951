"""From outputs to values: ranges, limits, gradients; and that a critic keeps its head on disk."""

import json
import math

import pytest
import torch

from soliton.errors import ConfigError
from soliton.models import Critic, FrozenPrefix, ValueHead, freeze, outputs_after_rows, resolve_trainable

HEADS = [ValueHead(), ValueHead("sigmoid"), ValueHead("arctan"), ValueHead("arctan", 2.5)]


def test_values_by_hand():
    outputs = torch.tensor([0.0, math.log(3.0)])
    assert ValueHead("sigmoid").values(outputs).tolist() == pytest.approx([0.5, 0.75])
    at_half = 2 * 1.5 / math.pi  # arctan(1) = pi / 4 is half of the bound
    assert ValueHead("arctan", 1.5).values(torch.tensor([0.0, at_half, -at_half])).tolist() == pytest.approx(
        [0, 0.75, -0.75]
    )


def test_the_linear_head_is_the_output_itself():
    outputs = torch.randn(3, 4)
    assert ValueHead().values(outputs) is outputs


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_values_increase_with_the_output_and_stay_in_their_bounds(head: ValueHead):
    values = head.values(torch.linspace(-20, 20, 201, dtype=torch.float64))
    low, high = head.bounds
    assert bool((values[1:] > values[:-1]).all())
    assert low <= float(values[0])
    assert float(values[-1]) <= high


def test_a_wide_arctangent_is_the_linear_head_and_its_slope_at_zero_is_one():
    outputs = torch.tensor([0.0, 0.7, -3.0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ValueHead("arctan", 1e6).values(outputs), outputs)
    (slopes,) = torch.autograd.grad(ValueHead("arctan").values(outputs).sum(), outputs)
    assert slopes.tolist() == pytest.approx([1 / (1 + (math.pi * z / 2) ** 2) for z in (0.0, 0.7, -3.0)])


@pytest.mark.parametrize(("name", "bound"), [("tanh", 1.0), ("arctan", 0.0), ("arctan", math.inf)])
def test_a_head_that_is_none_is_refused(name: str, bound: float):
    with pytest.raises(ValueError, match="a value head is one of"):
        ValueHead(name, bound)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_a_saved_critic_comes_back_with_its_head(head: ValueHead, tied_model, ids, tmp_path):  # fault A13
    critic = Critic.from_causal_lm(tied_model, head)
    with torch.no_grad():
        critic.value_head.weight.normal_(generator=torch.Generator().manual_seed(0))
    critic.save(tmp_path / "critic")
    loaded = Critic.load(tmp_path / "critic")
    assert loaded.head == head
    assert torch.equal(loaded.values(ids), critic.values(ids))
    assert torch.equal(loaded.values(ids), head.values(loaded.outputs(ids)))


def test_a_critic_from_before_there_were_heads_is_linear(tied_model, tmp_path):
    Critic.from_causal_lm(tied_model, ValueHead("sigmoid")).save(tmp_path / "critic")
    manifest = tmp_path / "critic" / "critic.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: value for name, value in content.items() if name != "head"}))
    assert Critic.load(tmp_path / "critic").head == ValueHead()


def test_a_head_of_another_version_is_refused(tied_model, tmp_path):
    Critic.from_causal_lm(tied_model).save(tmp_path / "critic")
    manifest = tmp_path / "critic" / "critic.json"
    manifest.write_text(manifest.read_text().replace('"linear"', '"tanh"'))
    with pytest.raises(ConfigError, match=r"value head .*tanh.* cannot be read"):
        Critic.load(tmp_path / "critic")


def test_the_frozen_prefix_gives_outputs_and_values_of_the_critics_head(tied_model, ids):
    critic = Critic.from_causal_lm(tied_model, ValueHead("sigmoid"))
    freeze(critic, resolve_trainable(critic, "mlp"))
    prefix = FrozenPrefix(critic)
    assert torch.equal(prefix.outputs(0, ids), critic.outputs(ids))
    assert torch.equal(prefix.values(0, ids), critic.values(ids))


def test_the_output_after_a_row_is_the_one_at_its_last_token():
    outputs = torch.arange(8.0).view(2, 4).requires_grad_()
    after = outputs_after_rows(outputs, torch.tensor([2, 4]))
    assert after.tolist() == [1, 7]
    (gradient,) = torch.autograd.grad(after.sum(), outputs)
    assert gradient.nonzero().tolist() == [[0, 1], [1, 3]]


@pytest.mark.parametrize("lengths", [[0, 4], [1, 5]])
def test_rows_without_tokens_or_longer_than_the_batch_are_refused(lengths: list[int]):
    with pytest.raises(ValueError, match=r"lengths must be in \[1, 4\]"):
        outputs_after_rows(torch.zeros(2, 4), torch.tensor(lengths))
    with pytest.raises(ValueError, match=r"lengths must be \[2\]"):
        outputs_after_rows(torch.zeros(2, 4), torch.tensor([1]))
