"""What is said of an insert before it and after it: its terms, its result, and what a connection has written so far.

Every handle of a table has these; how rows travel (`replitree.client.insert.insert`) is imported by the first insert, for it
brings Arrow, the encoder and the merge with it, and most handles only read.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from replitree.client.insert.quorum import InsertQuorum
from replitree.errors import BadInput
from replitree.storage.schema.columns import UTC
from replitree.wire.sent_batch import SentBatch

if TYPE_CHECKING:
    from replitree.client.transport.stored import Through
    from replitree.protocol.sharded.cut import Cut

TIMEOUT_S = 60.0
"""How long an insert may take to be answered, in seconds; the writing of files does not count."""

Overwrite: TypeAlias = Literal["all", "partitions"]
"""What an insert takes the place of: everything, or everything in the partitions that its rows belong to."""


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What became of an insert.

    Attributes
    ----------
    index
        Its position on the table's number line.  None when there were no rows, or when it repeats an insert so old that
        its position is forgotten.
    rows
        How many rows it has.
    outcome
        ``inserted``; ``duplicate`` when they were in the table already (after a lost answer: from the first try); or
        ``empty``: then the index is that of the drop, if the table was to be emptied.
    token
        The token that identified it; None when its content did.
    settled
        Of an insert with a quorum: the position at which it was settled, which is above `index`.  A read that is to show it
        waits for this one.
    differs
        Of a duplicate with a token: the earlier insert certainly had other rows, or the same in another order; those of this
        one are not in the table.  False also when that is not known: the log entry of the earlier one is gone, or it has the
        rows of several inserts.
    """

    index: int | None
    rows: int
    outcome: str
    token: str | None
    settled: int | None = None
    differs: bool = False

    @property
    def counts_at(self) -> int | None:
        """The position from which on strict reads show it: what `min_index` of a read asks for."""
        return self.index if self.settled is None else self.settled


@dataclass(frozen=True, slots=True)
class Terms:
    """How rows are inserted: see `Table.insert`.

    Attributes
    ----------
    token
        Names the insert; None: its content does.
    timeout_s
        How long replicas may take, in seconds.
    overwrite, quorum
        What it takes the place of, and how many replicas must have it.
    zone
        Time zone of timestamps that have none.
    batch
        The batch of a stream that the rows are, in the place of a token.
    fires_views
        Whether materialised views of a sharded table see the rows.
    shuffle, through
        Of rows that Spark's tasks write: as of `replitree.spark.write.write.insert_df`.
    """

    token: str | None
    timeout_s: float = TIMEOUT_S
    overwrite: Overwrite | None = None
    quorum: InsertQuorum | None = None
    zone: str = UTC
    batch: SentBatch | None = None
    fires_views: bool = True
    shuffle: bool | None = None
    through: Through | None = None

    def __post_init__(self) -> None:
        if self.overwrite is not None and self.overwrite not in get_args(Overwrite):
            raise BadInput(f'overwrite is "all" or "partitions", not {self.overwrite!r}')
        if self.quorum is not None and self.overwrite is not None:
            raise BadInput("an insert that overwrites can't have a quorum: what it replaces would be gone if it failed")

    @property
    def named(self) -> str:
        """What a client repeats the insert with: its token, or the name of its batch; empty: its content."""
        return self.token or ("" if self.batch is None else self.batch.name)


class Written:
    """What was written through one connection into one table, and what was seen of it.

    Attributes
    ----------
    index
        The highest log index of an insert, a drop or an alter; -1 before the first.
    settled
        The highest log index at which an insert with a quorum was settled; -1 before the first.  Strict reads need it.
    mutated
        The highest log index of a mutation that was finished; -1 before the first.
    seen
        The highest position of a read: everything below it was included.
    cut
        Of a sharded table: the highest cut of a read; None: none was read at a cut.
    in_cut
        Of a shard: every entry up to this log index is in `cut` of its table; -1: that is known of none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.index = -1
        self.settled = -1
        self.mutated = -1
        self.seen = 0
        self.cut: Cut | None = None
        self.in_cut = -1

    def add(self, index: int | None, settled: int | None = None) -> None:
        """Take note of an insert, a drop or an alter; of an insert with a quorum also where it was settled."""
        if index is not None and index > self.index:
            with self._lock:
                self.index = max(self.index, index)
        if settled is not None and settled > self.settled:
            with self._lock:
                self.settled = max(self.settled, settled)

    @property
    def highest(self) -> int:
        """The highest log index of all of that but `seen`; -1: nothing was written."""
        return max(self.index, self.settled, self.mutated)

    def saw(self, position: int) -> None:
        """Take note of a read."""
        if position > self.seen:
            with self._lock:
                self.seen = max(self.seen, position)

    def saw_cut(self, cut: Cut) -> None:
        """Take note of a read of a sharded table at a cut; all cuts are of one ensemble."""
        with self._lock:
            self.cut = cut if self.cut is None or cut.zxid > self.cut.zxid else self.cut

    def add_to_cut(self, index: int) -> None:
        """Take note that every entry of a shard up to this index is in the cut of its table."""
        with self._lock:
            self.in_cut = max(self.in_cut, index)

    def add_mutation(self, index: int) -> None:
        """Take note of a mutation."""
        with self._lock:
            self.mutated = max(self.mutated, index)


def batch_of(
    app_id: str | None, version: int | None, token: str | None = None, *, deduplicate: bool = True
) -> SentBatch | None:
    """Return the batch that an insert is; None: it is none.

    Raises
    ------
    BadInput
        Only one of the two is given, there is another name of the insert, or they can't be a stream and a number in it.

    >>> batch_of("load", 7)
    SentBatch(stream='load', batch=7, query='', takes_over=False)
    """
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise BadInput("txn_app_id and txn_version name an insert together: give both, or a token")
    if token is not None or not deduplicate:
        raise BadInput("txn_app_id and txn_version name the insert already: leave token and deduplicate out")
    return SentBatch(app_id, version)
