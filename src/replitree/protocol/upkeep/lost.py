"""Lost parts: what to do when no replica has a part that the table needs.

A part whose files are broken, and that no other replica can send, stays registered with a *broken* value: the table has the
part, and this replica does not have its bytes.  The replica is no source of the part then, and all others can see it, also
while it is down.  Before a replica writes that value it searches its own disk for copies: detached, frozen and leaving parts,
and copies of objects.  It puts back a copy that it finds.  The value says that the search found none (*searched*).  Earlier
versions wrote a value that says nothing of a search; so does a replica that recovers from a source without the part.

A part is *lost* when no replica can have it, active or not.  Then a `lost` entry is appended.  It does not change which parts
the table has; it says that this one is empty from here on.  Every replica makes the empty part for itself, so merges and
mutations that wait for it go on, and every name in the table's history keeps its meaning.

The commit that declares a part lost proves, for every replica:

* it has registered nothing that holds rows of the part's blocks: every such registration is broken and searched, and the
  version of each such node is checked.  A replica that has not searched blocks the declaration, active or not, until it has
  searched or is dropped;
* it is not taking over another one's state, which makes nodes anew with their earlier version: the version of its `is_lost` is
  checked;
* it is not about to have the part: the insert is still in its queue (checked), or not yet pulled (the pointer is checked), and
  it is not the writer whose staged files may still be there;
* its work in progress is fenced: the commit bumps its epoch, so it activates again, and knows the entry before it executes
  anything.  That includes the replica that declares the part lost: it may be merging the part, from a time when it was whole.

Whatever was made of the part is broken everywhere, too.  So the commit deletes the node ``results`` of every cover of it: no
replica has that content, and one that makes the cover of the remaining parts would discard it, for ever.  Where a kill has
claimed the cover, it keeps the node, which says from then on only that the cover is its source as it is (`LET_BE`): a killed
mutation does not change the rows that are left.  These nodes are read after the registrations: a replica that adds one has
registered something, and so is noticed, or kills a mutation of a whole part.

`protocol.execute.execute_lost` executes the entry.

A part whose loss is not yet executed is not declared lost again: that would be harmless, but a second entry.  The replica that
declares it has pulled every earlier loss, because each has bumped its epoch.

An insert whose quorum is open is not declared lost: it would be acknowledged as soon as enough replicas have the empty part.
It is given up in time, or settles.

The block ids of an insert go with its only part, so that a client that repeats the insert inserts it again.  The commit counts
in the node `blocks`, like every removal of ids (`protocol.upkeep.clean_blocks`): an id that was removed and taken anew looks
like the old one.

(Spec 6.9, 9.6: ClickHouse's "lost forever" replaces the part by an empty one, decided by each replica for itself.)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, LostEntry, decode_entry, encode_entry, quorum_of
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.insert.quorum import free_blocks
from replitree.protocol.membership.table import HALF_BUILT
from replitree.protocol.state.registration import LET_BE, broken_value, content_of, has_searched, is_broken

READ_BATCH = 1000
"""Registrations, or queue entries, read at once."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The part is empty from the entry at `index` on.

    Attributes
    ----------
    searched
        The replicas that have searched their disks for copies of the part; the others never had it.
    insert_parts
        How many parts the insert had that the part comes from; 0: it was merged, or the insert's entry is gone.
    """

    index: fx.LogIndex
    searched: tuple[str, ...] = ()
    insert_parts: int = 0


@dataclass(frozen=True, slots=True)
class NotLost:
    """A replica has the part, or may have it: `reason` names it, for an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something has changed meanwhile, or the outcome is unknown.  Look again later: the log tells."""


@dataclass(frozen=True, slots=True)
class Unnoticed:
    """The replica that lacks the part has itself registered it, or another one with its rows, as whole.

    It has to load its state again, for it may not know of the registration: a commit without an answer may take place after the
    state was loaded to see what came of it.  Or the part broke here, and the registration does not say so yet.
    """


LostOutcome: TypeAlias = Declared | NotLost | Undecided | Unnoticed


class NoteOutcome(enum.Enum):
    """How a replica's change of its own registration ended.

    After `UNKNOWN` the change may still take place at any moment, until the replica has a new epoch.
    """

    DONE = enum.auto()
    NOT_DONE = enum.auto()
    UNKNOWN = enum.auto()


def declare_lost(
    replica: Replica, epoch: fx.Epoch, part: Part, empty: str, schema_version: int
) -> fx.Procedure[LostOutcome]:
    """Declare a part lost, if no replica can have it.

    Parameters
    ----------
    replica, epoch
        The replica that declares it: active under `epoch`, and sure that neither its disk nor its staging has the rows.
    part
        A part that the table has at the replica's pointer.
    empty
        The content hash of the empty part.
    schema_version
        The columns that the empty part is made with.
    """
    table = replica.table
    yield fx.Sync(layout.replicas(table))
    added = yield fx.Get(layout.replicas(table))
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(table))) or ()
    if added is None:
        return Undecided()
    if part in (yield from _losses_to_execute(replica, part)):
        return NotLost("it is lost already, and its loss is still to be executed here")
    insert = yield from _insert_of(replica, part)
    if insert is not None and quorum_of(insert):
        opened: fx.Node | None = yield fx.Get(layout.quorum_status(table, insert.insert))
        if opened is not None:
            return NotLost("its quorum is open: it is reached or given up first")
    proof: list[fx.Operation] = [fx.Check(layout.replicas(table), added.version)]
    for name in names:
        proven = yield from _prove_without(Replica(table, name), epoch, part, insert, is_self=name == replica.name)
        if not isinstance(proven, tuple):
            return proven
        proof += proven
    entry = LostEntry(replica.name, part.name, empty, schema_version)
    # The ids of an insert that had other parts stay, or a repeated insert would bring the rows of those twice.
    blocks: tuple[fx.Operation, ...] = ()
    if insert is not None and len(insert.parts) <= 1:
        blocks = yield from free_blocks(table, insert)
    results = yield from _reopen_results(table, part)
    proof.append(fx.Check(layout.open_log(table), fx.ANY_VERSION))
    create = fx.Create(layout.log_create(table), encode_entry(entry), sequential=True)
    committed = yield fx.Commit(*proof, *blocks, *results, create)
    if not isinstance(committed, fx.Applied):
        return Undecided()
    places = {name: f"{layout.parts(Replica(table, name))}/" for name in names}
    searched = tuple(name for name in names if any(each.path.startswith(places[name]) for each in proof))
    return Declared(layout.index_of(table, committed.created[-1]), searched, 0 if insert is None else len(insert.parts))


def _reopen_results(table: TablePlace, part: Part) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return the operations after which results that reach over a lost part may be made anew, with other content."""
    known: tuple[str, ...] = (yield fx.Children(layout.results(table))) or ()
    reaching = tuple(each for each in map(parse_part, known) if each.covers(part))
    paths = tuple(layout.result(table, each.name) for each in reaching)
    many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    nodes = {result: node for result, node in zip(reaching, many.nodes, strict=True) if node is not None}
    operations: list[fx.Operation] = []
    for result, node in nodes.items():
        path = layout.result(table, result.name)
        # What the source came to is known as long as a replica may still make it (`clean_results`).  A source that is lost is
        # left out: it has no row that a mutation could change.
        sources = (
            each for each in nodes if each[:4] == result[:4] and each.mutation < result.mutation and each != part
        )
        source = max(sources, default=None)
        # A mutation that has changed no row has claimed the source's content, too; it leaves what is left of the rows as it is.
        if node.value == LET_BE or (source is not None and node.value == nodes[source].value):
            operations.append(fx.Set(path, LET_BE, node.version))
        else:
            operations.append(fx.Delete(path, fx.ANY_VERSION))
    return tuple(operations)


