"""A user of a deployed writer: reads what it wrote, likes or dislikes it, and changes their mind now and then.

Run beside `soliton train recipes/style.toml env.judge.kind=outside 'stages=["sft","train"]' eval.every_steps=0`:

    python recipes/style_user.py runs/style --likes cute --then chuunibyou --after 1500

It asks the run's hub what awaits feedback (`GET /v1/reward`) and answers each text with 1 or 0 (`POST /v1/reward`),
with nothing but the standard library, as any program in any language would. Feedback that nobody gives costs nothing
but time: the text is dropped at its deadline and counted, it never earns 0 for that.
"""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from soliton.envs.style import is_well_written, style_of

Judgement = Callable[[dict[str, Any]], float]
"""What a user makes of `{"task": ..., "text": ..., "criteria": ...}`: a number from 0 to 1."""


def call(hub: dict[str, Any], body: dict[str, Any] | None = None) -> Any:
    """What awaits feedback, or with a body the answer to one."""
    headers = {"authorization": f"Bearer {hub['token']}", "x-soliton-run": hub["run_id"]}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{hub['url']}/v1/reward", data, headers)  # noqa: S310  (the run's own hub)
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return json.load(answer)


def give_feedback(hub_file: Path, judgement: Judgement) -> int:
    """Answer everything that awaits feedback now; returns how many answers were taken."""
    hub = json.loads(hub_file.read_text())
    taken = 0
    for waiting in call(hub):
        reward = judgement(json.loads(waiting["key"]))
        try:
            taken += call(hub, {"attempt": waiting["attempt"], "reward": reward})["result"] == "accepted"
        except urllib.error.HTTPError as error:  # refused: over, or too late by now
            print(f"{waiting['attempt']}: {error.read().decode(errors='replace')}")
    return taken


def taste(style: str) -> Judgement:
    """A user who likes well-written texts of one style. `task` is what the writer was shown, such as "rain 3"."""

    def judgement(asked: dict[str, Any]) -> float:
        topic, num_words = asked["task"].split()
        return float(is_well_written(asked["text"], topic, int(num_words)) and style_of(asked["text"]) == style)

    return judgement


def main() -> None:
    """Give feedback until the run is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--likes", default="cute", help="the style that the user likes")
    parser.add_argument("--then", default="chuunibyou", help="the style that the user likes later")
    parser.add_argument("--after", type=int, default=1500, help="texts after which the user's taste changes")
    arguments = parser.parse_args()
    hub_file, given, pause = arguments.run / "hub.json", 0, Event()
    while hub_file.exists():
        likes = arguments.likes if given < arguments.after else arguments.then
        with suppress(urllib.error.URLError, FileNotFoundError):  # the run is just ending, or starting again
            given += give_feedback(hub_file, taste(likes))
        pause.wait(0.2)
    print(f"the run is over; {given} answers were given")


if __name__ == "__main__":
    main()
