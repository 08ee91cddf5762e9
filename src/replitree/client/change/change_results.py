"""What changes of a table answer: merges, mutations, and copies of parts that are kept aside."""

from __future__ import annotations

import msgspec
from typing_extensions import override


class Merged(msgspec.Struct, frozen=True):
    """A merge that was asked for.

    Attributes
    ----------
    index
        Of its entry in the log.
    partition, sources, result
        The parts that it replaces, and their replacement; empty when the replica that was asked has not come to it yet.
    applied
        Whether all sources were still there; None when the replica that was asked has not come to it yet.
    finished
        The replica that was asked has the result.
    """

    index: int
    partition: str = ""
    sources: tuple[str, ...] = ()
    result: str = ""
    applied: bool | None = None
    finished: bool = False


class OptimizeResult(msgspec.Struct, frozen=True):
    """What `optimize` began: its merges, whether all that was asked for is finished, and if not, why."""

    merges: tuple[Merged, ...]
    finished: bool
    reason: str = ""

    @override
    def __repr__(self) -> str:
        state = "finished" if self.finished else f"not finished: {self.reason}"
        return f"<OptimizeResult {len(self.merges)} merges, {state}>"


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation on one replica.

    Attributes
    ----------
    index, id
        Of its entry in the log.
    replica
        The replica that put it there.
    partition, command
        What it does, and where.
    parts_done, parts_left
        How far the replica that was asked is.
    tries, reason
        How often it failed there, and why.
    finished
        Nothing is left to do there.
    """

    index: int
    id: str = ""
    replica: str = ""
    partition: str = "*"
    command: str = ""
    parts_done: int = 0
    parts_left: int = 0
    tries: int = 0
    reason: str = ""
    finished: bool = False


class MutationList(msgspec.Struct, frozen=True):
    """The mutations of one replica."""

    mutations: tuple[Mutation, ...]


class TtlPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a `ttl` would remove now, as a replica that was asked sees the table.

    Attributes
    ----------
    bound
        Rows before this moment go, in UTC.
    where
        The condition of a row that goes.
    partitions
        Those that are dropped as a whole.
    rows_dropped
        How many rows are in them.
    parts_touched
        How many parts of other partitions may have rows that are deleted.
    unread
        How many parts could not be judged, because they are not whole on the replica.
    """

    bound: str
    where: str
    partitions: tuple[str, ...] = ()
    rows_dropped: int = 0
    parts_touched: int = 0
    unread: int = 0


class Killed(msgspec.Struct, frozen=True):
    """What became of the killing of a mutation: so many parts stay as they were; the others are done."""

    index: int
    killed: int
    finished: bool


class DetachedPart(msgspec.Struct, frozen=True):
    """A part that was taken out of the table and is kept aside.

    Attributes
    ----------
    name
        What `attach` takes.
    part, partition
        What it was.
    rows, bytes
        What is in it.
    replica
        On whose disk it lies.
    shard
        Of a sharded table: the shard that had it; its name begins with that.
    """

    name: str
    part: str
    partition: str
    rows: int
    bytes: int
    replica: str = ""
    shard: str = ""


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen snapshot: hard links to the parts of the table at one position.

    Attributes
    ----------
    name
        What it was called.
    index
        Everything below this log index is in it.
    parts, rows, bytes
        How much that is.
    note
        The operator's text: who froze it and why; may be empty.
    path
        Its folder, on the machine of `replica`.
    shard
        Of a sharded table: the shard whose parts it has.
    """

    name: str
    index: int
    parts: int
    rows: int
    bytes: int
    note: str = ""
    path: str = ""
    replica: str = ""
    shard: str = ""
