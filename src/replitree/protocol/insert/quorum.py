"""Quorum: an insert counts once so many replicas have its parts, or it leaves the table for good.

The insert's commit also creates ``quorum/status/<insert id>``, which names the writer.  From then on the insert is *open*
(`protocol.core.fold`), until exactly one of two things happens, each in one commit that deletes that node by its version:

* *counting* a replica that has the parts adds itself; the one that completes the number appends `settle`
* `give_up`  the writer when its patience is over, or the leader, appends `fail`, and frees the ids or sets the stream back

So the log records the outcome of every insert, once and for all replicas.  A replica that waits for an insert answers by that
entry as soon as it has read it, pulled or not (`answer_awaited`).  The absence of the node answers nothing: it is absent in
both cases.

*Which replica has the parts.*  One that has executed the insert's entry: it has registered the parts, or their merged or
mutated forms, or it knows a later entry that dropped them.  The writer has them from the commit on: they are staged and
synced, and the sweep does not delete committed files.  A replica whose files are broken does not count itself.

*In one commit.*  The first replica after the writer registers the parts and joins the quorum in one commit.  It does not read
the quorum node first: if it is first, the node still has the version at which the insert created it (`count_first`).  If that
commit is refused, another replica was faster or the quorum is over.  Then the replica registers the parts alone and reads the
node (`join`).

*A replica that leaves the table* is counted no more: the drop removes its name from the node before it removes any of its parts
(`counted.count_no_more`).

*Nothing is forgotten.*  A replica that has executed an insert and has not counted itself, because it died or its answer was
lost, does so when its state is next loaded (`rejoin`).  The open inserts are written beside its pointer, and the log keeps
their entries.  No commit here needs a new epoch after an unknown outcome: each is conditional on the version of a node that is
never created again, so of a late and a repeated one at most one takes place.

*A retry* whose block id is taken waits, on any replica, for the insert that it repeats.  When that one fails, the id is free.

*A joint insert* is counted in each of its shards, and ends in all of them at once (`protocol.insert.joint_quorum`).

Absent on purpose: clocks.  The caller decides when to give up; it is safe at any time.

(Spec 5: ClickHouse answers from the absence of the node and asks whether its session held all the time, #54543; a replica that
comes back does not count itself again before 9.2 step 6; a deduplicated retry once answered at once, #18215.)
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    Entry,
    FailEntry,
    GetEntry,
    SettleEntry,
    Verdict,
    decode_block,
    decode_entry,
    encode_entry,
    inserted_parts,
    quorum_of,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import search_log
from replitree.protocol.insert.joint_quorum import end_joint
from replitree.protocol.insert.stream import is_named, set_back
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.state.counted import ATTEMPTS_MAX, QuorumValue, decode_quorum, encode_quorum
from replitree.protocol.state.pull import Loaded
from replitree.protocol.state.registration import is_broken

FIRST_VERSION = fx.Version(0)
"""Version of a node that was not changed since it was created."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """Requests that are answered when the quorum of an insert is reached or given up.

    Attributes
    ----------
    index, entry
        The insert in the log.
    requests
        The requests that wait.
    is_duplicate
        Whether they repeat the insert; otherwise they are part of it.
    """

    index: fx.LogIndex
    entry: GetEntry
    requests: tuple[fx.RequestId, ...]
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class QuorumEnded:
    """What became of an insert with a quorum: the entry that says so, and its own index."""

    index: fx.LogIndex
    verdict: Verdict


_Asked: TypeAlias = Callable[[TablePlace, QuorumValue, fx.Node], fx.Procedure["tuple[fx.Operation, ...] | None"]]
"""What is to become of an open insert, by its node; None: nothing."""


def open_quorum(replica: Replica, entry: GetEntry) -> tuple[fx.Create, ...]:
    """Return what opens the quorum of an insert in its commit; nothing for an insert without one."""
    quorum = quorum_of(entry)
    if not quorum:
        return ()
    value = encode_quorum(QuorumValue(quorum, (replica.name,)))
    return (fx.Create(layout.quorum_status(replica.table, entry.insert), value),)


# --- counting ---------------------------------------------------------------------------------------------------------------


def join(replica: Replica, epoch: fx.Epoch, index: fx.LogIndex, entry: GetEntry) -> fx.Procedure[bool]:
    """Count a replica among those that have an insert's parts; the last one that was needed settles the insert.

    Parameters
    ----------
    replica, epoch
        The replica, which has executed the insert's entry, and its epoch; the procedure goes on under a newer one.
    index, entry
        The insert.

    Returns
    -------
    Whether it is certainly counted, or the insert is open no more.
    """

    def count(table: TablePlace, value: QuorumValue, node: fx.Node) -> fx.Procedure[tuple[fx.Operation, ...] | None]:
        yield from ()
        if replica.name in value.replicas:
            return None
        holders = tuple(sorted((*value.replicas, replica.name)))
        path = layout.quorum_status(table, entry.insert)
        # A shard of a joint insert is only ready then: all its shards settle together.
        if len(holders) < value.quorum or entry.joint is not UNSET:
            return (fx.Set(path, encode_quorum(QuorumValue(value.quorum, holders)), node.version),)
        others = (fx.Check(layout.host(Replica(table, name)), fx.ANY_VERSION) for name in value.replicas)
        settle = SettleEntry(replica.name, entry.insert, index, holders)
        return (fx.Delete(path, node.version), *others, *_append(table, settle))

    is_counted = yield from _change(replica, epoch, entry, count)
    if entry.joint is not UNSET:
        # After the commit: of two shards that are ready at once, one sees both.
        yield from end_joint(replica, epoch, entry)
    return is_counted


def count_first(replica: Replica, inserts: tuple[tuple[fx.LogIndex, GetEntry], ...]) -> tuple[fx.Operation, ...]:
    """Return the operations by which a replica joins the quorums of inserts, in the commit that registers their parts."""
    # The replica does not read the nodes first.  A node has its first version only if no replica but the writer has joined and
    # the insert was not given up; otherwise the commit is refused.
    counted: list[fx.Operation] = []
    settles: list[SettleEntry] = []
    for index, entry in inserts:
        quorum, path = quorum_of(entry), layout.quorum_status(replica.table, entry.insert)
        holders = tuple(sorted({entry.replica, replica.name}))
        if quorum > len(holders):
            counted.append(fx.Set(path, encode_quorum(QuorumValue(quorum, holders)), FIRST_VERSION))
        elif quorum:
            counted.append(fx.Delete(path, FIRST_VERSION))
            counted.append(fx.Check(layout.host(Replica(replica.table, entry.replica)), fx.ANY_VERSION))
            settles.append(SettleEntry(replica.name, entry.insert, index, holders))
    return (*counted, *_append(replica.table, *settles))


def join_all(
    replica: Replica, epoch: fx.Epoch, inserts: tuple[tuple[fx.LogIndex, GetEntry], ...]
) -> fx.Procedure[None]:
    """Count a replica for those of the inserts that it has executed whose quorum is open, wherever it is not counted yet."""
    paths = tuple(layout.quorum_status(replica.table, entry.insert) for _, entry in inserts if quorum_of(entry))
    many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    opened = dict(zip(paths, many.nodes, strict=True))
    for index, entry in inserts:
        path = layout.quorum_status(replica.table, entry.insert)
        node = opened.get(path)
        if node is not None and replica.name not in decode_quorum(node.value, path).replicas:
            yield from join(replica, epoch, index, entry)


def rejoin(replica: Replica, loaded: Loaded, lacking: Container[str] = ()) -> fx.Procedure[None]:
    """Count a replica for the open inserts that it has executed, in case it was not before.

    Parameters
    ----------
    loaded
        Its state, as it was just loaded.
    lacking
        The registered parts that are not on its disk.
    """
    waiting = frozenset(item.index for item in loaded.queue)
    for index in loaded.place.open:
        path = layout.log_entry(replica.table, index)
        node: fx.Node | None = None if index in waiting else (yield fx.Get(path))
        entry = None if node is None else decode_entry(node.value, path)
        if not isinstance(entry, GetEntry):
            continue
        covers = tuple(loaded.held.covering(part) for part in inserted_parts(entry, index))
        names = tuple(cover.name for cover in covers if cover is not None)
        parts = tuple(layout.part(replica, name) for name in names)
        many: fx.Many = (yield fx.GetMany(parts)) if names else fx.Many(())
        broken = any(node is not None and is_broken(node.value) for node in many.nodes)
        # A replica counts only for what it has whole.
        if broken or any(name in lacking for name in names):
            continue
        epoch: fx.Epoch | None = yield fx.CurrentEpoch()
        if epoch is not None:
            yield from join(replica, epoch, index, entry)


def give_up(replica: Replica, epoch: fx.Epoch, index: fx.LogIndex, entry: GetEntry) -> fx.Procedure[bool]:
    """Let an insert fail whose quorum is open.

    Parameters
    ----------
    replica, epoch
        The replica that gives up: any one, active under `epoch`.
    index, entry
        The insert.

    Returns
    -------
    Whether it is open no more; the log says what became of it.
    """
    if entry.joint is not UNSET:
        return (yield from end_joint(replica, epoch, entry, gives_up=True))

    def fail(table: TablePlace, value: QuorumValue, node: fx.Node) -> fx.Procedure[tuple[fx.Operation, ...] | None]:
        del value
        freed = yield from free_blocks(table, entry)
        back = yield from set_back(table, entry)
        partitions = tuple(part.partition for part in entry.parts)
        failed = FailEntry(replica.name, entry.insert, index, partitions)
        status = layout.quorum_status(table, entry.insert)
        return (fx.Delete(status, node.version), *freed, *back, *_append(table, failed))

    return (yield from _change(replica, epoch, entry, fail))


def free_blocks(table: TablePlace, insert: GetEntry) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return what deletes the block ids of an insert that leaves the table; it is counted as every removal of ids is."""
    if not insert.blocks:
        return ()
    parent: fx.Node | None = yield fx.Get(layout.blocks(table))
    paths = tuple(layout.block(table, block) for block in insert.blocks)
    many: fx.Many = yield fx.GetMany(paths)
    deletes = tuple(
        fx.Delete(path, node.version)
        for path, node in zip(paths, many.nodes, strict=True)
        if node is not None and decode_block(node.value, path).insert == insert.insert
    )
    if parent is None or not deletes:
        return ()
    return fx.Set(layout.blocks(table), parent.value, parent.version), *deletes


