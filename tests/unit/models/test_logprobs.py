import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.models import logprobs, token_logprobs


def full_computation(hidden, weight, labels, temperatures):
    """Slow and obvious: all logits at once."""
    log_p = torch.log_softmax((hidden @ weight.T) / temperatures[:, None], dim=-1)
    return log_p[torch.arange(len(labels)), labels], -(log_p.exp() * log_p).sum(-1)


def inputs(num_tokens=11, num_words=13, width=5, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(num_tokens, width, generator=g, dtype=dtype).requires_grad_()
    weight = torch.randn(num_words, width, generator=g, dtype=dtype).requires_grad_()
    labels = torch.randint(0, num_words, (num_tokens,), generator=g)
    temperatures = 0.2 + 1.5 * torch.rand(num_tokens, generator=g, dtype=dtype)
    return hidden, weight, labels, temperatures


def gradients(function, hidden, weight, labels, temperatures, factors):
    logprob, _ = function(hidden, weight, labels, temperatures)
    return torch.autograd.grad((logprob * factors).sum(), [hidden, weight])


@pytest.fixture
def three_tokens_at_a_time(monkeypatch):
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", 3 * 13 + 1)


def test_two_words_by_hand():
    weight, hidden = torch.tensor([[1.0], [0.0]]), torch.tensor([[math.log(3.0)]])
    logprob, entropy = token_logprobs(hidden, weight, torch.tensor([0]), torch.ones(1))
    assert logprob.item() == pytest.approx(math.log(0.75))
    assert entropy.item() == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))


def test_the_temperature_divides_the_logits_and_not_the_logprobs():  # fault C3
    weight, hidden = torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0]])
    for temperature in (0.2, 0.5, 1.0, 1.5):
        logprob, _ = token_logprobs(hidden, weight, torch.tensor([0]), torch.tensor([temperature]))
        assert logprob.item() == pytest.approx(-math.log1p(math.exp(-1 / temperature)), rel=1e-5)


def test_chunks_equal_the_full_computation(three_tokens_at_a_time):
    arguments = inputs()
    for ours, full in zip(token_logprobs(*arguments), full_computation(*arguments), strict=True):
        torch.testing.assert_close(ours, full, atol=1e-6, rtol=1e-6)


def test_gradients_equal_those_of_the_full_computation(three_tokens_at_a_time):
    arguments, factors = inputs(), torch.randn(11, generator=torch.Generator().manual_seed(1))
    for ours, full in zip(
        gradients(token_logprobs, *arguments, factors), gradients(full_computation, *arguments, factors), strict=True
    ):
        torch.testing.assert_close(ours, full, atol=1e-6, rtol=1e-6)


def test_gradients_equal_finite_differences(three_tokens_at_a_time):
    hidden, weight, labels, temperatures = inputs(num_tokens=5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda h, w: token_logprobs(h, w, labels, temperatures)[0], (hidden, weight))


def test_only_the_gradient_that_is_wanted_is_computed():
    hidden, weight, labels, temperatures = inputs()
    token_logprobs(hidden.detach(), weight, labels, temperatures)[0].sum().backward()
    assert hidden.grad is None
    assert weight.grad is not None
    frozen = weight.detach()
    token_logprobs(hidden, frozen, labels, temperatures)[0].sum().backward()
    assert hidden.grad is not None


def test_entropy_carries_no_gradient_unless_asked_for():
    logprob, entropy = token_logprobs(*inputs())
    assert logprob.requires_grad
    assert not entropy.requires_grad
    assert token_logprobs(*inputs(), entropy_gradient=True)[1].requires_grad


def test_the_entropys_gradient_by_hand():
    """Two words of logits (z, 0): H falls with the distance from z = 0 as -p (1 - p) z."""
    hidden = torch.tensor([[math.log(3.0)]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0]])
    _, entropy = token_logprobs(hidden, weight, torch.tensor([0]), torch.ones(1), entropy_gradient=True)
    (slope,) = torch.autograd.grad(entropy.sum(), hidden)
    assert slope.item() == pytest.approx(-0.75 * 0.25 * math.log(3.0))


@pytest.mark.parametrize("of_entropy", [0.0, 0.7])
def test_gradients_of_both_equal_those_of_the_full_computation(three_tokens_at_a_time, of_entropy):
    arguments = inputs()
    factors = torch.randn(2, 11, generator=torch.Generator().manual_seed(1))

    def gradients_of(outputs):
        logprob, entropy = outputs
        total = (logprob * factors[0]).sum() + of_entropy * (entropy * factors[1]).sum()
        return torch.autograd.grad(total, arguments[:2])

    ours = gradients_of(token_logprobs(*arguments, entropy_gradient=True))
    for mine, full in zip(ours, gradients_of(full_computation(*arguments)), strict=True):
        torch.testing.assert_close(mine, full, atol=1e-6, rtol=1e-5)


