"""`soliton algorithms`: all presets, and each beside `sao`."""

import json

import pytest
from typer.testing import CliRunner

from soliton.algorithms.build import PRESETS
from soliton.cli import app


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["algorithms", *arguments], catch_exceptions=False, env={"COLUMNS": "240"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_preset_is_listed_with_a_sentence_of_its_own():
    rows = [line.split(maxsplit=1) for line in said().splitlines()[1:] if line.strip()]
    assert [name for name, _ in rows] == list(PRESETS)
    assert len({sentence for _, sentence in rows}) == len(PRESETS)
    assert list(json.loads(said("--json"))) == list(PRESETS)


def test_vapo_is_shown_as_a_table_beside_sao():
    lines = said("vapo").splitlines()
    (head,) = [line for line in lines if line.startswith("choice")]
    start = head.index("sao, where it differs")
    table = lines[lines.index(head) + 1 :]
    rows = {line[: head.index("vapo")].strip(): line for line in table if line[: head.index("vapo")].strip()}
    for choice, own, other in (
        ("actor loss", "latest_policy_clip_loss", "dis_actor_loss"),
        ("critic updates per actor update (K)", "1", "2"),
        ("what trains in the critic", "all", "mlp"),
    ):
        assert rows[choice][head.index("vapo") : start].strip().startswith(own)
        assert rows[choice][start:].strip().startswith(other)
    for same in ("rollouts per prompt", "advantages", "critic targets", "values for advantages", "value pretraining"):
        assert rows[same][start:].strip() == ""


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_differences_of_a_preset_are_those_of_its_choices(name: str):
    own, sao = (json.loads(said(preset, "--json")) for preset in (name, "sao"))
    different = {choice: value for choice, value in sao["choices"].items() if own["choices"][choice] != value}
    assert own["differs_from_sao"] == different
    assert (name == "sao") == (different == {})