def _append(table: TablePlace, *verdicts: Verdict) -> tuple[fx.Operation, ...]:
    """Return what appends the ends of quorums to the log."""
    if not verdicts:
        return ()
    path, open_log = layout.log_create(table), fx.Check(layout.open_log(table), fx.ANY_VERSION)
    return open_log, *(fx.Create(path, encode_entry(verdict), sequential=True) for verdict in verdicts)


def _change(replica: Replica, epoch: fx.Epoch, entry: GetEntry, asked: _Asked) -> fx.Procedure[bool]:
    """Change the node of an open insert; True: it is changed, or nothing was to be changed, or the insert is open no more."""
    table, gone = replica.table, list[str]()
    path = layout.quorum_status(table, entry.insert)
    for _ in range(ATTEMPTS_MAX):
        node: fx.Node | None = yield fx.Get(path)
        if node is None:
            return True
        value = decode_quorum(node.value, path)
        there = tuple(name for name in value.replicas if layout.host(Replica(table, name)) not in gone)
        operations = yield from asked(table, QuorumValue(value.quorum, there), node)
        if operations is None:
            return True
        committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), *operations)
        match committed:
            case fx.Applied():
                return True
            case fx.Refused(operation=fx.Check(path=refused)) if refused == layout.host(replica):
                newer: fx.Epoch | None = yield fx.CurrentEpoch()
                if newer is None or newer <= epoch:
                    return False
                epoch = newer
            case fx.Refused(operation=fx.Check(path=refused)) if refused == layout.open_log(table):
                # The log has rolled over: new entries go below its last parent.
                marks: tuple[str, ...] = (yield fx.Children(layout.open_logs(table))) or ()
                table = table.below(max((layout.parent_named(mark) for mark in marks), default=table.parent))
            case fx.Refused(operation=fx.Check(path=refused)):
                # A replica that had joined has left the table, so it is not counted in the next try.
                gone.append(refused)
            case _:
                yield fx.Sync(path)
    return False


