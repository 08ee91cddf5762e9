"""A shard, as a read over shards asks it: for what a replica of it has seen, and for its snapshot at a cut."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from typing_extensions import override

from replitree.client.insert.terms import Written
from replitree.client.read.read_options import ANSWER_S, CutPoint, ReadOptions, TimeIsUp
from replitree.client.read.snapshot import Snapshot, SnapshotBody
from replitree.client.table import Table
from replitree.client.transport.catalog import ReplicaInfo
from replitree.client.transport.routing import Router
from replitree.protocol.core.stamps import Zxid

if TYPE_CHECKING:
    from replitree.client.read.feed import Changes, ChangesWish


class SeenBody(msgspec.Struct, frozen=True):
    """What a replica answers when it is asked for a cut.

    Attributes
    ----------
    cut
        The highest cut that it can show; or a linearizable one.
    written
        The transaction from which on a cut has the entry that was asked about; 0: none was.
    """

    cut: str
    written: int = 0


@dataclass(frozen=True, slots=True)
class ShardAnswer:
    """What a server has told of a shard at a cut, beside others.

    Attributes
    ----------
    replica, body, asked_at
        Who, what, and when it was asked (monotonic seconds).
    where
        The condition by which it may have left parts out.
    """

    replica: ReplicaInfo
    body: SnapshotBody
    asked_at: float
    where: str | None = None


@dataclass(frozen=True, slots=True)
class ToldOptions(ReadOptions):
    """A read at a cut whose first answer is there."""

    told: ShardAnswer | None = None


class FeedPositions(msgspec.Struct, frozen=True):
    """Where cuts lie in the log of a shard.

    Attributes
    ----------
    positions
        The index of the first entry behind each cut.
    earliest
        The first transaction from which on the replica has the feed; None: from now on, or it was not asked for.
    transaction
        That which has appended the entry which was asked about; 0: none was.
    """

    positions: tuple[int, ...]
    earliest: int | None = None
    transaction: int = 0


class ShardTable(Table):
    """A shard of a sharded table.  Any thread may use it.  Made by `ShardedTable`."""

    @property
    def written(self) -> Written:
        """What this connection has written into the shard."""
        return self._written

    @property
    def router(self) -> Router:
        """Finds its replicas."""
        return self._router

    def seen(self, written: int | None, timeout_s: float) -> SeenBody:
        """Return what a replica has seen of the shard's log (`replitree.protocol.sharded.cut`).

        Parameters
        ----------
        written
            The index of an entry that must be in the reader's cut; None: there is none.
        timeout_s
            When to give up, in seconds.

        Raises
        ------
        Unavailable
            No replica tells it in time.
        TableNotFound
            An entry was asked for, and another table has the name by now: its log has other entries.
        """
        own = "" if written is None else f"&written={written}&of={self._definition.table_id}"
        return self._ask_cut("GET", timeout_s, own)

    def advance_clock(self, timeout_s: float) -> SeenBody:
        """Return a cut that has everything which was acknowledged before.  Errors as `seen`."""
        return self._ask_cut("POST", timeout_s)

    def _ask_cut(self, method: str, timeout_s: float, more: str = "") -> SeenBody:
        def ask(replica: ReplicaInfo, seconds: float, wait_s: float) -> SeenBody:
            route = f"/v1/tables/{quote(self.name)}/cut?wait_s={wait_s:.3f}{more}"
            return self._http.request(replica.address, method, route, timeout_s=seconds).decode(SeenBody)

        try:
            options = ReadOptions(timeout_s=timeout_s)
            return self._router.ask(options.in_time(ask), timeout_s=timeout_s + ANSWER_S)
        except TimeIsUp as over:
            raise over.error from over

    def snapshot_at(self, cut: CutPoint, lease_s: float | None, where: str | None, timeout_s: float) -> Snapshot:
        """Return a snapshot at a cut.

        Parameters
        ----------
        cut
            Where.
        lease_s, where, timeout_s
            As of `Table.snapshot`.

        Raises
        ------
        ReplicaBehind
            No replica has heard of the cut in time, or has executed what is below.
        SnapshotExpired
            No replica knows any more what the shard was there, or has the parts.
        Unavailable
            No replica answers.
        """
        return self._snapshot(ReadOptions(timeout_s=timeout_s, where=where, lease_s=lease_s, cut=cut))

    def snapshot_told(self, cut: CutPoint, options: ReadOptions, told: ShardAnswer, timeout_s: float) -> Snapshot:
        """Return the snapshot at a cut that a server has told of.

        Parameters
        ----------
        cut, timeout_s
            As of `snapshot_at`; errors, too.
        options
            The condition and the lease with which it was asked.
        told
            What it has told.
        """
        return self._snapshot(
            ToldOptions(timeout_s=timeout_s, where=options.where, lease_s=options.lease_s, cut=cut, told=told)
        )

    @override
    def _ask(self, options: ReadOptions, route: str) -> tuple[ReplicaInfo, SnapshotBody, float]:
        told = options.told if isinstance(options, ToldOptions) else None
        # Where the condition means something else by now, other parts may be needed.
        if told is None or told.where != options.needed:
            return super()._ask(options, route)
        options.check(told.body)
        return told.replica, told.body, told.asked_at

    def feed_positions(self, cuts: Sequence[str], timeout_s: float) -> FeedPositions:
        """Return where cuts lie in the shard's log, for a reader of its change feed.

        Parameters
        ----------
        cuts
            The cuts; none: from where on a replica has the feed is asked instead.
        timeout_s
            When to give up, in seconds.

        Raises
        ------
        FeedOff
            The table keeps no change feed.
        OffsetExpired
            No active replica knows where they lie any more.
        SnapshotExpired
            They are of another ensemble.
        ReplicaBehind, Unavailable
            No replica has executed the log that far in time, or none answers.
        """
        route = f"/v1/tables/{quote(self.name)}/feed/positions?cuts={quote(','.join(cuts))}"
        route += "" if cuts else "&earliest=1"
        from replitree.client.read.feed_pages import ask_feed

        return ask_feed(self._router, self._http, route, FeedPositions, timeout_s)[1]

    def transaction_of(self, index: int, timeout_s: float) -> Zxid:
        """Return the transaction that has appended an entry, as replicas remember it for the change feed.

        Raises
        ------
        OffsetExpired
            No active replica knows it any more.
        ReplicaBehind, Unavailable
            As of `feed_positions`.
        """
        route = f"/v1/tables/{quote(self.name)}/feed/positions?cuts=&entry={index}"
        from replitree.client.read.feed_pages import ask_feed

        return Zxid(ask_feed(self._router, self._http, route, FeedPositions, timeout_s)[1].transaction)

    def read_feed(self, wish: ChangesWish) -> Changes:
        """Return the changes of a range of the shard's log; errors as of `Table.changes`."""
        from replitree.client.read.feed import read_changes

        return read_changes(self._ask_feed, wish, self._definition)

    def is_same_at(self, cut: CutPoint, tag: str, timeout_s: float) -> bool:
        """Tell whether the snapshot at a cut has a tag: see `Table.is_unchanged`; errors as `snapshot_at`."""
        options = ReadOptions(timeout_s=timeout_s, cut=cut)
        route = f"{options.path(self.name)}?{options.query(self._written)}&tag={tag}"
        body: SnapshotBody = self._ask(options, route)[1]
        return body.unchanged


def left_s(deadline: float) -> float:
    """Return how many seconds are left until a deadline (monotonic seconds)."""
    return max(0.0, deadline - time.monotonic())


__all__ = ["FeedPositions", "SeenBody", "ShardTable", "left_s"]
