"""Restore a table whose nodes are gone, from the parts on one replica's disk.

Coordination has lost everything (a wiped ensemble, a wrong path); the disks have not.  An operator chooses a replica whose
process does not run, and its parts become the table:

1. *begin*    create the table's nodes, of another incarnation, and the replica's own, lost, and the node `restoring`, in one
              commit
2. *fence*    bump the replica's `host`: a request that an earlier run has still on its way is refused from here on
3. *register* the parts, in batches; delete the registrations of an earlier run whose parts are not whole any more
4. *end*      clear `is_lost` and delete `restoring`, in one commit

Until step 4 there is no good replica: no client can insert or read, and no replica can recover.  A replica that joins
meanwhile is lost, because the log does not begin at 0, and recovers when there is a source.  The same replica repeats a run
that was cut off from the start.  A run after the end, as when the answer of the first was lost, finds the table as it should
be, and says so.  No other replica is declared good meanwhile (`recover.survive`): the command that lets an operator do so
looks for `restoring` first, which can't appear later, because it is created with the table.

The log goes on below a parent that never had an entry, so no index and no part's name is used twice, whatever other replicas
have on their disks that this one never had.  Those reuse the parts of the restored table by content, and set aside the rest.

Parts that a detach has kept aside are not restored: a process that died in the middle of it may have left the parts in the
table, and attaching the copies would double their rows.

Not restored: the ids of earlier inserts (a repeated one is inserted again), entries that this replica had not executed, and
drops that were executed and whose files were not marked old before a crash.

For a table on an object store the parts get their marks back with their registrations: `protocol.rescue.restore_shared`.

(ClickHouse's `SYSTEM RESTORE REPLICA` detaches all parts and attaches them one by one; cut off, it can't be repeated.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import PARENT_ENTRIES, Replica
from replitree.protocol.core.log import encode_log, read_start
from replitree.protocol.core.parts import Part
from replitree.protocol.core.values import decode_value, text_of
from replitree.protocol.membership.table import LOST, NOT_LOST, table_nodes
from replitree.protocol.propose.roll_over import NUMBERS_LEFT
from replitree.protocol.rescue.restore_shared import Marks, RestoredShares, marks

BATCH = 100
"""Parts registered in one commit."""

NO_MARKS = Marks({}, {})
"""Of parts on local disks."""

ATTEMPTS_MAX = 8
"""How often a step whose outcome is unknown is looked at again before the caller is asked to repeat everything."""

RESTORING_FORMAT = 1


class RestoringValue(msgspec.Struct, frozen=True):
    """Value of the node ``restoring``: whose parts become the table, and the index that its log begins with."""

    replica: str
    first: int
    format: int = RESTORING_FORMAT


@dataclass(frozen=True, slots=True)
class Restored:
    """The table is there again: `parts` of them are registered, and its log goes on at `first`.

    `already`: an earlier run had done it, and this one has changed nothing.
    """

    parts: int
    first: fx.LogIndex
    already: bool = False


@dataclass(frozen=True, slots=True)
class NotRestored:
    """It is not restored, and why.  `again`: it is finished by repeating it."""

    reason: str
    again: bool = False


RestoreOutcome: TypeAlias = Restored | NotRestored


@dataclass(frozen=True, slots=True)
class ShardBond:
    """What binds the restore of a shard to that of its sharded table (`protocol.rescue.restore_sharded`).

    Attributes
    ----------
    proof
        That the table is still being restored: in the commit that creates the shard's nodes, and in the last one.
    end
        What the last commit creates.
    """

    proof: fx.Check
    end: fx.Create


def restored_from(node: fx.Node | None) -> str:
    """Return which replica a table is being restored from, by its node `restoring`; empty when it is not.

    Raises
    ------
    UnsupportedFormat
        The node has a newer format or can't be read.
    """
    return "" if node is None else _restoring(node).replica


def _restoring(node: fx.Node) -> RestoringValue:
    return decode_value(json_decoder(RestoringValue).decode, node.value, "the node `restoring`", RESTORING_FORMAT)


_encode = msgspec.json.Encoder(order="deterministic").encode


def first_parent(parts: Iterable[Part]) -> int:
    """Return the parent that the log of a restored table begins below: one that no entry can have been below.

    >>> first_parent([])
    1
    >>> first_parent([Part("all", 0, PARENT_ENTRIES - 1, 3)])
    2
    """
    highest = max((max(part.block_max, part.mutation) for part in parts), default=0)
    return layout.parent_of(highest + 2 * NUMBERS_LEFT) + 1


def choose_parts(parts: Iterable[Part]) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return the parts that make up a table, and those that overlap one of them without being covered by it.

    Of two that overlap the one with the later mutation, then the larger one, is chosen; on a disk that only replicas have
    written to there are none.
    """
    chosen: list[Part] = []
    aside: list[Part] = []
    candidates = maximal(parts)
    for part in sorted(candidates, key=lambda each: (-each.mutation, each.block_min - each.block_max, each)):
        (aside if any(part.intersects(other) for other in chosen) else chosen).append(part)
    return tuple(sorted(chosen)), tuple(sorted(aside))


