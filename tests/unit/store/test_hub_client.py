"""The client against hubs that are gone, slow, full or none at all: small scripted servers on loopback."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import pytest

from soliton.errors import RunError
from soliton.runtime.clock import RealClock
from soliton.store import wire
from soliton.store.client import HubStore
from soliton.store.codec import encode_record
from soliton.store.config import StoreConfig
from soliton.store.connection import HubGoneError
from soliton.store.hub import hub_app
from soliton.store.limits import ClientLimits
from soliton.store.memory import MemoryStore
from soliton.store.serving import serve
from soliton.types import AttemptId, Lease
from tests.fakes.hub import RUN_ID, TOKEN, over_http
from tests.fakes.trajectories import publication, trajectory

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUICK = ClientLimits(gone_after_s=0.3, answer_s=0.15, long_poll_s=0.05)
RUN = f"{wire.RUN_HEADER}: {RUN_ID}\r\n"


def answers(status: int, body: bytes = b"", headers: str = RUN) -> Behaviour:
    async def behave(reader, writer):
        head = f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return behave


def record(body) -> Behaviour:
    return answers(200, encode_record(body))


def refuses(status: int, message: str, kind: str = "RunError", headers: str = RUN) -> Behaviour:
    return answers(status, encode_record(wire.Failure(kind, message)), headers)


async def reset(reader, writer):
    writer.transport.abort()


async def reset_in_the_body(reader, writer):
    writer.write(f"HTTP/1.1 200 OK\r\n{RUN}content-length: 100\r\n\r\n".encode() + b"x" * 10)
    await writer.drain()
    writer.transport.abort()


async def black_hole(reader, writer):
    await reader.read()


async def drips(reader, writer):
    with contextlib.suppress(ConnectionError):
        writer.write(f"HTTP/1.1 200 OK\r\n{RUN}content-length: 1000\r\n\r\n".encode())
        for _ in range(1000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)


async def garbage(reader, writer):
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()


class ScriptedHub:
    """Requests get the behaviours of the script in turn, the last one for ever."""

    def __init__(self, *script: Behaviour) -> None:
        self.script = script
        self.requests: list[bytes] = []

    async def _serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            behave = self.script[min(len(self.requests), len(self.script)) - 1]
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if length:
                await reader.readexactly(int(length[0].split(b":")[1]))
            await behave(reader, writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def client(self, limits=QUICK):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, HubStore(f"http://127.0.0.1:{port}", TOKEN, RUN_ID, "w0", RealClock(), limits) as hub:
            yield hub


def ask(call, *script, limits=QUICK):
    """The result of `call(client)` and how many requests it took."""
    hub = ScriptedHub(*script)

    async def main():
        async with asyncio.timeout(10), hub.client(limits) as client:
            return await call(client)

    return asyncio.run(main()), len(hub.requests)


def grant(holder: str = "w0") -> Behaviour:
    return record(wire.LeaseAnswer([Lease(AttemptId(3), 0.0, 0, holder)]))


def lease(client):
    return client.lease(1)


def commit(client):
    return client.commit(trajectory(AttemptId(3)))


# -- gone -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", [reset, reset_in_the_body, black_hole, drips, garbage])
@pytest.mark.parametrize("call", [lease, commit])
def test_a_hub_that_gives_no_whole_answer_is_tried_again_and_then_gone(behaviour, call):  # fault K1
    took = []

    async def timed(client):
        clock = RealClock()
        with pytest.raises(HubGoneError, match=r"no answer from the hub at http://127.0.0.1:\d+ for 0\.[3-9]"):
            await call(client)
        took.append(clock.now())

    _, requests = ask(timed, behaviour)
    assert requests >= 2
    assert 0.3 <= took[0] < 3


def test_nobody_at_the_address_means_the_hub_is_gone():  # fault K1
    async def main():
        async with serve(
            hub_app(MemoryStore(StoreConfig(batch_size=1, max_staleness=0), RealClock()), token="t", run_id="r")
        ) as url:
            pass
        async with HubStore(url, TOKEN, RUN_ID, "w0", RealClock(), QUICK) as client:
            with pytest.raises(HubGoneError, match="its process has ended or hangs"):
                await client.status()

    asyncio.run(main())


@pytest.mark.parametrize("behaviour", [reset, reset_in_the_body, black_hole, drips, garbage])
def test_a_hub_that_answers_again_in_time_was_not_gone(behaviour):  # fault K1
    leases, requests = ask(lease, behaviour, grant())
    assert [str(each.attempt) for each in leases] == ["d3s0a0"]
    assert requests == 2


def test_a_hub_that_starts_again_on_its_port_goes_on_with_its_callers():
    store = MemoryStore(StoreConfig(batch_size=2, max_staleness=0), RealClock(), publication(0))

    async def main():
        app = hub_app(store, token=TOKEN, run_id=RUN_ID)
        async with serve(app) as url:
            hub = HubStore(url, TOKEN, RUN_ID, "w0", RealClock())
            (first, _) = await hub.lease(2)
            leasing = asyncio.create_task(hub.lease(1))
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        async with serve(hub_app(store, token=TOKEN, run_id=RUN_ID), port=int(url.rpartition(":")[2])):
            assert await hub.commit(trajectory(first.attempt)) == "queued"
            assert not leasing.done()
            leasing.cancel()
            await hub.aclose()

    asyncio.run(asyncio.wait_for(main(), 10))


# -- there, but not now -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 503, 507])
@pytest.mark.parametrize("call", [lease, commit])
def test_a_hub_without_room_is_waited_for_longer_than_a_hub_that_is_gone(status, call, caplog):  # fault K1
    answer = grant() if call is lease else record(wire.CommitAnswers([wire.CommitAnswer(AttemptId(3), "queued")], 1.0))
    no_room = refuses(status, "come later", headers=RUN + "retry-after: 0.05\r\n")
    with caplog.at_level(logging.INFO):
        _, requests = ask(call, *[no_room] * 10, answer)
    assert requests == 11
    messages = [record.getMessage() for record in caplog.records if record.name == "soliton.store.connection"]
    assert len(messages) == 2
    assert "says: come later" in messages[0]
    assert "going on" in messages[1]


@pytest.mark.parametrize("retry_after", ["soon", "nan", "-1", ""])
def test_a_retry_time_that_makes_no_sense_is_one_second_or_at_once(retry_after):
    leases, requests = ask(lease, refuses(429, "full", headers=f"{RUN}retry-after: {retry_after}\r\n"), grant())
    assert (len(leases), requests) == (1, 2)


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "kind", "text"),
    [
        (refuses(401, "no or wrong token"), RunError, "answered 401: no or wrong token"),
        (refuses(409, "this hub serves another run"), RunError, "^this hub serves another run$"),
        (refuses(422, "limit is wrong", "ValueError"), ValueError, "^limit is wrong$"),
        (refuses(400, "malformed", "ValueError"), ValueError, "answered 400: malformed"),
        (answers(500, b"oops"), RunError, "answered 500: oops"),
        (answers(302, headers=f"{RUN}location: http://127.0.0.1:1/\r\n"), RunError, "answered 302"),
    ],
)
@pytest.mark.parametrize("call", [lease, commit])
def test_a_refusal_is_raised_and_not_tried_again(behaviour, kind, text, call):  # fault K1
    async def refused(client):
        with pytest.raises(kind, match=text):
            await call(client)

    assert ask(refused, behaviour)[1] == 1


# -- somebody else ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "behaviour", "text"),
    [
        (lease, answers(200, encode_record(wire.LeaseAnswer([])), headers=""), "answered as run None"),
        (lease, answers(200, b"", headers=f"{wire.RUN_HEADER}: other\r\n"), "answered as run 'other'"),
        (lease, answers(200, b"1.0"), "answered with something invalid"),
        (lease, record(wire.TakeAnswer([])), "answered with something invalid"),
        (lease, grant("w1"), r"leases of \['w1'\]"),
        (lease, answers(200, b"x" * 2000), "with 2000 bytes, allowed are 1000"),
        (
            commit,
            record(wire.CommitAnswers([wire.CommitAnswer(AttemptId(4), "queued")], 1.0)),
            "with answers for d4s0a0",
        ),
        (commit, record(wire.CommitAnswers([], 1.0)), "it is not a hub"),
        (commit, answers(204), "answered a commit with nothing"),
        (commit, record(wire.CommitAnswers([wire.CommitAnswer(AttemptId(3), "queued")] * 2, 1.0)), "it is not a hub"),
    ],
)
def test_an_answer_that_does_not_fit_the_question_is_refused(call, behaviour, text):  # fault L5
    async def refused(client):
        with pytest.raises(RunError, match=text):
            await call(client)

    limits = ClientLimits(max_answer_bytes=1000)
    assert ask(refused, behaviour, limits=limits)[1] == 1


# -- commits ----------------------------------------------------------------------------------------------------------


def counting_store() -> tuple[MemoryStore, list[int]]:
    """A store, and how many trajectories each request brought it."""
    store = MemoryStore(StoreConfig(batch_size=100, max_staleness=0), RealClock(), publication(0))
    sizes: list[int] = []
    original = store.commit_many

    def counted(trajectories, encoded):
        sizes.append(len(trajectories))
        return original(trajectories, encoded)

    store.commit_many = counted
    return store, sizes


def test_commits_that_come_during_a_request_travel_together_and_each_hears_its_own():
    store, sizes = counting_store()

    async def main():
        leases = await store.lease(100)
        async with over_http(store, RealClock()) as hub:
            first = asyncio.create_task(hub.commit(trajectory(leases[0].attempt)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            rest = [hub.commit(trajectory(each.attempt)) for each in leases[1:]]
            stranger = hub.commit(trajectory(AttemptId(777)))
            results = await asyncio.gather(first, *rest, stranger, return_exceptions=True)
        assert results[:100] == ["queued"] * 100
        assert isinstance(results[100], RunError)
        assert "d777s0a0, which this store never issued" in str(results[100])

    asyncio.run(main())
    assert sizes[:2] == [1, 64]


def test_a_commit_that_may_wait_for_others_takes_along_what_comes_meanwhile():
    store, sizes = counting_store()

    async def main():
        leases = await store.lease(67)
        async with over_http(store, RealClock(), client=ClientLimits(gather_s=0.3)) as hub:
            early = asyncio.create_task(hub.commit(trajectory(leases[0].attempt)))
            await asyncio.sleep(0.05)
            late = [hub.commit(trajectory(each.attempt)) for each in leases[1:3]]
            assert await asyncio.gather(early, *late) == ["queued"] * 3
        async with over_http(store, RealClock(), client=ClientLimits(gather_s=1000.0)) as hub:
            whole = [hub.commit(trajectory(each.attempt)) for each in leases[3:]]  # as many as go into one request
            assert await asyncio.wait_for(asyncio.gather(*whole), 60.0) == ["queued"] * 64

    asyncio.run(main())
    assert sizes == [3, 64]


def test_a_trajectory_larger_than_a_request_is_refused_before_it_is_sent():
    async def refused(client):
        with pytest.raises(ValueError, match=r"trajectory d3s0a0 is \d+ bytes, a commit takes 100"):
            await commit(client)

    assert ask(refused, black_hole, limits=ClientLimits(max_body_bytes=100))[1] == 0


def test_closing_the_client_leaves_nobody_waiting():
    async def main():
        hub = ScriptedHub(refuses(429, "full", headers=RUN + "retry-after: 30\r\n"), black_hole)
        async with hub.client() as client:
            full = asyncio.create_task(commit(client))
            while not hub.requests:
                await asyncio.sleep(0.005)
            stuck = asyncio.create_task(commit(client))
            await asyncio.sleep(0.05)
        results = await asyncio.gather(full, stuck, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2

    asyncio.run(asyncio.wait_for(main(), 5))
