import pytest
import torch

from soliton.models import outputs_before_tokens

INDEX_CRITIC = torch.arange(6.0).expand(2, 6)
"""Outputs of a fake critic that returns its own position."""


def test_a_token_is_paired_with_the_output_that_has_read_only_what_precedes_it():  # faults A10, C1
    mask = torch.tensor([[False, True, True, False, False, True], [False, False, False, True, False, False]])
    paired = outputs_before_tokens(INDEX_CRITIC, mask)
    own_position = INDEX_CRITIC[mask]
    assert paired.tolist() == [0, 1, 4, 2]
    assert torch.equal(paired, own_position - 1)


def test_hidden_states_keep_their_width_and_the_order_of_boolean_indexing():
    outputs = torch.randn(3, 5, 7)
    mask = torch.rand(3, 5) < 0.5
    mask[:, 0] = False
    expected = torch.stack([outputs[b, t - 1] for b in range(3) for t in range(5) if mask[b, t]])
    assert torch.equal(outputs_before_tokens(outputs, mask), expected)


def test_gradients_reach_the_position_before_the_token_and_no_other():
    outputs = torch.zeros(1, 4, requires_grad=True)
    outputs_before_tokens(outputs, torch.tensor([[False, False, True, False]])).sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.tolist() == [[0, 1, 0, 0]]


def test_a_first_token_has_nothing_before_it_and_is_refused():
    mask = torch.tensor([[False, True], [True, False]])
    with pytest.raises(ValueError, match=r"rows \[1\]"):
        outputs_before_tokens(torch.zeros(2, 2), mask)


@pytest.mark.parametrize(
    ("outputs", "mask", "message"),
    [
        (torch.zeros(2, 5), torch.zeros(2, 4, dtype=torch.bool), "shape"),  # fault B14: longer than its mask
        (torch.zeros(2, 5), torch.zeros(2, 5), "boolean"),
        (torch.zeros(5), torch.zeros(5, dtype=torch.bool), "shape"),
    ],
)
def test_outputs_that_do_not_match_their_mask_are_refused(outputs, mask, message):
    with pytest.raises(ValueError, match=message):
        outputs_before_tokens(outputs, mask)


def test_an_empty_mask_picks_nothing():
    assert outputs_before_tokens(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool)).shape == (0, 4)