def detached_parts(parts: Mapping[Part, str], kept: Mapping[Part, str]) -> frozenset[Part]:
    """Return the parts that a detach has kept aside with the same content: they had left the table, or were about to.

    Parameters
    ----------
    parts, kept
        What is among the parts of a disk, and what is kept aside there, each with its content hash.

    >>> part = Part("all", 0, 0, 0)
    >>> detached_parts({part: "ab"}, {part: "ab"}) == {part}, detached_parts({part: "ab"}, {part: "cd"}) == {part}
    (True, False)
    """
    return frozenset(part for part, content in parts.items() if kept.get(part) == content)


def restore(
    replica: Replica,
    me: bytes,
    metadata: bytes,
    columns: bytes,
    parts: Mapping[Part, str],
    shared: RestoredShares | None = None,
    bond: ShardBond | None = None,
) -> fx.Procedure[RestoreOutcome]:
    """Make the parts on a replica's disk the table.

    Parameters
    ----------
    replica
        Whose disk it is.  Its process does not run.  Its table has an incarnation that none has ever had; if an earlier run
        has made the table's nodes, theirs stays.
    me
        A value for its `host` that no process has ever written, and no other run.
    metadata, columns
        The table's definition, as the disk keeps it.
    parts
        Parts that do not overlap, whole, with their content hashes.
    shared
        Of a table on an object store: what its parts have there.
    bond
        Of a shard: what its first and its last commit have beside its own nodes.
    """
    begun = yield from _begin(replica, me, (metadata, columns), parts, shared, bond)
    if not isinstance(begun, _Run):
        return begun
    for _ in range(ATTEMPTS_MAX):
        registered = yield from _register(begun, parts, shared)
        if registered is None:
            return (yield from _end(begun, len(parts), bond))
        if not registered:
            return NotRestored(_TAKEN_OVER)
    return NotRestored(_NOT_HEARD, again=True)


_NOT_HEARD = "coordination did not say in time what it has done; repeat it"
_TAKEN_OVER = "something else has changed the replica meanwhile: is its process running, or another restore?"


# --- begin and fence --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: `epoch` is that of `host`, `mark` the version of `restoring`, `lost` that of `is_lost`.

    `incarnation` is which replica of its name it is: the first run has said so.
    """

    replica: Replica
    epoch: fx.Epoch
    mark: fx.Version
    lost: fx.Version
    first: fx.LogIndex
    incarnation: str

    @property
    def proof(self) -> tuple[fx.Operation, ...]:
        """What every commit of the run begins with."""
        return fx.Check(layout.host(self.replica), self.epoch), fx.Check(
            layout.restoring(self.replica.table), self.mark
        )


def _begin(
    replica: Replica,
    me: bytes,
    definition: tuple[bytes, bytes],
    parts: Mapping[Part, str],
    shared: RestoredShares | None,
    bond: ShardBond | None,
) -> fx.Procedure[_Run | RestoreOutcome]:
    """Go through steps 1 and 2, unless an earlier run was finished."""
    fresh, metadata = replica.table.below(first_parent(parts)), definition[0]
    for _ in range(ATTEMPTS_MAX):
        yield fx.Sync(fresh.path)
        made, there, mark = (yield fx.GetMany((fresh.path, layout.metadata(fresh), layout.restoring(fresh)))).nodes
        if there is None:
            proof = () if bond is None else (bond.proof,)
            created = yield fx.Commit(*proof, *_creation(Replica(fresh, replica.name), definition, shared))
            if isinstance(created, fx.Refused) and created.operation in proof:
                return NotRestored("its sharded table was dropped, or shown, meanwhile")
            if isinstance(created, fx.Refused) and created.operation.path != fresh.path:
                return NotRestored(f"{created.operation.path} can't be created: {created.reason.value}")
            continue
        table = layout.table_at(fresh.path, made)
        replica = Replica(table, replica.name)
        problem = _problem(replica, metadata, there, mark)
        named = () if shared is None else (layout.replica_path(replica),)
        host, lost, *own = (yield fx.GetMany((layout.host(replica), layout.is_lost(replica), *named))).nodes
        if mark is None and there.value == metadata and (done := (yield from _finished(replica, lost, parts))):
            return done
        if problem is not None or mark is None or host is None or lost is None or None in own:
            return NotRestored(problem or "a node of the replica is missing; drop the table and restore it again")
        if (yield fx.Get(layout.is_active(replica))) is not None:
            return NotRestored(f"replica {replica.name} is active: stop its process first")
        if host.value == me:
            first = _restoring(mark).first
            incarnation = "".join(text_of(node.value, "a replica's node") for node in own if node is not None)
            return _Run(replica, fx.Epoch(host.version), mark.version, lost.version, fx.LogIndex(first), incarnation)
        fence = fx.Set(layout.host(replica), me, host.version)
        yield fx.Commit(fx.Check(layout.restoring(table), mark.version), fence)
    return NotRestored(_NOT_HEARD, again=True)


def _finished(replica: Replica, lost: fx.Node | None, parts: Mapping[Part, str]) -> fx.Procedure[Restored | None]:
    """Return what an earlier run has done, if the table is a restored one and the replica has these parts in it."""
    # The log of a restored table begins below a later parent than that of any table that has never rolled over.
    start = yield from read_start(replica.table)
    if start is None or start.first < PARENT_ENTRIES or lost is None or lost.value != NOT_LOST:
        return None
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    values: fx.Many = (yield fx.GetMany(tuple(layout.part(replica, name) for name in names))) if names else fx.Many(())
    own = {name: node.value for name, node in zip(names, values.nodes, strict=True) if node is not None}
    is_done = own == {part.name: content.encode() for part, content in parts.items()}
    return Restored(len(parts), fx.LogIndex(start.first), already=True) if is_done else None


def _creation(
    replica: Replica, definition: tuple[bytes, bytes], shared: RestoredShares | None
) -> tuple[fx.Operation, ...]:
    table = replica.table
    first = table.parent * PARENT_ENTRIES
    return (
        *table_nodes(table, *definition, encode_log(table, first)),
        *(() if shared is None else shared.nodes(table)),
        fx.Create(layout.log_parent(table, table.parent)),
        fx.Create(layout.restoring(table), _encode(RestoringValue(replica.name, first))),
        fx.Create(layout.replica_path(replica), b"" if shared is None else shared.incarnation.encode()),
        fx.Create(layout.host(replica)),
        fx.Create(layout.is_lost(replica), LOST),
        fx.Create(layout.log_pointer(replica), str(first).encode()),
        fx.Create(layout.queue(replica)),
        fx.Create(layout.parts(replica)),
    )


def _problem(replica: Replica, metadata: bytes, there: fx.Node, mark: fx.Node | None) -> str | None:
    """Say why a table that is there can't be restored; None when it is ours, and half-restored."""
    name = replica.table.name
    if there.value != metadata:
        return f"there is another table {name}: it has another id, or other settings"
    if mark is None:
        return f"table {name} is there, and is not being restored: replicas join and recover by themselves"
    other = restored_from(mark)
    if other != replica.name:
        return f"table {name} is being restored from replica {other}: finish that, or drop the table first"
    return None