# --- when it is over ----------------------------------------------------------------------------------------------------------


def find_end(table: TablePlace, index: fx.LogIndex) -> fx.Procedure[QuorumEnded | None]:
    """Search the log for what became of the insert at `index`; None: it is open, or the entry that tells is gone."""

    def is_it(at: fx.LogIndex, entry: Entry) -> QuorumEnded | None:
        if not isinstance(entry, SettleEntry | FailEntry) or entry.index != index:
            return None
        return QuorumEnded(at, entry)

    return (yield from search_log(table, fx.LogIndex(index + 1), is_it))


def answer_awaited(table: TablePlace, awaited: Awaited, known: QuorumEnded | None = None) -> fx.Procedure[None]:
    """Answer those who wait for a quorum; the caller has pulled the log so far that the insert is open no more.

    `known` is the entry that ended it, if the caller has it still: then the log is not asked.
    """
    end = (yield from find_end(table, awaited.index)) if known is None else known
    answer: fx.ClientAnswer
    has_id = end is not None
    if end is None:
        # The commit that lets an insert fail deletes its ids, or sets its stream back: what names it proves that it did not.
        paths = tuple(layout.block(table, block) for block in awaited.entry.blocks)
        many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
        has_id = any(
            node is not None and decode_block(node.value, path).insert == awaited.entry.insert
            for path, node in zip(paths, many.nodes, strict=True)
        ) or (yield from is_named(table, awaited.entry))
    if end is not None and isinstance(end.verdict, FailEntry):
        answer = fx.NotInserted(
            f"fewer than {quorum_of(awaited.entry)} replicas had it in time, so it was taken back on all of them:"
            " nothing of it is in the table; insert it again"
        )
    elif not has_id:
        answer = fx.MaybeInserted()
    else:
        settled = None if end is None else end.index
        answer = fx.Duplicate(awaited.index, settled) if awaited.is_duplicate else fx.Inserted(awaited.index, settled)
    yield from answer_all(awaited, answer)


