"""`soliton replay`: the training of a run once more, from its store alone."""

from __future__ import annotations

from soliton.commands.arguments import Quiet, Run
from soliton.commands.exits import exit_codes, new_view


def replay(run: Run, quiet: Quiet = False) -> None:
    """Repeat the training of a `local` run from its store alone, and compare every published policy.

    No engine and no environment take part. Ends with the same weights hash, or names the first batch that differs
    (exit code 1).

    \b
    Example:
      soliton replay runs/calculator
    """
    view = new_view(quiet)
    with exit_codes(view):
        from soliton.runtime.replay import replay as replay_run

        done = replay_run(run, view)
        critic = f", critic {done.critic_sha256}" if done.critic_sha256 else ""
        view.finish(f"equal: {done.batches} batches, {done.step} steps; sha256 of the actor {done.sha256}{critic}")
