"""Evaluation during training as a process: neither the learner nor rollouts wait for it.

run   waits for: the command `evaluate VERSION STEP BATCHES`, or `finish`    unblocked by the controller
"""

from __future__ import annotations

from pathlib import Path

from soliton.config import load_config
from soliton.evals.evaluation import evaluation_of
from soliton.failpoints import failpoint
from soliton.models.load import load_causal_lm
from soliton.runtime.collect import collect
from soliton.runtime.local.channel import Channel
from soliton.runtime.local.evaluations import FINISH, FOLDER
from soliton.runtime.local.events import Evaluated, absent_as_none
from soliton.runtime.mixture import evaluation_metrics
from soliton.runtime.phases import RunPhases
from soliton.runtime.run_folder import START_MODEL, RunFolder
from soliton.runtime.setup import make_setup
from soliton.weights import PublishedVersions, load_published


def run(_name: str, run_dir: Path, channel: Channel) -> None:
    """Evaluate what is asked for, one after the other."""
    folder = RunFolder(run_dir)
    config = load_config(folder.config)
    setup = make_setup(config, folder.weights / START_MODEL)
    model = load_causal_lm(folder.weights / START_MODEL)
    versions = PublishedVersions(folder.weights / FOLDER)
    prompts = setup.prompts.held_out(config.eval.num_prompts, config.eval.seed)
    phases = RunPhases(config.env.shifts, folder.phases)
    while (command := channel.next_command()) != FINISH:
        version, step, batches = map(int, command.split()[1:])
        _, tensors = versions.load(version)
        load_published(model, tensors)
        phase = phases.at_step(step)
        evaluation = evaluation_of(collect(setup, model, prompts, seed=config.eval.seed, phase=phase))
        failpoint("evaluator.before_report")
        channel.send(Evaluated(version, step, batches, absent_as_none(evaluation_metrics(evaluation))))
