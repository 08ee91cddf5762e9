"""The part of a sharded table that reads its change feed, and tells cuts for its readers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.read.as_of import AsOf
from replitree.client.read.scan import LEASE_S
from replitree.client.sharded.cut_reads import CutOptions, CutReads
from replitree.client.sharded.sharded_catalog import ShardedInfo
from replitree.client.sharded.whole_table import ShardedWholeTable
from replitree.client.table import SNAPSHOT_S
from replitree.errors import BadInput
from replitree.protocol.sharded.cut import CutLevel

if TYPE_CHECKING:
    from replitree.client.sharded.feed.sharded_feed import ShardedChanges


@check_arguments
class ShardedFeedTable(ShardedWholeTable):
    """The part of a `replitree.client.sharded.sharded_table.ShardedTable` that reads its change feed."""

    _info: ShardedInfo
    _reads: CutReads

    @abstractmethod
    def _unread_from(self, consumer: str) -> str:
        """Return the cut where a read of what a consumer has not read begins; errors as `changes`."""

    @abstractmethod
    def _held_at(self, cut: str) -> Mapping[str, int]:
        """Return where a cut at which consumers stand lies in the log of each shard; of another cut nothing."""

    @override
    def changes(  # type: ignore[override]
        self,
        start: AsOf | None = None,
        end: AsOf | None = None,
        *,
        consumer: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        of: str | None = None,
        schema_version: int | None = None,
        lease_s: float = LEASE_S,
        timeout_s: float = SNAPSHOT_S,
    ) -> ShardedChanges:
        """Return the changes of the rows of all shards between two cuts: the change feed.

        With the policy ``plain``, the rows at `start` (``as_of=start``) with the changes are the rows at `end`.  A row that
        moves to another shard is no change.  ``_commit_version`` is the number of the transaction: what one insert or one
        command has done in all shards is one version.  See ``docs/sharded-feed.md``.

        Parameters
        ----------
        start, end
            Everything behind the first cut, up to the second one; each a cut, as a snapshot tells it in its attribute `cut`, or
            a time, as of `snapshot`.  0 as `start`: from the beginning.  By default up to the cut that a read would be at.
        consumer
            Begin at the cut of this consumer, instead of `start`.  Call `move_consumer` when the rows are stored.
        columns, where, of, schema_version, lease_s, timeout_s
            As of `Table.changes`.

        Raises
        ------
        FeedOff, ConsumerExpired, OffsetExpired, FeedGap, TableReplaced, SchemaChanged
            As of `Table.changes`; the `index` of `OffsetExpired` and of `SchemaChanged` is the transaction of a cut, and the
            message has the cut.
        SnapshotExpired
            A cut is of an ensemble that was replaced.
        BadInput, ReplicaBehind, Unavailable
            As of `Table.changes`.
        """
        if (start is None) == (consumer is None):
            raise BadInput(
                "the changes begin at a cut, as a snapshot tells it, or at a time, both given as start, or at a consumer: give"
                " one of them"
            )
        from replitree.client.sharded.feed.sharded_feed import ShardedFeed, ShardedWish

        begin = self._unread_from(consumer) if consumer is not None else None if start == 0 else self._cut_at(start)
        wish = ShardedWish(begin, self._cut_at(end), columns, where, of, schema_version, lease_s, timeout_s)
        return ShardedFeed(self._reads, self._beside, self._held_at).read(wish, self._definition, self.origin)

    @property
    def origin(self) -> str:
        """Which table this is, as `ShardedChanges.origin` tells it: its id and incarnation."""
        return f"{self._definition.table_id}.{self._info.incarnation}"

    def cut_now(self, level: CutLevel | None = None, *, timeout_s: float = SNAPSHOT_S) -> str:
        """Return the cut that a read would be at; parameters and errors as of `snapshot`."""
        return str(self._reads.reached(CutOptions(level, timeout_s=timeout_s))[0])

    def cut_at(self, as_of: AsOf) -> str:
        """Return the cut that a time means; parameters and errors as of `snapshot`."""
        return str(self._cut_at(as_of))

    def feed_from(self, *, timeout_s: float = SNAPSHOT_S) -> str:
        """Return the first cut from which on the change feed of all shards is there; errors as of `changes`."""
        from replitree.client.sharded.feed.sharded_feed import ShardedFeed

        return ShardedFeed(self._reads, self._beside, self._held_at).earliest(timeout_s)
