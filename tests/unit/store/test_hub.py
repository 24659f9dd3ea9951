"""The hub refuses whoever is not a role of its run, reads no more than it must, and loses nothing."""

import asyncio
import contextlib
import logging
import socket

import aiohttp
import pytest

from soliton.errors import ConfigError, RunError, StorageFullError
from soliton.runtime.clock import RealClock
from soliton.store import wire
from soliton.store.client import HubStore
from soliton.store.codec import decode_record, encode_record, encode_trajectory
from soliton.store.config import StoreConfig
from soliton.store.hub import hub_app
from soliton.store.limits import ClientLimits, HubLimits
from soliton.store.memory import MemoryStore
from soliton.store.serving import serve
from soliton.types import AttemptId
from tests.fakes.hub import RUN_ID, TOKEN, over_http
from tests.fakes.trajectories import publication, trajectory

GOOD = {"Authorization": f"Bearer {TOKEN}", wire.RUN_HEADER: RUN_ID}
PATHS = [wire.LEASE, wire.COMMIT, wire.TAKE, wire.FINISH_STEP, wire.STATUS, "/", "/docs", "/openapi.json", "/v2/lease"]
METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"]


def memory_store(clock=None, **config):
    settings = StoreConfig(**{"batch_size": 2, "max_staleness": 1} | config)
    return MemoryStore(settings, clock or RealClock(), publication(0))


@contextlib.asynccontextmanager
async def served(store=None, **limits):
    """A hub, and a session that is allowed in unless a test changes its headers."""
    app = hub_app(store or memory_store(), token=TOKEN, run_id=RUN_ID, limits=HubLimits(**limits))
    async with serve(app) as url, aiohttp.ClientSession(base_url=url, headers=GOOD) as session:
        yield session


async def refusal(session, method="POST", path=wire.COMMIT, **request):
    async with session.request(method, path, **request) as response:
        body = await response.read()
        return response.status, decode_record(body, wire.Failure).message if body else ""


# -- who may call -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ", TOKEN])
def test_every_route_and_method_needs_the_token_before_anything_else(token):  # faults L5, M2
    async def main():
        async with served() as session:
            if token is None:
                del session.headers["Authorization"]
            else:
                session.headers["Authorization"] = token
            for path in PATHS:
                for method in METHODS:
                    status, _ = await refusal(session, method, path)
                    assert (path, method, status) == (path, method, 401)

    asyncio.run(main())


def test_with_the_token_unknown_paths_and_methods_are_refused_as_usual():
    async def main():
        async with served() as session:
            for path in ("/docs", "/openapi.json", "/", "/v1/lease/"):
                assert (await refusal(session, "POST", path))[0] == 404
            assert (await refusal(session, "DELETE", wire.STATUS))[0] == 405
            assert (await refusal(session, "OPTIONS", wire.LEASE))[0] == 405

    asyncio.run(main())


@pytest.mark.parametrize("method", METHODS)
def test_a_web_page_is_refused_whatever_its_method_and_whatever_name_it_found_us_by(method):  # fault M2
    async def main():
        async with served() as session:
            status, message = await refusal(session, method, wire.STATUS, headers={"Host": "rebound.example:80"})
            assert status == 403
            assert method == "HEAD" or "host 'rebound.example:80' is not served" in message
            for origin in ("https://evil.example", "null", "http://127.0.0.1"):
                assert (await refusal(session, method, wire.STATUS, headers={"Origin": origin}))[0] == 403

    asyncio.run(main())


def test_another_runs_caller_is_refused_and_both_runs_are_named():  # fault K3
    async def main():
        async with served() as session:
            status, message = await refusal(session, headers={wire.RUN_HEADER: "other"})
            assert status == 409
            assert RUN_ID in message
            assert "'other'" in message

    asyncio.run(main())


