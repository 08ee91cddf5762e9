"""A batch: the rows of a move in some partitions, which go from the source to the target at one transaction.

::

    1. lay         Check(map), Set(moves: the batch), Check(commands), what a replica of the target has prepared,
                   Create(quorum/status/<insert>), and in the target's log a `get` with the rows
    2. the replicas of the target fetch the rows, and count themselves, as for any insert with a quorum
    3. show        Check(map), Set(moves: no batch), Delete(quorum/status/<insert>),
                   in the target's log `settle`, in the source's log a `mutate` for each partition, which deletes the rows

Between 1 and 3 the insert is open, so no read shows its rows, and no merge touches them.  After 3 the target shows them, and
the source does not: both entries have one transaction, so every cut has each row once (D1).

*What is laid is all that the source has*, as it is then.  The rows are read after the version of ``moves`` and after that of
``commands``, and 1 checks both.  So between the read and 1 no command has changed the rows, and no other batch has taken them.
No insert brings new ones: the map sends them to the target, and the inserts that were open when it changed have ended
(`list_opened`).  Merges of the source leave rows what they are.

*They are compared before they are laid.*  `Laying` has the count and the content of the rows twice: as they were read at the
source, and as they lie in the files that the target has prepared.  A batch that differs is never laid (`refuse`): what 3 shows
is what it deletes at the source.  The replicas that fetch the files of a batch verify them by the hash in its entry.

*Commands between 1 and 3* are in both logs, and change the rows in both: a mutation treats open parts as any other.

*Who ends it.*  The entry names a joint insert that has no node, so the replicas only count themselves
(`protocol.insert.joint_quorum`): none of them settles it, and none lets it fail.  Only 3 does, or `take_back`.

*Doubt.*  Each commit writes ``moves`` at the version that was read, so one that comes late does nothing, and the next look at
that node tells what became of it.

Absent on purpose: how rows are read and hashed, and how long a batch waits for its quorum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    BlockValue,
    Entry,
    FailEntry,
    GetEntry,
    MutateEntry,
    SettleEntry,
    encode_entry,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.insert.insert import find_insert
from replitree.protocol.insert.quorum import open_quorum
from replitree.protocol.sharded.moves.course import MovesFound
from replitree.protocol.sharded.moves.progress import Batch
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.state.counted import QuorumValue, decode_quorum


@dataclass(frozen=True, slots=True)
class RowsSum:
    """How many rows there are, and the hash of their content, which does not depend on their order."""

    rows: int
    content: str


@dataclass(frozen=True, slots=True)
class Laying:
    """What is to be laid.

    Attributes
    ----------
    batch
        What the node ``moves`` says of it.
    prepared
        The rows, as a replica of the target has prepared them in a process of its own.
    read, staged
        The rows as they were read at the source, and as they lie in the files that are prepared.
    """

    batch: Batch
    prepared: Participant
    read: RowsSum
    staged: RowsSum

    @property
    def difference(self) -> str:
        """How the rows at the target differ from those of the source; "": they are the same."""
        if self.read == self.staged:
            return ""
        batch, read, staged = self.batch, self.read, self.staged
        return (
            f"{read.rows:,} rows with the content {read.content} move from shard {batch.source} to shard {batch.target},"
            f" and {batch.replica} has prepared {staged.rows:,} with the content {staged.content}"
        )

    @property
    def entry(self) -> GetEntry:
        """What is appended to the log of the target."""
        its = self.prepared
        entry = GetEntry(its.replica.name, its.staging, its.parts, (), its.schema_version)
        return msgspec.structs.replace(
            entry, format=5, quorum=self.batch.quorum, joint=fx.JointId(f"move-{its.staging}"), shards=1
        )


@dataclass(frozen=True, slots=True)
class RowsRemoval:
    """What deletes the rows of a move from its source.

    Attributes
    ----------
    id
        Names it.
    command
        The mutation, as `replitree.storage.rewrite.mutate` reads it.
    schema_version
        Of the columns for which it is written.
    """

    id: fx.EntryId
    command: str
    schema_version: int = 1


def list_opened(sources: Sequence[TablePlace]) -> fx.Procedure[frozenset[str]]:
    """Return the nodes of the inserts whose quorum is open in some shards, after their moves have begun.

    When all of them are gone, no insert from before is open: what it has brought is settled, or never will be.
    """
    parents = tuple(layout.quorum_statuses(each) for each in sources)
    lists: fx.Lists = yield fx.ChildrenMany(parents)
    return frozenset(f"{parent}/{name}" for parent, names in zip(parents, lists, strict=True) for name in names or ())


def lay(found: MovesFound, commands: tuple[str, fx.Version], laying: Laying) -> fx.Procedure[fx.Committed]:
    """Bring rows to their target, where no read shows them yet.

    Parameters
    ----------
    found
        The moves as they were before the rows were read; nothing was on its way.
    commands
        The node that counts the commands, and its version before the rows were read.
    laying
        The rows.
    """
    assert found.batch is None
    assert found.progress is not None
    assert not laying.difference
    replica, entry = laying.prepared.replica, laying.entry
    committed: fx.Committed = yield fx.Commit(
        fx.Check(layout.shard_map(found.place), found.map_version),
        found.noted(msgspec.structs.replace(found.progress, batch=laying.batch)),
        fx.Check(*commands),
        *laying.prepared.proofs(is_own=False),
        *open_quorum(replica, entry),
        fx.Create(layout.log_create(replica.table), encode_entry(entry), sequential=True),
    )
    return committed


def refuse(found: MovesFound, laying: Laying) -> fx.Procedure[fx.Committed]:
    """Note that a batch was not laid because its rows differ.  Parameters as of `lay`."""
    assert found.progress is not None
    assert laying.difference
    committed: fx.Committed = yield fx.Commit(found.noted(found.progress.with_refused(laying.difference)))
    return committed


@dataclass(frozen=True, slots=True)
class Laid:
    """A batch that is on its way: the index of its entry, the replicas that have its rows, and the version of their node."""

    batch: Batch
    index: fx.LogIndex
    quorum: QuorumValue
    version: fx.Version

    @property
    def is_ready(self) -> bool:
        """Whether as many replicas have the rows as must have them."""
        return len(self.quorum.replicas) >= self.batch.quorum


def look_at(found: MovesFound, batch: Batch) -> fx.Procedure[Laid | None]:
    """Return how far a batch is; None: it is on its way no more."""
    target = found.shard(batch.target)
    path = layout.quorum_status(target, batch.insert)
    node: fx.Node | None = yield fx.Get(path)
    written = None if node is None else (yield from find_insert(target, BlockValue(batch.insert, batch.log_from)))
    if node is None or written is None:
        return None
    return Laid(batch, written.index, decode_quorum(node.value, path), node.version)


def show(found: MovesFound, laid: Laid, removal: RowsRemoval) -> fx.Procedure[fx.Committed]:
    """Let a batch be shown at its target, and no more at its source.

    Parameters
    ----------
    found
        The moves; the batch is on its way.
    laid
        How far it is: ready.
    removal
        What deletes the rows at the source.
    """
    assert laid.is_ready
    assert found.progress is not None
    batch, holders = laid.batch, laid.quorum.replicas
    source, target = yield from _below(found.shard(batch.source), found.shard(batch.target))
    settle = SettleEntry(batch.replica, batch.insert, laid.index, holders)
    removes = (
        MutateEntry(batch.replica, fx.EntryId(f"{removal.id}-{at}"), partition, removal.command, removal.schema_version)
        for at, partition in enumerate(batch.partitions)
    )
    committed: fx.Committed = yield fx.Commit(
        fx.Check(layout.shard_map(found.place), found.map_version),
        found.noted(found.progress.with_arrived(batch)),
        fx.Delete(layout.quorum_status(target, batch.insert), laid.version),
        # A replica that has left the shard since is not counted.
        *(fx.Check(layout.host(Replica(target, name)), fx.ANY_VERSION) for name in holders),
        # No earlier part has later columns than the mutation knows.
        fx.Check(layout.columns(source), fx.Version(removal.schema_version - 1)),
        *_append(target, settle),
        *_append(source, *removes),
    )
    return committed


def take_back(found: MovesFound, laid: Laid) -> fx.Procedure[fx.Committed]:
    """Remove a batch from its target: its rows are shown at the source, as they always were.  Parameters as of `show`."""
    assert found.progress is not None
    operations = yield from taken_back(found, laid)
    committed: fx.Committed = yield fx.Commit(
        found.noted(msgspec.structs.replace(found.progress, batch=UNSET)), *operations
    )
    return committed


def taken_back(found: MovesFound, laid: Laid) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return what removes a batch from its target, in a commit that also writes the node ``moves``."""
    batch = laid.batch
    (target,) = yield from _below(found.shard(batch.target))
    deletes = fx.Delete(layout.quorum_status(target, batch.insert), laid.version)
    return deletes, *_append(target, FailEntry(batch.replica, batch.insert, laid.index, batch.partitions))


def _below(*shards: TablePlace) -> fx.Procedure[tuple[TablePlace, ...]]:
    """Return shards as places whose log is open: a log may have gone on below another parent."""
    lists: fx.Lists = yield fx.ChildrenMany(tuple(layout.open_logs(each) for each in shards))
    return tuple(
        each.below(max((layout.parent_named(mark) for mark in marks or ()), default=0))
        for each, marks in zip(shards, lists, strict=True)
    )


def _append(table: TablePlace, *entries: Entry) -> tuple[fx.Operation, ...]:
    """Return what appends entries to the log of a shard."""
    path, open_log = layout.log_create(table), fx.Check(layout.open_log(table), fx.ANY_VERSION)
    return open_log, *(fx.Create(path, encode_entry(each), sequential=True) for each in entries)
