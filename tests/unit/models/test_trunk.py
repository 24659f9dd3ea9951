import pytest
import torch
from torch import nn
from transformers import Gemma2Config

from soliton.errors import ConfigError
from soliton.models import causal_hidden, lm_head_weight, new_causal_lm, tiny_qwen3_config, token_logprobs
from soliton.models.trunk import check_plain_projection


@torch.no_grad()
def test_hidden_states_times_the_projection_are_the_logits(model, ids):
    logits = model(input_ids=ids).logits
    torch.testing.assert_close(causal_hidden(model, ids) @ lm_head_weight(model).T, logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_logprobs_of_a_sequence_are_the_same_alone_and_padded(model, ids):  # fault C7
    lengths = [17, 9, 4]
    ones = torch.ones(16)
    batch = causal_hidden(model, ids)
    for row, length in enumerate(lengths):
        labels = ids[row, 1:length]
        alone = causal_hidden(model, ids[row : row + 1, :length])[0, :-1]
        expected, _ = token_logprobs(alone, lm_head_weight(model), labels, ones[: length - 1])
        actual, _ = token_logprobs(batch[row, : length - 1], lm_head_weight(model), labels, ones[: length - 1])
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_what_stands_behind_a_sequence_cannot_reach_it(model, ids):
    other = ids.clone()
    other[:, 9:] = (other[:, 9:] + 1) % model.config.vocab_size
    before, after = causal_hidden(model, ids)[:, :9], causal_hidden(model, other)[:, :9]
    torch.testing.assert_close(before, after, atol=1e-5, rtol=0)


def test_the_trunk_alone_gives_the_same_hidden_states(model, ids):
    assert torch.equal(causal_hidden(model.base_model, ids), causal_hidden(model, ids))


def test_the_projection_is_the_embedding_exactly_when_tied(model):
    tied = lm_head_weight(model) is model.get_input_embeddings().weight
    assert tied == model.config.tie_word_embeddings


def test_gradients_reach_a_tied_embedding_through_both_of_its_uses(tied_model, ids):
    hidden = causal_hidden(tied_model, ids)[:, :-1].flatten(0, 1)
    labels = ids[:, 1:].flatten()
    ours = token_logprobs(hidden, lm_head_weight(tied_model), labels, torch.ones(len(labels)))[0].mean()
    full = -nn.functional.cross_entropy(tied_model(input_ids=ids).logits[:, :-1].flatten(0, 1), labels)
    embedding = tied_model.get_input_embeddings().weight
    actual, expected = (torch.autograd.grad(loss, embedding)[0] for loss in (ours, full))
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)


def test_ids_of_another_shape_are_refused(model):
    with pytest.raises(ValueError, match=r"\[B, L\]"):
        causal_hidden(model, torch.zeros(3, dtype=torch.int64))


def test_a_trunk_has_no_projection(model):
    with pytest.raises(ConfigError, match="no output projection"):
        lm_head_weight(model.base_model)


def test_a_plain_projection_passes_the_check(model):
    check_plain_projection(model)


def test_a_projection_with_a_bias_is_refused():
    model = new_causal_lm(tiny_qwen3_config(40), 0)
    model.lm_head = nn.Linear(128, 40, bias=True)
    with pytest.raises(ConfigError, match="bias"):
        lm_head_weight(model)


def test_scaled_logits_are_refused(tied_model):
    handle = tied_model.lm_head.register_forward_hook(lambda module, arguments, output: output * 0.5)
    try:
        with pytest.raises(ConfigError, match="scale"):
            check_plain_projection(tied_model)
    finally:
        handle.remove()


def test_capped_logits_are_refused_even_where_the_cap_hardly_shows():
    config = Gemma2Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=1000.0,
    )
    with pytest.raises(ConfigError, match="cap"):
        check_plain_projection(new_causal_lm(config, 0))