@pytest.mark.parametrize(("token", "run_id"), [("", "run"), ("token", "")])
def test_a_hub_without_token_or_run_id_is_refused(token, run_id):
    with pytest.raises(ConfigError, match="must not be empty"):
        hub_app(memory_store(), token=token, run_id=run_id)


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
def test_no_more_than_the_limit_is_read_of_a_body(declared):
    sent = 0

    async def chunks():
        nonlocal sent
        for _ in range(2000):
            sent += 2**14
            yield b"x" * 2**14

    async def main():
        async with served(max_body_bytes=2**16) as session:
            if declared:
                status, message = await refusal(session, data=b"x" * 2**17)
                assert (status, "more than 65536 bytes" in message) == (413, True)
            else:
                with contextlib.suppress(aiohttp.ClientError):  # the hub hangs up while we send
                    status, _ = await refusal(session, data=chunks())
                    assert status == 413
                assert sent < 2000 * 2**14

    asyncio.run(main())


def test_a_body_that_comes_too_slowly_is_refused():  # fault K1, slow-loris
    async def drops():
        for _ in range(100):
            await asyncio.sleep(0.02)
            yield b"\x91"

    async def main():
        async with served(body_s=0.1) as session:
            with contextlib.suppress(aiohttp.ClientError):
                status, message = await refusal(session, data=drops())
                assert (status, "no whole body within 0.1 s" in message) == (408, True)
            async with session.get(wire.STATUS) as response:
                assert response.status == 200

    asyncio.run(main())


@pytest.mark.parametrize("bytes_per_drop", [0, 1])
def test_a_connection_whose_headers_come_too_slowly_is_closed(bytes_per_drop):  # fault K1, slow-loris
    async def main():
        async with served(header_s=0.1) as session:
            url = session._base_url
            reader, writer = await asyncio.open_connection(url.host, url.port)
            closed = asyncio.create_task(reader.read())
            for byte in b"POST /v1/commit HTTP/1.1\r\n":
                if closed.done():
                    break
                writer.write(bytes([byte])[:bytes_per_drop])
                await asyncio.sleep(0.02)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(closed, 1) == b""
            writer.close()

    asyncio.run(main())