# --- register and end -------------------------------------------------------------------------------------------------------


def _register(run: _Run, parts: Mapping[Part, str], shared: RestoredShares | None) -> fx.Procedure[bool | None]:
    """Make the registered parts what they should be.  None: they are; True: look again; False: it is not ours any more."""
    replica = run.replica
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    values: fx.Many = (yield fx.GetMany(tuple(layout.part(replica, name) for name in names))) if names else fx.Many(())
    own = {name: node.value for name, node in zip(names, values.nodes, strict=True) if node is not None}
    wanted = {part.name: content.encode() for part, content in sorted(parts.items())}
    wrong = tuple(name for name, value in own.items() if wanted.get(name) != value)
    marked = NO_MARKS if shared is None else (yield from marks(replica, run.incarnation, shared.shares, wrong))
    steps = tuple(_steps(replica, own, wanted, marked))
    for first in range(0, len(steps), BATCH):
        operations = (each for step in steps[first : first + BATCH] for each in step)
        committed = yield fx.Commit(*run.proof, *operations)
        # A part that is there or gone already: an own commit whose answer was lost has taken place.
        if not isinstance(committed, fx.Applied):
            return not (isinstance(committed, fx.Refused) and committed.operation in run.proof)
    return True if steps else None


def _steps(
    replica: Replica, own: Mapping[str, bytes], wanted: Mapping[str, bytes], marked: Marks
) -> Iterator[tuple[fx.Operation, ...]]:
    """Yield what takes a part back, with its marks, or registers it, with its marks: never one without the other."""
    for name, value in own.items():
        if wanted.get(name) != value:
            yield fx.Delete(layout.part(replica, name), fx.ANY_VERSION), *marked.delete.get(name, ())
    for name, value in wanted.items():
        if own.get(name, value) != value:
            # The part was just taken back; the next round registers it.
            continue
        register = () if name in own else (fx.Create(layout.part(replica, name), value),)
        if step := (*register, *marked.create.get(name, ())):
            yield step


def _end(run: _Run, parts: int, bond: ShardBond | None) -> fx.Procedure[RestoreOutcome]:
    table = run.replica.table
    committed = yield fx.Commit(
        *run.proof,
        *(() if bond is None else (bond.proof, bond.end)),
        fx.Set(layout.is_lost(run.replica), NOT_LOST, run.lost),
        fx.Delete(layout.restoring(table), run.mark),
    )
    match committed:
        case fx.Applied():
            return Restored(parts, run.first)
        case fx.Refused():
            return NotRestored(_TAKEN_OVER)
    yield fx.Sync(table.path)
    if (yield fx.Get(layout.restoring(table))) is None and (yield fx.Get(layout.metadata(table))) is not None:
        return Restored(parts, run.first)
    return NotRestored(_NOT_HEARD, again=True)
