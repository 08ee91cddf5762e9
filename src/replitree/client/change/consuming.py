"""Consumers: named positions in the change feed, from which on replicas keep everything."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S, Commander, check_id
from replitree.client.read.as_of import AsOf
from replitree.client.read.consumers import Consumer, all_consumers, one_consumer
from replitree.client.transport.catalog import Catalog
from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import Router
from replitree.errors import BadInput, SnapshotExpired, Unavailable
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.upkeep.consumers import HOLD_BYTES_MAX, check_consumer_name
from replitree.storage.schema.retention import keep_seconds, parse_keep
from replitree.wire.feed_errors import ConsumerExpired

if TYPE_CHECKING:
    from replitree.client.read.feed_watch import FeedWatch

HOLD = "7 days"
"""For how long a consumer holds by default when it does not move."""


class _Stands(msgspec.Struct, frozen=True):
    index: int


class _Dropped(msgspec.Struct, frozen=True):
    dropped: bool


@check_arguments
class TableConsumers(ChangingTable):
    """The part of a `replitree.client.table.Table` that knows the consumers of its change feed."""

    _catalog: Catalog
    _http: HttpClient
    _router: Router

    def watch_feed(self) -> FeedWatch:
        """Return what asks again and again how far the change feed goes."""
        from replitree.client.read.feed_watch import FeedWatch

        return FeedWatch(self.name, self._http, self._router)

    @abstractmethod
    def index_of(self, as_of: AsOf) -> int:
        """Return the index of the log that a time, or the name of a tag, means."""

    def consumers(self) -> tuple[Consumer, ...]:
        """Return the consumers of the change feed, by name, with those whose hold has ended.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        found = self._catalog.run(all_consumers(self._catalog.place(self.name)))
        return self._catalog.of_table(self.name, found)

    def create_consumer(
        self,
        name: str,
        start: AsOf = "latest",
        *,
        hold: str = HOLD,
        bytes_max: int = HOLD_BYTES_MAX,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> Consumer:
        """Create a consumer: replicas keep everything from its position on, until it is moved or its hold ends.

        Parameters
        ----------
        name
            A letter, then letters, digits, ``_``, ``.`` and ``-``.
        start
            Where it begins.  ``latest``: the next entry; ``earliest``: the first entry that the feed has; ``snapshot``: the
            table as it is now, whose parts stay until the consumer moves; or an index up to the end of the log, a time, a tag.
        hold
            The hold ends when the consumer has not moved for so long although there is something to read, as in ``"36h"``.
        bytes_max
            The hold ends when a replica keeps more bytes of old parts for this consumer alone.
        command_id
            Of an earlier try; with the same id the consumer of that try is the answer.
        timeout_s
            How long to wait until a replica has the log up to there, in seconds.

        Raises
        ------
        BadInput
            There is a consumer of this name, the name can't be one, a limit is wrong, or `start` is above the end of the log.
        FeedOff
            The table keeps no change feed.
        OffsetExpired, SnapshotExpired
            The feed is not kept from there on.
        Unavailable
            No replica takes it; there is no consumer.
        OutcomeUnknown
            There may be one: repeat it with the same id.
        """
        hold_s, known_as = check_limits(hold, bytes_max), check_id(command_id)
        check_consumer_name(name)
        body = {"name": name, "id": known_as, "index": self._where(start, timeout_s), "snapshot": start == "snapshot"}
        body |= {"hold_s": hold_s, "bytes_max": bytes_max, "min_index": self._written.highest + 1}

        def at(replica: str) -> Commander:
            return Commander(self.name, self._catalog, self._http, Router(self._catalog, self.name, replica))

        make_consumer(self._commander, at, body, known_as, timeout_s)
        return self._consumer(name)

    def move_consumer(self, name: str, index: int, *, timeout_s: float = COMMAND_S) -> None:
        """Move a consumer forward: replicas may delete what only it has kept below the index.

        Parameters
        ----------
        name
            The consumer's.
        index
            `Changes.end` of what was read and stored; after a snapshot, the consumer's own index.
        timeout_s
            How long to wait for a replica, in seconds.

        Raises
        ------
        BadInput
            There is no such consumer, its position is above the index, or the log ends below the index.
        ConsumerExpired
            Its hold has ended.
        Unavailable, OutcomeUnknown
            No replica says that it has moved it; try again.
        """
        verb = f"consumers/{quote(check_consumer_name(name))}"
        self._commander.ask("PUT", verb, _Stands, {"index": index}, timeout_s=timeout_s)

    def drop_consumer(self, name: str, *, timeout_s: float = COMMAND_S) -> None:
        """Drop a consumer; replicas delete what only it has kept within a minute.

        Parameters
        ----------
        name
            The consumer's.
        timeout_s
            How long to wait for a replica, in seconds.

        Raises
        ------
        BadInput
            There is no such consumer.
        Unavailable
            No replica says that it has dropped it; try again.
        """
        names = [each.name for each in self.consumers()]
        if check_consumer_name(name) not in names:
            raise BadInput(f"table {self.name} has no consumer {name!r}; it has {', '.join(names) or 'none'}")
        self._commander.ask("DELETE", f"consumers/{quote(name)}", _Dropped, timeout_s=timeout_s)

    def _consumer(self, name: str) -> Consumer:
        """Return a consumer.  Raises BadInput when there is none."""
        found = self._catalog.run(one_consumer(self._catalog.place(self.name), check_consumer_name(name)))
        if found is None:
            self._catalog.of_table(self.name, ())
            raise BadInput(f"table {self.name} has no consumer {name!r}: make it first (table.create_consumer)")
        return found

    def _begin(self, start: int | None, consumer: str | None) -> int:
        """Return where a read of the feed begins; errors as `Table.changes`."""
        if (start is None) == (consumer is None):
            raise BadInput("the changes begin at an index of the log or at a consumer: give one of them")
        if consumer is None:
            return start or 0
        found = self._consumer(consumer)
        if found.expired:
            raise expired_error(self.name, consumer, found.index, found.expired, found.time)
        if found.snapshot is not None:
            raise BadInput(
                f"consumer {consumer} begins with a snapshot that it has not read: read the table as_of={found.snapshot}, and"
                f" move it to {found.snapshot}"
            )
        return found.index

    def _where(self, start: AsOf, timeout_s: float) -> int:
        """Return the index at which a consumer begins."""
        if start == "earliest":
            return self.watch_feed().earliest(timeout_s).feed_from
        if isinstance(start, str | datetime) and start not in {"latest", "snapshot"}:
            return self.index_of(start)
        # The commit goes through the leader, so that the session sees all that was committed before.
        self._catalog.now_ms()
        end = self._catalog.log_tail(self.name)
        if isinstance(start, int) and not 0 <= start <= end:
            raise BadInput(f"a consumer of {self.name} can't begin at {start}: the log goes from 0 to {end}")
        return start if isinstance(start, int) else end


def check_limits(hold: str, bytes_max: int) -> float:
    """Return for how many seconds a consumer holds.

    Raises
    ------
    BadInput
        A limit is wrong.
    """
    hold_s = keep_seconds(parse_keep(hold, "hold"))
    if hold_s is None or bytes_max < 1:
        raise BadInput(f"hold is a time, as in '7 days', and bytes_max is above 0, not {hold!r} and {bytes_max}")
    return float(hold_s)


def make_consumer(
    commander: Commander, at: Callable[[str], Commander], body: Mapping[str, Any], known_as: str, timeout_s: float
) -> None:
    """Have a replica make a consumer of a table with one log; errors as of `TableConsumers.create_consumer`.

    Parameters
    ----------
    commander, at
        Asks any replica; returns what asks one.
    body, known_as, timeout_s
        The request, the id in it, and when to give up, in seconds.
    """
    # With one id it may be asked for again: a replica that finds the consumer answers with it.
    asked = dict(body)
    try:
        commander.ask("POST", "consumers", _Stands, asked, timeout_s=timeout_s, known_as=known_as)
    except SnapshotExpired:
        # Another replica may keep more; those that do not, or do not answer, are passed by.
        for replica in (each.name for each in commander.replicas() if each.active):
            with suppress(SnapshotExpired, Unavailable):
                at(replica).ask("POST", "consumers", _Stands, asked, timeout_s=timeout_s, known_as=known_as)
                return
        raise


def expired_error(table: str, name: str, stood: int | str, why: str, at: datetime) -> ConsumerExpired:
    """Return the error of a reader whose consumer holds nothing any more.

    Parameters
    ----------
    table, name
        The names of the table and of the consumer.
    stood, why, at
        The index or cut where it stood when its hold ended, why that was, and when.
    """
    return ConsumerExpired(
        f"the hold of consumer {name} of table {table} ended at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, when it stood at"
        f" {stood}, because {why}. What it has not read may be gone: drop it, and create it again with 'snapshot'",
        stood if isinstance(stood, int) else parse_cut(stood).zxid,
    )


__all__ = ["HOLD", "TableConsumers", "check_limits", "expired_error", "make_consumer"]
