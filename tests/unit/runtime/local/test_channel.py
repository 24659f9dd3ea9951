"""A child's end of the line, in a process of its own."""

import subprocess
import sys
import time

from soliton.runtime.local.events import Note, decode

SCRIPT = """
import threading
from soliton.runtime.local.channel import Channel, ChannelView, StopWanted
from soliton.runtime.local.events import Note
channel = Channel()
print("this goes to the log")
stopped = threading.Event()
channel.on_stop(stopped.set)
while (command := channel.next_command()) != "end":
    channel.send(Note("got " + command))
channel.send(Note("stop " + str(channel.stop_wanted())))
assert stopped.wait(5)
late = threading.Event()
channel.on_stop(late.set)
channel.send(Note("late " + str(late.is_set())))
for stage in ("train", "sft"):
    view = ChannelView(channel, resumable=("train",))
    view.stage(stage, None)
    try:
        view.update(1, {"x": float("nan")})
    except StopWanted:
        view.note(stage + " ends")
"""


def child(script: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_commands_arrive_in_order_whole_or_in_pieces_and_a_stop_overtakes_them():
    process = child(SCRIPT)
    for piece in (b"evaluate 1", b" 2 3\nsecond\nst", b"op\nend\n"):
        process.stdin.write(piece)
        process.stdin.flush()
        time.sleep(0.05)
    events = [decode(line) for line in process.stdout]
    notes = [event.text for event in events if isinstance(event, Note)]
    assert notes == ["got evaluate 1 2 3", "got second", "stop True", "late True", "sft ends"]
    assert b"this goes to the log" in process.stderr.read()
    assert process.wait(30) == 0  # although a thread still waits for commands


def test_the_end_of_the_controller_is_the_end_of_the_process_and_of_what_it_started():  # fault K8
    process = child(
        "import subprocess, sys, threading\n"
        "from soliton.runtime.local.channel import Channel\n"
        "from soliton.runtime.local.events import Note\n"
        "channel = Channel()\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], stdout=2)\n"
        "channel.send(Note('ready'))\n"
        "threading.Event().wait()\n"
    )
    assert process.stdout.readline()
    process.stdin.close()
    begun = time.monotonic()
    assert process.stderr.read() == b""  # it ends when nobody holds it any more, the process it started included
    assert process.wait() == -9
    assert time.monotonic() - begun < 5
