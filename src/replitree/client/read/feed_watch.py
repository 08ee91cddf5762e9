"""Up to where the change feed of a table can be read, asked again and again: for a reader that follows the table for days.

Guarantees: while replicas answer, coordination is asked nothing: the addresses of the replicas are kept.  The replicas are
asked in turn, so one that is far behind, or has stopped pulling, holds nothing up for longer than one question.

A question may wait at the replica until there is something new.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import Router
from replitree.errors import ReplitreeError, Unavailable
from replitree.wire.feed_errors import FeedOff

ANSWER_S = 10.0
"""How long one replica may be silent beyond the time that it is asked to wait, in seconds."""


class FeedEnd(msgspec.Struct, frozen=True):
    """What a replica says of its feed.

    Attributes
    ----------
    end
        The first index that the replica can't give yet.
    origin
        Which table this is: its id and incarnation.
    replica
        The replica's name.
    feed_from
        The first index from which the replica has everything; -1: not asked for.
    """

    end: int
    origin: str
    replica: str
    feed_from: int = -1


class FeedWatch:
    """Asks the replicas of one table how far their feeds go.  One thread uses it.

    Parameters
    ----------
    table
        The table's name.
    http, router
        The connection to its replicas, and which there are.
    """

    def __init__(self, table: str, http: HttpClient, router: Router) -> None:
        self._route, self._http, self._router = f"/v1/tables/{quote(table)}/feed/end", http, router
        self._known: tuple[ReplicaInfo, ...] = ()

    def end(self, after: int, wait_s: float, timeout_s: float) -> FeedEnd:
        """Ask one replica up to where it can give the feed, the next one the next time.

        Parameters
        ----------
        after
            It answers as soon as its end is above this index; -1: at once.
        wait_s
            How long it may wait for that, in seconds.
        timeout_s
            When to give up if no replica answers, in seconds.

        Raises
        ------
        FeedOff
            The table keeps no feed.
        Unavailable
            No replica answers.
        """
        path = f"{self._route}?earliest=0"
        # Without it a replica answers at once.
        path += f"&after={after}&wait_ms={int(1_000 * wait_s)}" if after >= 0 else ""
        first, *others = self._known or (None,)
        if first is not None:
            self._known = (*others, first)
            try:
                return self._http.request(first.address, "GET", path, timeout_s=wait_s + ANSWER_S).decode(FeedEnd)
            except FeedOff:
                raise
            except ReplitreeError:
                # It may have another address by now, or be gone: all are looked up again.
                self._known = ()
                self._router.forget()
        found = self._router.ask(
            lambda replica, seconds: self._http.request(replica.address, "GET", path, timeout_s=seconds).decode(
                FeedEnd
            ),
            timeout_s=timeout_s,
        )
        self._known = tuple(each for each in self._router.replicas() if each.active)
        return found

    def earliest(self, timeout_s: float) -> FeedEnd:
        """Return what the replica says whose feed begins first, of those that answer.  Parameters and errors as `end`."""
        found, failed = list[FeedEnd](), list[ReplitreeError]()
        for replica in self._router.replicas():
            try:
                answer = self._http.request(replica.address, "GET", self._route, timeout_s=min(ANSWER_S, timeout_s))
                found.append(answer.decode(FeedEnd))
            except FeedOff:
                raise
            except ReplitreeError as error:
                failed.append(error)
        if not found:
            raise failed[0] if failed else Unavailable("no replica answers; try again later")
        return min(found, key=lambda each: each.feed_from)


__all__ = ["FeedEnd", "FeedWatch"]
