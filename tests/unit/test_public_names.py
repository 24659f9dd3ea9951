"""The exported names of the maths: adding or removing one is a decision, seen in this file."""

import soliton.advantages
import soliton.losses


def test_the_advantages_export_these_names() -> None:
    assert soliton.advantages.__all__ == [
        "group_advantages",
        "last_tokens_of_turns",
        "leave_one_out_advantages",
        "length_adaptive_lambda",
        "naive_gae",
        "normalised_over_action_tokens",
        "normalised_over_trajectories",
        "skip_observation_gae",
        "turn_counts",
        "turn_gae",
        "vtrace",
    ]


def test_the_losses_export_these_names() -> None:
    assert soliton.losses.__all__ == [
        "ExplainedVariance",
        "LossResult",
        "band_metrics",
        "bce_value_loss",
        "clipped_value_loss",
        "dcpo_bounds",
        "dcpo_clip_loss",
        "dis_loss",
        "entropy_loss",
        "explained_variance",
        "gspo_loss",
        "huber_value_loss",
        "merge_metrics",
        "positive_example_loss",
        "ppo_clip_loss",
        "probability_bounds",
        "probability_clip_loss",
        "reference_kl_loss",
        "reinforce_loss",
        "separated_states",
        "token_mean",
        "two_ratio_clip_loss",
        "value_loss",
    ]


def test_every_exported_name_exists() -> None:
    for module in (soliton.advantages, soliton.losses):
        assert all(callable(getattr(module, name)) for name in module.__all__)
