"""What leaves a connection of the hub, and when."""

import asyncio

from soliton.store.serving import OneWrite


class Recorder(asyncio.Transport):
    """Remembers what it is told to do."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def write(self, data):
        self.calls.append(bytes(data))

    def close(self):
        self.calls.append("close")

    def abort(self):
        self.calls.append("abort")


def test_what_is_written_in_one_turn_of_the_loop_is_sent_together():
    async def main():
        recorder = Recorder()
        transport = OneWrite(recorder, asyncio.get_running_loop())
        transport.write(b"headers ")
        transport.write(b"body")
        assert recorder.calls == []
        await asyncio.sleep(0)
        assert recorder.calls == [b"headers body"]
        transport.write(b"last")
        transport.close()
        await asyncio.sleep(0)
        assert recorder.calls[1:] == [b"last", "close"]
        transport.write(b"never")
        transport.abort()
        await asyncio.sleep(0)
        assert recorder.calls[3:] == ["abort"]

    asyncio.run(main())
