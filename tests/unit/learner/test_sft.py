import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from soliton.errors import RunError
from soliton.learner.config import SftConfig
from soliton.learner.sft import Demonstration, length_grouped_batches, sft, shuffled_batches
from tests.unit.learner.learner_toys import VOCAB, micro_model, weights


def copying(count: int, seed: int) -> list[Demonstration]:
    """Prompt of one token; the answer is that token, then a stop token."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        token, noise = int(rng.integers(3, VOCAB)), rng.integers(3, VOCAB, int(rng.integers(0, 3)))
        ids = [*noise, token, 1, token, 2]
        made.append(Demonstration(np.array(ids, dtype=np.int32), np.array([False] * (len(ids) - 2) + [True, True])))
    return made


def config(**settings: object) -> SftConfig:
    return SftConfig(**({"lr": 2e-2, "batch_size": 16, "lr_warmup_updates": 3, "micro_batch_tokens": 30} | settings))


def test_it_learns_a_toy_task():
    seen = []
    updates = sft(micro_model(), copying(240, 0), config(epochs=2, batch_size=8), seed=0, progress=seen.append)
    assert updates == seen
    assert [u.update for u in updates] == list(range(1, 61))
    assert {u.total for u in updates} == {60}
    assert updates[0].loss > 2.5
    assert np.mean([u.loss for u in updates[-5:]]) < 1.0


def test_it_learns_with_muon_too_and_twice_the_same():
    def losses() -> list[float]:
        muon = config(epochs=2, batch_size=8, optimiser="muon", muon_lr=0.05)
        return [u.loss for u in sft(micro_model(), copying(240, 0), muon, seed=0)]

    first = losses()
    assert first[0] > 2.5
    assert np.mean(first[-5:]) < 1.2
    assert first == losses()


def test_the_loss_is_one_token_mean_over_the_masked_tokens_of_the_update():  # faults E2, E6
    demonstrations = copying(7, 1)
    model = micro_model()
    total, count = 0.0, 0
    for d in demonstrations:
        logprobs = model(input_ids=torch.from_numpy(d.token_ids.astype(np.int64))[None]).logits[0].log_softmax(-1)
        for k in np.flatnonzero(d.action_mask):
            total -= logprobs[k - 1, int(d.token_ids[k])].item()
            count += 1
    (update,) = sft(model, demonstrations, config(), seed=0)
    assert update.num_action_tokens == count
    assert update.loss == pytest.approx(total / count, abs=1e-5)


def test_the_seed_decides_the_order_and_the_micro_batches_do_not_matter():
    def final(seed: int, budget: int) -> dict[str, np.ndarray]:
        model = micro_model()
        sft(model, copying(40, 0), config(micro_batch_tokens=budget, lr=1e-3), seed=seed)
        return weights(model)

    same, again, other, plan = final(0, 30), final(0, 30), final(1, 30), final(0, 500)
    assert all(np.array_equal(same[n], again[n]) for n in same)
    assert not all(np.array_equal(same[n], other[n]) for n in same)
    # Adam's first steps are +-lr per weight whatever the gradient's size, so rounding may flip a few near-zero ones.
    assert np.mean([np.isclose(same[n], plan[n], atol=2e-4).mean() for n in same]) > 0.99


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_each_epoch_has_every_demonstration_once_in_full_batches(lengths, batch_size, epochs, seed, grouped):
    def made() -> list[list[int]]:
        if grouped:
            return list(length_grouped_batches(lengths, batch_size, epochs, seed))
        return list(shuffled_batches(len(lengths), batch_size, epochs, seed))

    batches, count = made(), len(lengths)
    seen = [i for batch in batches for i in batch]
    assert len(batches) == epochs * -(-count // batch_size)
    for epoch in range(epochs):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert sum(len(batch) < batch_size for batch in batches) == (epochs if count % batch_size else 0)
    assert batches == made()


def test_grouping_by_length_leaves_less_padding_and_no_pattern_of_lengths():
    lengths = np.random.default_rng(0).integers(10, 100, 640).tolist()

    def padding(batches: list[list[int]]) -> int:
        return sum(len(b) * max(lengths[i] for i in b) - sum(lengths[i] for i in b) for b in batches)

    mixed = list(shuffled_batches(len(lengths), 16, 1, 0))
    grouped = list(length_grouped_batches(lengths, 16, 1, 0))
    assert padding(grouped) < 0.15 * padding(mixed)
    longest = [max(lengths[i] for i in batch) for batch in grouped]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.5


def test_the_configuration_decides_whether_lengths_are_grouped():
    def first_losses(grouped: bool) -> list[float]:
        return [u.loss for u in sft(micro_model(), copying(64, 0), config(group_by_length=grouped), seed=0)]

    assert first_losses(grouped=True) != first_losses(grouped=False)


def test_the_learning_rate_rises_then_falls_or_stays():
    cosine = [u.lr for u in sft(micro_model(), copying(160, 0), config(), seed=0)]
    constant = [u.lr for u in sft(micro_model(), copying(160, 0), config(lr_schedule="constant"), seed=0)]
    assert cosine[:4] == pytest.approx([0.02 / 3, 0.04 / 3, 0.02, 0.02])
    assert cosine[-1] < 0.002
    assert constant[3:] == [0.02] * 7


def test_bad_demonstrations_are_refused():
    ids = np.array([1, 2, 3], dtype=np.int32)
    cases = [
        ([], "at least one"),
        ([Demonstration(ids, np.array([False] * 3))], "demonstration 0 has no action token"),  # fault B9
        ([Demonstration(ids, np.array([True, False, True]))], "demonstration 0 begins with"),
    ]
    for demonstrations, words in cases:
        with pytest.raises(ValueError, match=words):
            sft(micro_model(), demonstrations, config(), seed=0)


def test_a_nan_weight_stops_it_with_the_update_named():  # fault C11
    model = micro_model()
    with torch.no_grad():
        model.base_model.norm.weight.fill_(math.nan)
    with pytest.raises(RunError, match="SFT update 1: cross-entropy is not finite"):
        sft(model, copying(4, 0), config(), seed=0)
