"""Asking replicas for pages of the change feed: one of them answers for a range of the log, another one may keep more."""

from __future__ import annotations

import time
from typing import TypeVar

from replitree.client.read.feed import FeedBody
from replitree.client.read.read_options import ANSWER_S, ReadOptions, TimeIsUp
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import Router
from replitree.errors import ReplicaUnavailable
from replitree.wire.feed_errors import OffsetExpired

T = TypeVar("T")


def ask_page(router: Router, http: HttpClient, route: str, timeout_s: float) -> tuple[ReplicaInfo, FeedBody, float]:
    """Ask for one page of the feed; all else as of `ask_feed`."""
    replica, body, asked_at = ask_feed(router, http, route, FeedBody, timeout_s)
    body.check()
    return replica, body, asked_at


def ask_feed(
    router: Router, http: HttpClient, route: str, kind: type[T], timeout_s: float
) -> tuple[ReplicaInfo, T, float]:
    """Ask a question about the feed, which one replica may answer and another one not.

    Parameters
    ----------
    router, http
        The replicas of the table, and the connection to them.
    route
        The request, but for the time that a replica may wait.
    kind
        What is answered.
    timeout_s
        How long to wait until a replica has the log that far, in seconds.

    Returns
    -------
    tuple
        The replica that answered, its answer, and when it was asked (monotonic seconds).

    Raises
    ------
    OffsetExpired
        No active replica has all of it; `index` is the lowest of those from which one has.
    """
    expired, options = dict[str, OffsetExpired](), ReadOptions(timeout_s=timeout_s)

    def ask(replica: ReplicaInfo, seconds: float, wait_s: float) -> tuple[ReplicaInfo, T, float]:
        asked_at, path = time.monotonic(), f"{route}&wait_s={wait_s:.3f}"
        try:
            return replica, http.request(replica.address, "GET", path, timeout_s=seconds).decode(kind), asked_at
        except OffsetExpired as error:
            # Another replica may keep more.
            expired[replica.name] = error
            if not expired.keys() >= {each.name for each in router.replicas() if each.active}:
                raise ReplicaUnavailable(str(error)) from error
            raise min(expired.values(), key=lambda each: each.index) from error

    try:
        return router.ask(options.in_time(ask), timeout_s=timeout_s + ANSWER_S)
    except TimeIsUp as over:
        raise over.error from over


__all__ = ["ask_feed", "ask_page"]