def test_the_entropys_gradient_equals_finite_differences(three_tokens_at_a_time):
    hidden, weight, labels, temperatures = inputs(num_tokens=5, dtype=torch.float64)

    def entropies(h, w):
        return token_logprobs(h, w, labels, temperatures, entropy_gradient=True)[1]

    assert torch.autograd.gradcheck(entropies, (hidden, weight))


def test_a_certain_token_has_an_entropy_gradient_of_zero_and_not_of_nan():
    hidden = torch.tensor([[1000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]])
    _, entropy = token_logprobs(hidden, weight, torch.tensor([0]), torch.ones(1), entropy_gradient=True)
    assert torch.autograd.grad(entropy.sum(), hidden)[0].item() == 0


@settings(max_examples=1000, deadline=None)
@given(
    num_tokens=st.integers(0, 12),
    num_words=st.integers(1, 20),
    chunk_elements=st.integers(1, 100),
    seed=st.integers(0, 2**31),
)
def test_the_size_of_the_chunks_changes_nothing(num_tokens, num_words, chunk_elements, seed):
    arguments = inputs(num_tokens, num_words, 3, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logprobs, "CHUNK_ELEMENTS", chunk_elements)
        ours = token_logprobs(*arguments)
    for actual, full in zip(ours, full_computation(*arguments), strict=True):
        torch.testing.assert_close(actual, full, atol=1e-5, rtol=1e-5)
    assert bool((ours[0] <= 1e-6).all())
    assert bool((ours[1] >= -1e-6).all())
    assert bool((ours[1] <= math.log(num_words) + 1e-5).all())


def test_large_logits_stay_finite():
    hidden, weight = torch.tensor([[1000.0]]), torch.tensor([[1.0], [-1.0], [0.0]])
    logprob, entropy = token_logprobs(hidden, weight, torch.tensor([1]), torch.ones(1))
    assert logprob.item() == pytest.approx(-2000)
    assert entropy.item() == 0


def test_no_tokens_give_a_graph_with_zero_gradients():
    hidden, weight, labels, temperatures = inputs(num_tokens=0)
    token_logprobs(hidden, weight, labels, temperatures)[0].sum().backward()
    assert hidden.grad is not None
    assert torch.equal(weight.grad, torch.zeros_like(weight))


def test_bfloat16_gives_float32_logprobs_and_a_gradient_in_its_own_dtype():
    hidden, weight, labels, temperatures = inputs()
    low = [tensor.detach().bfloat16().requires_grad_() for tensor in (hidden, weight)]
    logprob, _ = token_logprobs(*low, labels, temperatures)
    logprob.sum().backward()
    assert logprob.dtype == torch.float32
    assert low[1].grad.dtype == torch.bfloat16
    torch.testing.assert_close(logprob, full_computation(*inputs())[0], atol=0.3, rtol=0.1)


def test_full_logits_are_never_alive(monkeypatch):
    largest = 0
    original = logprobs._scaled_logits

    def watch(*arguments):
        nonlocal largest
        result = original(*arguments)
        largest = max(largest, result.numel())
        return result

    monkeypatch.setattr(logprobs, "_scaled_logits", watch)
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", 1000)
    hidden, weight, labels, temperatures = inputs(num_tokens=400, num_words=100)
    logprob, _ = token_logprobs(hidden, weight, labels, temperatures)
    saved = sum(tensor.numel() for tensor in logprob.grad_fn.saved_tensors)
    logprob.sum().backward()
    assert largest == 1000
    assert saved < hidden.numel() + weight.numel() + 3 * 400 + 1


def replaced(index, value):
    arguments = list(inputs())
    arguments[index] = value
    return arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (replaced(0, torch.zeros(12, 5)), "one entry per row"),  # one row longer than the labels
        (replaced(2, torch.zeros(12, dtype=torch.int64)), "one entry per row"),
        (replaced(3, torch.ones(10)), "one entry per row"),
        (replaced(0, torch.zeros(11, 6)), r"\[N, H\]"),
        (replaced(0, torch.zeros(1, 11, 5)), r"\[N, H\]"),
    ],
)
def test_lengths_that_differ_are_refused(arguments, message):  # fault B14
    with pytest.raises(ValueError, match=message):
        token_logprobs(*arguments)


@pytest.mark.parametrize("label", [-1, -100, 13])
def test_labels_outside_the_vocabulary_are_refused(label):
    labels = torch.zeros(11, dtype=torch.int64)
    labels[4] = label
    with pytest.raises(ValueError, match=rf"\[0, 13\), got {label} at index 4"):
        token_logprobs(*replaced(2, labels))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_temperatures_that_are_not_positive_numbers_are_refused(temperature):  # fault C3
    temperatures = torch.ones(11)
    temperatures[2] = temperature
    with pytest.raises(ValueError, match="at index 2"):
        token_logprobs(*replaced(3, temperatures))


def test_labels_that_are_not_int64_are_refused():
    with pytest.raises(ValueError, match="int64"):
        token_logprobs(*replaced(2, torch.zeros(11)))
