"""How much and how long, on both sides of the hub."""

from __future__ import annotations

import msgspec

MAX_BODY_BYTES = 32 * 2**20
"""Largest request, unless told otherwise."""


class HubLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how long. Seconds, bytes, counts.

    Attributes:
        max_body_bytes: largest request; no more is read.
        header_s, body_s: time for a request's headers and for its body to arrive.
        answer_s: time for a call that does not wait for others (commit, finish_step, status).
        long_poll_s: longest wait of lease and take before the answer "nothing yet".
        retry_after_s: when to come again if there is no room.
        max_connections: beyond these, 503.
        hosts: values of the Host header that are served, without port.
    """

    max_body_bytes: int = MAX_BODY_BYTES
    header_s: float = 10.0
    body_s: float = 10.0
    answer_s: float = 30.0
    long_poll_s: float = 20.0
    retry_after_s: float = 1.0
    max_connections: int = 256
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how long. Seconds, bytes, counts.

    Attributes:
        gone_after_s: from the first failed request without an answer since, until `HubGoneError`.
        answer_s: time for an answer to arrive whole, the wait that was asked for not included.
        long_poll_s: how long lease and take ask the hub to wait before it says "nothing yet".
        max_batch: trajectories in one commit request.
        gather_s: how long a commit waits for others before they are sent together; 0 sends at once.
        max_commit_requests: commit requests under way together; what comes meanwhile travels with the next one.
        max_body_bytes: largest commit request; one trajectory that is larger is refused here.
        max_answer_bytes: largest answer that is read.
    """

    gone_after_s: float = 10.0
    answer_s: float = 30.0
    long_poll_s: float = 20.0
    max_batch: int = 64
    gather_s: float = 0.0
    max_commit_requests: int = 1
    max_body_bytes: int = MAX_BODY_BYTES
    max_answer_bytes: int = 2**30