def broken_trajectories():
    good = encode_trajectory(trajectory(AttemptId(0)))
    positive_logprob = good.replace(b"\x00\x00\x00\xbf", b"\x00\x00\x00\x3f", 1)  # -0.5 -> 0.5
    return {
        "not msgpack": (b"\xc1", "not a valid list"),
        "no list": (good, "Expected `array`"),
        "cut off": (b"\x91" + good[:-3], "truncated"),
        "invalid": (b"\x92" + good + positive_logprob, "must be finite and <= 0"),
        "pickle": (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94.", "not a valid list"),  # fault M3
    }


@pytest.mark.parametrize("name", broken_trajectories())
def test_a_body_that_is_no_valid_trajectory_is_refused_with_the_reason_and_changes_nothing(name):
    body, reason = broken_trajectories()[name]
    store = memory_store()

    async def main():
        await store.lease(1)
        async with served(store) as session:
            status, message = await refusal(session, data=body)
            assert status == 400
            assert reason in message
        assert (await store.status()).ledger.in_flight == 1

    asyncio.run(main())


# -- leases -----------------------------------------------------------------------------------------------------------


def test_a_lease_whose_answer_was_lost_is_granted_again_to_the_same_call():
    async def lease(session, number, slot=1):
        ask = wire.LeaseRequest(1, "w0", 0.0, "client", slot, number)
        async with session.post(wire.LEASE, data=encode_record(ask)) as response:
            return decode_record(await response.read(), wire.LeaseAnswer).leases if response.status == 200 else None

    async def main():
        async with served() as session:
            first = await lease(session, 0)
            assert await lease(session, 0) == first
            assert await lease(session, 0, slot=2) not in (first, None)
            second = await lease(session, 1)
            assert second not in (first, None)
            assert await lease(session, 1) == second

    asyncio.run(main())


def test_a_lease_granted_while_its_caller_went_away_goes_to_the_holders_next_call():
    store = memory_store()

    async def main():
        leased = asyncio.Event()
        original = store.lease

        async def slow_answer(limit, holder=""):
            leases = await original(limit, holder)
            leased.set()
            return leases

        store.lease = slow_answer
        async with over_http(store, RealClock(), holder="w0") as hub:
            call = asyncio.create_task(hub.lease(2))
            await leased.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert [str(lease.attempt) for lease in await hub.lease(1)] == ["d0s0a0"]
            assert [str(lease.attempt) for lease in await hub.lease(5)] == ["d1s0a0"]
            assert [str(lease.attempt) for lease in await hub.lease(1)] == ["d2s0a0"]
            assert (await hub.status()).ledger.issued == 3

    asyncio.run(main())


@pytest.mark.parametrize("call", ["lease", "take"])
def test_a_waiting_call_is_freed_when_its_caller_goes_away(call):
    store = memory_store(max_staleness=0)

    async def main():
        await store.lease(2)
        async with over_http(store, RealClock()) as hub:
            waiting = asyncio.create_task(hub.lease(1) if call == "lease" else hub.take())
            while not (await hub.status()).waiting:
                await asyncio.sleep(0.005)
            waiting.cancel()
            async with asyncio.timeout(2):
                while (await hub.status()).waiting:
                    await asyncio.sleep(0.005)

    asyncio.run(main())


def test_a_wait_longer_than_the_hub_holds_a_request_goes_on():
    store = memory_store(max_staleness=0)

    async def main():
        leases = await store.lease(2)
        async with over_http(store, RealClock(), hub=HubLimits(long_poll_s=0.03)) as hub:
            taking, leasing = asyncio.create_task(hub.take()), asyncio.create_task(hub.lease(1))
            await asyncio.sleep(0.2)
            assert not taking.done()
            assert not leasing.done()
            for lease in leases:
                await hub.commit(trajectory(lease.attempt))
            items = await taking
            await hub.finish_step([item.trajectory.attempt for item in items], publication(1))
            assert len(await leasing) == 1

    asyncio.run(main())


# -- no room ----------------------------------------------------------------------------------------------------------


def queued_bytes_of_one():
    store = memory_store()

    async def main():
        (lease,) = await store.lease(1)
        await store.commit(trajectory(lease.attempt))
        return (await store.status()).queued_bytes

    return asyncio.run(main())


def test_five_thousand_commits_while_the_learner_is_paused_wait_and_are_all_trained(caplog):  # faults G3, H7
    size = queued_bytes_of_one()
    limit = 500 * size
    store = memory_store(batch_size=500, max_staleness=None, max_outstanding=5000, max_queued_bytes=limit)

    async def main():
        leases = await store.lease(5000)
        async with over_http(store, RealClock(), hub=HubLimits(retry_after_s=0.3)) as hub:
            commits = [asyncio.create_task(hub.commit(trajectory(lease.attempt))) for lease in leases]
            while (await hub.status()).queued_bytes < limit:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            status = await hub.status()
            assert status.queued_bytes <= limit + 64 * size  # one request may pass it
            assert status.ledger.in_flight >= 4000
            async with aiohttp.ClientSession(headers=GOOD) as session:
                body = encode_record([trajectory(leases[-1].attempt)])
                async with session.post(hub.url + wire.COMMIT, data=body) as response:
                    assert (response.status, response.headers["retry-after"]) == (429, "0.3")
            for step in range(1, 11):
                items = await hub.take()
                await hub.finish_step([item.trajectory.attempt for item in items], publication(step))
            assert set(await asyncio.gather(*commits)) == {"queued"}
            assert (await hub.status()).ledger.trained == 5000

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    waits = [record.getMessage() for record in caplog.records if "waiting:" in record.getMessage()]
    assert waits
    assert "the store is full until the learner takes a batch" in waits[0]


def test_a_full_disk_makes_producers_wait_and_loses_nothing(caplog):
    store = memory_store()
    attempts_left = 5

    async def main():
        original = store.commit_many

        def full(trajectories, encoded):
            nonlocal attempts_left
            attempts_left -= 1
            if attempts_left >= 0:
                raise StorageFullError("no space left for 123 bytes")
            return original(trajectories, encoded)

        store.commit_many = full
        (lease,) = await store.lease(1)
        limits = ClientLimits(gone_after_s=0.05)  # a full disk is not a hub that is gone
        async with over_http(store, RealClock(), hub=HubLimits(retry_after_s=0.03), client=limits) as hub:
            assert await hub.commit(trajectory(lease.attempt)) == "queued"

    asyncio.run(main())
    waits = [record.getMessage() for record in caplog.records if "waiting:" in record.getMessage()]
    assert len(waits) == 1
    assert "no space left for 123 bytes" in waits[0]


# -- listening --------------------------------------------------------------------------------------------------------


def test_fifty_hubs_started_at_once_have_fifty_ports_and_no_caller_reaches_anothers():  # fault K3
    async def one(name, everybody_is_up):
        app = hub_app(memory_store(), token=TOKEN, run_id=name)
        async with serve(app) as url, HubStore(url, TOKEN, name, "w0", RealClock()) as mine:
            await everybody_is_up.wait()
            assert (await mine.status()).step == 0
            async with HubStore(url, TOKEN, f"not {name}", "w0", RealClock()) as stranger:
                with pytest.raises(RunError, match=f"this hub serves run '{name}', the caller belongs to run 'not"):
                    await stranger.lease(1)
            return url

    async def main():
        barrier = asyncio.Barrier(50)
        urls = await asyncio.gather(*(one(f"run{i}", barrier) for i in range(50)))
        assert len(set(urls)) == 50

    asyncio.run(main())


def test_a_port_in_use_is_refused_with_what_to_do():  # fault K3
    async def main():
        async with serve(hub_app(memory_store(), token=TOKEN, run_id=RUN_ID)) as url:
            port = int(url.rpartition(":")[2])
            with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use.*another run.*use port 0"):
                async with serve(hub_app(memory_store(), token=TOKEN, run_id=RUN_ID), port=port):
                    pass
        async with serve(hub_app(memory_store(), token=TOKEN, run_id=RUN_ID), port=port) as again:
            assert again == url  # it was let go

    asyncio.run(main())


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.7", 0)])
def test_an_address_that_cannot_be_had_is_refused(host, port):
    async def main():
        async with serve(hub_app(memory_store(), token=TOKEN, run_id=RUN_ID), host, port):
            pass

    with pytest.raises(ConfigError, match=f"cannot listen on host '{host}', port {port}"):
        asyncio.run(main())


def test_a_hub_that_stops_answers_those_who_wait_and_leaves_no_port_behind():
    async def main():
        store = memory_store(max_staleness=0)
        await store.lease(2)
        async with serve(hub_app(store, token=TOKEN, run_id=RUN_ID)) as url:
            hub = HubStore(url, TOKEN, RUN_ID, "w0", RealClock(), ClientLimits(gone_after_s=0.1))
            waiting = asyncio.create_task(hub.lease(1))
            while not (await hub.status()).waiting:
                await asyncio.sleep(0.005)
        with pytest.raises(RunError, match="no answer from the hub"):
            await waiting
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        await hub.aclose()

    asyncio.run(asyncio.wait_for(main(), 10))


def test_no_token_is_in_any_log_or_message(caplog):  # fault M7
    async def main():
        async with served() as session:
            url = str(session._base_url)
            await refusal(session, data=b"\xc1")
            await refusal(session, headers={"Authorization": f"Bearer {TOKEN}-almost"})
            await refusal(session, headers={"Host": "elsewhere"})
            async with HubStore(url, TOKEN, "another", "w0", RealClock()) as stranger:
                with pytest.raises(RunError) as wrong_run:
                    await stranger.status()
            async with HubStore(url, f"{TOKEN}-almost", RUN_ID, "w0", RealClock()) as thief:
                with pytest.raises(RunError, match="answered 401: no or wrong token") as wrong_token:
                    await thief.status()
            return str(wrong_run.value) + str(wrong_token.value)

    with caplog.at_level(logging.DEBUG):
        messages = asyncio.run(main())
    assert TOKEN not in caplog.text + messages