def _insert_of(replica: Replica, part: Part) -> fx.Procedure[GetEntry | None]:
    """Return the entry of the insert that a part comes from; None for a merged part, or when the entry is gone."""
    if part.block_min != part.block_max:
        return None
    paths = (layout.log_entry(replica.table, part.block_min), layout.queue_entry(replica, part.block_min))
    many: fx.Many = yield fx.GetMany(paths)
    for path, node in zip(paths, many.nodes, strict=True):
        if node is not None:
            entry = decode_entry(node.value, path)
            return entry if isinstance(entry, GetEntry) else None
    return None


def _prove_without(
    replica: Replica, epoch: fx.Epoch, part: Part, insert: GetEntry | None, *, is_self: bool
) -> fx.Procedure[tuple[fx.Operation, ...] | NotLost | Undecided | Unnoticed]:
    """Return the operations that prove that a replica can't have a part's rows, and that fence it."""
    many: fx.Many = yield fx.GetMany((layout.host(replica), layout.is_lost(replica), layout.is_active(replica)))
    host, lost, active = many.nodes
    registered: tuple[str, ...] | None = yield fx.Children(layout.parts(replica))
    # What a replica in the middle of a recovery has registered is a mixture of two states, and changes.
    if host is None or lost is None or registered is None or (lost.value == HALF_BUILT and active is not None):
        return Undecided()
    near = tuple(name for name in registered if _shares_blocks(parse_part(name), part))
    proven: tuple[fx.Operation, ...] | NotLost | Undecided | Unnoticed
    if near:
        proven = yield from _prove_broken(replica, near, is_self=is_self)
    else:
        proven = yield from _prove_not_brought(replica, part, insert, is_self=is_self)
    if not isinstance(proven, tuple):
        return proven
    # The replica has some rows of the part, and an entry may still bring the rest.
    if near and not any(parse_part(name).covers(part) for name in near):
        more = yield from _prove_not_brought(replica, part, insert, is_self=is_self, is_partly_here=True)
        if not isinstance(more, tuple):
            return more
        proven += more
    if is_self and int(host.version) != int(epoch):
        return Undecided()
    return (
        *proven,
        fx.Check(layout.is_lost(replica), lost.version),
        fx.Set(layout.host(replica), host.value, host.version),
    )


