import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from soliton.errors import RunError
from soliton.learner.alarms import Scene
from soliton.learner.muon import MuonOptimiser, hidden_matrices, orthogonalised
from soliton.learner.optimiser import warm_up
from soliton.models import new_causal_lm
from soliton.models.tiny import tiny_qwen3_moe_config
from tests.unit.learner.learner_toys import micro_model

SCENE = Scene("SFT update 1", ())


def optimiser(model, **changed):
    settings = {"muon_lr": 0.02, "lr": 1e-3, "schedule": warm_up(0), "betas": (0.9, 0.95), "weight_decay": 0.0}
    return MuonOptimiser(model, **(settings | {"grad_clip": 1e9} | changed))


def give_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def gaussian(seed, *shape) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_the_singular_vectors_stay_and_the_singular_values_come_near_one(count, rows, columns, seed, size):
    matrices = size * gaussian(seed, count, rows, columns)
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    out = orthogonalised(matrices).double()
    in_their_basis = left.mT @ out @ right.mT
    diagonal = torch.diagonal(in_their_basis, dim1=-2, dim2=-1)
    assert torch.allclose(in_their_basis, torch.diag_embed(diagonal), atol=1e-3)
    large = values / torch.linalg.vector_norm(values, dim=-1, keepdim=True) > 0.05
    assert bool(((diagonal > 0.5) & (diagonal < 1.3))[large].all())


def test_a_single_row_keeps_its_direction_and_a_zero_matrix_stays_zero():
    row = orthogonalised(torch.tensor([[[3.0, 4.0]]]))
    assert float(row[0, 0, 0] / row[0, 0, 1]) == pytest.approx(0.75, rel=1e-5)
    assert torch.equal(orthogonalised(torch.zeros(1, 3, 2)), torch.zeros(1, 3, 2))


def test_it_does_what_the_muon_of_torch_does_but_in_float32():
    ours, theirs = micro_model(), micro_model()
    mine = optimiser(ours)
    matrices = hidden_matrices(theirs)
    reference = torch.optim.Muon(list(matrices.values()), lr=0.02, momentum=0.95, weight_decay=0.0)
    for seed in range(3):
        give_gradients(ours, seed)
        give_gradients(theirs, seed)
        mine.step(SCENE)
        reference.step()
    start = dict(micro_model().named_parameters())
    for name, parameter in dict(ours.named_parameters()).items():
        if name in matrices:
            moved, expected = (p.detach() - start[name].detach() for p in (parameter, matrices[name]))
            assert float((moved - expected).norm() / expected.norm()) < 0.03, name  # bfloat16 against float32


def test_embeddings_and_vectors_are_moved_by_adamw_and_the_output_projection_too():
    for tie in (True, False):
        model, other = micro_model(tie=tie), micro_model(tie=tie)
        matrices = hidden_matrices(model)
        assert all("proj" in name and parameter.dim() == 2 for name, parameter in matrices.items())
        assert len(matrices) == 2 * 7
        rest = {name: p for name, p in other.named_parameters() if name not in matrices}
        assert len(rest) == (10 if tie else 11)
        reference = torch.optim.AdamW(rest.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
        give_gradients(model, 0)
        give_gradients(other, 0)
        optimiser(model).step(SCENE)
        reference.step()
        moved = dict(model.named_parameters())
        assert all(torch.allclose(moved[name], p, atol=1e-7) for name, p in rest.items())


def test_experts_stacked_in_one_parameter_are_moved_each_by_itself():
    model = new_causal_lm(tiny_qwen3_moe_config(20), 0)
    stacked = {name: p for name, p in hidden_matrices(model).items() if p.dim() == 3}
    assert stacked
    before = {name: p.detach().clone() for name, p in stacked.items()}
    give_gradients(model, 0)
    gradients = {name: p.grad.clone() for name, p in stacked.items()}
    optimiser(model).step(SCENE)
    for name, parameter in stacked.items():
        rows, columns = parameter.shape[1:]
        for expert in range(len(parameter)):
            alone = orthogonalised(gradients[name][expert : expert + 1])[0]
            expected = before[name][expert] - 0.02 * max(1, rows / columns) ** 0.5 * alone
            assert torch.allclose(parameter[expert], expected, atol=1e-5), name


def test_the_schedule_scales_both_rates_and_counts_updates():
    model = micro_model()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    mine = optimiser(model, schedule=lambda done: float(done > 0))
    assert mine.lr == 0
    give_gradients(model, 0)
    norm = mine.step(SCENE)
    assert norm == pytest.approx(np.sqrt(sum(p.numel() for p in model.parameters())), rel=0.05)
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    assert (mine.updates, mine.lr) == (1, 1e-3)
    assert all(p.grad is None for p in model.parameters())


def test_weight_decay_shrinks_a_matrix_without_gradient():
    model = micro_model()
    before = {n: p.detach().clone() for n, p in hidden_matrices(model).items()}
    optimiser(model, weight_decay=0.5).step(SCENE)
    assert all(torch.allclose(p, before[n] * (1 - 0.02 * 0.5)) for n, p in hidden_matrices(model).items())


def test_a_gradient_that_is_not_finite_stops_it_before_anything_moves():  # fault C11
    model = micro_model()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    give_gradients(model, 0)
    next(iter(hidden_matrices(model).values())).grad[0, 0] = torch.nan
    with pytest.raises(RunError, match="gradient norm is not finite"):
        optimiser(model).step(SCENE)
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