def answer_all(awaited: Awaited, answer: fx.ClientAnswer) -> fx.Procedure[None]:
    """Answer those who wait for a quorum, whatever became of it."""
    for request in awaited.requests:
        yield fx.Answer(request, answer)


# --- who watches ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas a table has, and the names of those that can take part in a quorum now: active, and not lost."""

    count: int
    live: tuple[str, ...]


def count_replicas(table: TablePlace) -> fx.Procedure[Replicas]:
    """Count the replicas of a table, and those that can take part in a quorum now; everything that counts is watched."""
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(table), watch=True)) or ()
    active: list[str] = []
    # Each watch is set before the value is read: a change after the read is reported.
    for name in names:
        yield fx.Exists(layout.is_lost(Replica(table, name)), watch=True)
        if (yield fx.Exists(layout.is_active(Replica(table, name)), watch=True)):
            active.append(name)
    paths = tuple(layout.is_lost(Replica(table, name)) for name in active)
    marks: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    live = tuple(
        name for name, mark in zip(active, marks.nodes, strict=True) if mark is not None and mark.value == NOT_LOST
    )
    return Replicas(len(names), live)


def give_up_overdue(
    replica: Replica, epoch: fx.Epoch, opened: tuple[fx.LogIndex, ...], age_ms: int
) -> fx.Procedure[int]:
    """Let inserts fail that no replica has joined for long, because their writers are gone.  For the leader.

    Parameters
    ----------
    replica, epoch
        The replica that gives up, active under `epoch`.
    opened
        The inserts that are open where it stands.
    age_ms
        How long after the last one has joined, in milliseconds.

    Returns
    -------
    How many inserts were given up, as far as is certain.
    """
    table, parent = replica.table, layout.quorum_statuses(replica.table)
    # The coordination service notes the time when a node is written: writing the parent gives the present by the same clock.
    if not opened or not isinstance(
        (yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Set(parent, b"", fx.ANY_VERSION))), fx.Applied
    ):
        return 0
    now: fx.Node | None = yield fx.Get(parent)
    given_up = 0
    for index in opened:
        path = layout.log_entry(table, index)
        node: fx.Node | None = yield fx.Get(path)
        entry = None if node is None else decode_entry(node.value, path)
        status = (yield fx.Get(layout.quorum_status(table, entry.insert))) if isinstance(entry, GetEntry) else None
        if now is not None and status is not None and now.changed_ms - status.changed_ms > age_ms:
            assert isinstance(entry, GetEntry)
            given_up += yield from give_up(replica, epoch, index, entry)
    return given_up