def _prove_broken(
    replica: Replica, parts: tuple[str, ...], *, is_self: bool
) -> fx.Procedure[tuple[fx.Operation, ...] | NotLost | Undecided | Unnoticed]:
    """Prove that registered parts are all broken."""
    values: fx.Many = yield fx.GetMany(tuple(layout.part(replica, name) for name in parts))
    proof: list[fx.Operation] = []
    for name, node in zip(parts, values.nodes, strict=True):
        if node is None:
            return Undecided()
        if not is_broken(node.value):
            return Unnoticed() if is_self else NotLost(f"replica {replica.name} has {name}")
        if not has_searched(node.value):
            return NotLost(
                f"replica {replica.name} has not searched its own disk for copies of {name} yet: start it, upgrade it if it is"
                " of an earlier version, or drop it"
            )
        proof.append(fx.Check(layout.part(replica, name), node.version))
    return tuple(proof)


def _prove_not_brought(
    replica: Replica, part: Part, insert: GetEntry | None, *, is_self: bool, is_partly_here: bool = False
) -> fx.Procedure[tuple[fx.Operation, ...] | NotLost | Undecided]:
    """Prove that a replica has not brought a part yet, and can't from what it has itself."""
    pointer: fx.Node | None = yield fx.Get(layout.log_pointer(replica))
    queue: tuple[str, ...] | None = yield fx.Children(layout.queue(replica))
    if pointer is None or queue is None:
        return Undecided()
    waiting = tuple(index for index in map(layout.queue_index, queue) if part.block_min <= index <= part.block_max)
    if layout.pointer_index(pointer.value) <= part.block_max:
        if insert is None or (insert.replica == replica.name and not is_self):
            return NotLost(
                f"replica {replica.name} has not read the log up to there, and may have the rows: start it or drop it"
            )
        return (fx.Check(layout.log_pointer(replica), pointer.version),)
    paths = tuple(layout.queue_entry(replica, index) for index in waiting)
    entries: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    proof: list[fx.Operation] = []
    for path, node in zip(paths, entries.nodes, strict=True):
        if node is None:
            return Undecided()
        entry = decode_entry(node.value, path)
        if isinstance(entry, GetEntry) and entry.replica == replica.name and not is_self:
            return NotLost(f"replica {replica.name} wrote it, and may have its rows: start it or drop it")
        proof.append(fx.Check(path, node.version))
    return tuple(proof) if proof or is_partly_here else Undecided()


def _shares_blocks(one: Part, other: Part) -> bool:
    return one.partition == other.partition and one.block_min <= other.block_max and other.block_min <= one.block_max


# --- a part that is broken here ----------------------------------------------------------------------------------------------


def note_broken(replica: Replica, epoch: fx.Epoch, part: Part) -> fx.Procedure[NoteOutcome]:
    """Note that this replica's files of a registered part are broken, and that its disk has no copy.

    The caller has searched the disk since the part was found broken.
    """
    node = yield fx.Get(layout.part(replica, part.name))
    if node is None:
        return NoteOutcome.NOT_DONE
    if has_searched(node.value):
        return NoteOutcome.DONE
    value = broken_value(content_of(node.value), is_searched=True)
    return (yield from _set_part(replica, epoch, part, value, node))


def note_whole(replica: Replica, epoch: fx.Epoch, part: Part) -> fx.Procedure[NoteOutcome]:
    """Note that this replica's files of a registered part are whole again."""
    node = yield fx.Get(layout.part(replica, part.name))
    if node is None or not is_broken(node.value):
        return NoteOutcome.DONE
    # A part that was made of a lost one is never whole again: its files have rows that were given up.
    # A replica that has not pulled the loss yet is under an epoch that is over, so its commits are refused.
    lost = yield from _losses_to_execute(replica, part)
    if any(each != part and part.covers(each) for each in lost):
        return NoteOutcome.NOT_DONE
    return (yield from _set_part(replica, epoch, part, content_of(node.value).encode(), node))


def _losses_to_execute(replica: Replica, part: Part) -> fx.Procedure[tuple[Part, ...]]:
    """Return what entries of the queue that come after a part declare lost."""
    names: tuple[str, ...] = (yield fx.Children(layout.queue(replica))) or ()
    later = tuple(layout.queue_entry(replica, i) for i in map(layout.queue_index, names) if i > part.block_max)
    found: list[Part] = []
    for first in range(0, len(later), READ_BATCH):
        batch = later[first : first + READ_BATCH]
        many: fx.Many = yield fx.GetMany(batch)
        entries = [
            decode_entry(node.value, path) for path, node in zip(batch, many.nodes, strict=True) if node is not None
        ]
        found += [parse_part(entry.part) for entry in entries if isinstance(entry, LostEntry)]
    return tuple(found)


def noted_broken(replica: Replica) -> fx.Procedure[tuple[str, ...]]:
    """Return the registered parts whose registration says that they are broken here."""
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    found: list[str] = []
    for first in range(0, len(names), READ_BATCH):
        batch = names[first : first + READ_BATCH]
        values: fx.Many = yield fx.GetMany(tuple(layout.part(replica, name) for name in batch))
        found += [
            name for name, node in zip(batch, values.nodes, strict=True) if node is not None and is_broken(node.value)
        ]
    return tuple(found)


def registered_contents(replica: Replica, names: tuple[str, ...]) -> fx.Procedure[dict[str, str]]:
    """Return the content that parts are registered with, broken or not; those that are not registered are left out."""
    values: fx.Many = (yield fx.GetMany(tuple(layout.part(replica, name) for name in names))) if names else fx.Many(())
    return {name: content_of(node.value) for name, node in zip(names, values.nodes, strict=True) if node is not None}


def _set_part(replica: Replica, epoch: fx.Epoch, part: Part, value: bytes, node: fx.Node) -> fx.Procedure[NoteOutcome]:
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), epoch), fx.Set(layout.part(replica, part.name), value, node.version)
    )
    match committed:
        case fx.Applied():
            return NoteOutcome.DONE
        case fx.Unknown():
            return NoteOutcome.UNKNOWN
    return NoteOutcome.NOT_DONE
