"""Lost parts: what to do when no replica has a part that the table needs.

A part whose files are broken, and that nobody can send, stays registered with a *broken* value: the table has the part, and
this replica does not have its bytes.  It is no source for others then, and all can see it, also while the replica is down.

A part is *lost* when no replica can have it, active or not.  Then a `lost` entry is appended.  It does not change which parts
the table has; it says that this one is empty from here on.  Every replica makes the empty part for itself, so merges and
mutations that wait for it go on, and no name in the table's history loses its meaning.

Who declares a part lost proves in the commit, for every replica:

* it has registered nothing that holds rows of the part's blocks: what it has registered there is broken, and the version of
  each such node is checked;
* it is not about to: the insert is still in its queue (checked), or not yet pulled (the pointer is checked), and it is not the
  writer whose staged files may still be there;
* whatever it has under way is fenced: the commit bumps its epoch, so it activates again, and knows the entry before it executes
  anything.  That goes for who declares it, too: it may be merging the part, from a time when it was whole.

What a fetch or a merge that was fenced has left on a disk counts for nothing any more: as long as the entry is in the queue
nothing is made of the part (`registration.to_be_kept`), and its execution sets aside what reaches over it and is not
registered.

The block ids of an insert go with its only part, so that a client that repeats the insert inserts it again.  That is counted in
the node `blocks`, as every removal of ids is (`protocol.clean_blocks`): an id that was removed and taken anew looks like the
old one.

(Spec 6.9, 9.6: ClickHouse's "lost forever" replaces the part by an empty one, decided by each replica for itself.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Detach,
    Epoch,
    FindPart,
    Get,
    GetMany,
    ListParts,
    LogIndex,
    Made,
    MakeEmpty,
    Many,
    Node,
    Operation,
    Procedure,
    Publish,
    Published,
    RemovePart,
    RemoveStaging,
    Set,
    StoreFailed,
    Sync,
)
from replitree.protocol.entries import (
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    decode_block,
    decode_entry,
    encode_entry,
)
from replitree.protocol.layout import Replica
from replitree.protocol.making import staged_result
from replitree.protocol.parts import Part, parse_part
from replitree.protocol.pull import Queued
from replitree.protocol.registration import (
    ExecuteOutcome,
    View,
    broken_value,
    content_of,
    deregister,
    finish,
    is_broken,
    postpone,
    register,
)

READ_BATCH = 1000
"""Registrations read at once."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The part is empty from the entry at `index` on."""

    index: LogIndex


@dataclass(frozen=True, slots=True)
class NotLost:
    """Somebody has the part, or may have it: `reason` names who, for an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something has changed meanwhile, or the outcome is unknown.  Look again later: the log tells."""


LostOutcome: TypeAlias = Declared | NotLost | Undecided


def declare_lost(replica: Replica, epoch: Epoch, part: Part, empty: str, schema_version: int) -> Procedure[LostOutcome]:
    """Declare a part lost, if no replica can have it.

    Parameters
    ----------
    replica, epoch
        Who declares it: active under `epoch`, and sure that neither its disk nor its staging has the part's rows.
    part
        A part that the table has at the replica's pointer.
    empty
        The content hash of the empty part.
    schema_version
        The columns that the empty part is made with.
    """
    table = replica.table
    yield Sync(layout.replicas(table))
    added = yield Get(layout.replicas(table))
    names: tuple[str, ...] = (yield Children(layout.replicas(table))) or ()
    if added is None:
        return Undecided()
    insert = yield from _insert_of(replica, part)
    proof: list[Operation] = [Check(layout.replicas(table), added.version)]
    for name in names:
        proven = yield from _prove_without(Replica(table, name), epoch, part, insert, is_self=name == replica.name)
        if not isinstance(proven, tuple):
            return proven
        proof += proven
    entry = LostEntry(replica.name, part.name, empty, schema_version)
    blocks = yield from _freed_blocks(replica, insert)
    proof.append(Check(layout.open_log(table), ANY_VERSION))
    create = Create(layout.log_create(table), encode_entry(entry), sequential=True)
    committed = yield Commit(*proof, *blocks, create)
    if isinstance(committed, Applied):
        return Declared(layout.index_of(table, committed.created[-1]))
    return Undecided()


def _insert_of(replica: Replica, part: Part) -> Procedure[GetEntry | None]:
    """Return the entry of the insert that a part comes from; None for a merged part, or when the entry is gone."""
    if part.block_min != part.block_max:
        return None
    paths = (layout.log_entry(replica.table, part.block_min), layout.queue_entry(replica, part.block_min))
    many: Many = yield GetMany(paths)
    for path, node in zip(paths, many.nodes, strict=True):
        if node is not None:
            entry = decode_entry(node.value, path)
            return entry if isinstance(entry, GetEntry) else None
    return None


def _prove_without(
    replica: Replica, epoch: Epoch, part: Part, insert: GetEntry | None, *, is_self: bool
) -> Procedure[tuple[Operation, ...] | NotLost | Undecided]:
    """Return the operations that prove that a replica can't have a part's rows, and that fence it."""
    host: Node | None = yield Get(layout.host(replica))
    registered: tuple[str, ...] | None = yield Children(layout.parts(replica))
    if host is None or registered is None:
        return Undecided()
    near = tuple(name for name in registered if _shares_blocks(parse_part(name), part))
    proven: tuple[Operation, ...] | NotLost | Undecided
    if near:
        proven = yield from _prove_broken(replica, near)
    else:
        proven = yield from _prove_not_brought(replica, part, insert, is_self=is_self)
    if not isinstance(proven, tuple):
        return proven
    if near and not _covers(near, part):  # the rest of it may be on its way
        more = yield from _prove_not_brought(replica, part, insert, is_self=is_self, is_partly_here=True)
        if not isinstance(more, tuple):
            return more
        proven += more
    if is_self and int(host.version) != int(epoch):
        return Undecided()
    return (*proven, Set(layout.host(replica), host.value, host.version))


def _covers(names: tuple[str, ...], part: Part) -> bool:
    return any(parse_part(name).covers(part) for name in names)


def _prove_broken(replica: Replica, parts: tuple[str, ...]) -> Procedure[tuple[Operation, ...] | NotLost | Undecided]:
    """Prove that registered parts are all broken."""
    values: Many = yield GetMany(tuple(layout.part(replica, name) for name in parts))
    proof: list[Operation] = []
    for name, node in zip(parts, values.nodes, strict=True):
        if node is None:
            return Undecided()
        if not is_broken(node.value):
            return NotLost(f"replica {replica.name} has {name}")
        proof.append(Check(layout.part(replica, name), node.version))
    return tuple(proof)


def _prove_not_brought(
    replica: Replica, part: Part, insert: GetEntry | None, *, is_self: bool, is_partly_here: bool = False
) -> Procedure[tuple[Operation, ...] | NotLost | Undecided]:
    """Prove that a replica has not brought a part yet, and can't from what it has itself."""
    pointer: Node | None = yield Get(layout.log_pointer(replica))
    queue: tuple[str, ...] | None = yield Children(layout.queue(replica))
    if pointer is None or queue is None:
        return Undecided()
    waiting = tuple(index for index in map(layout.queue_index, queue) if part.block_min <= index <= part.block_max)
    if int(pointer.value) <= part.block_max:
        if insert is None or (insert.replica == replica.name and not is_self):
            return NotLost(
                f"replica {replica.name} has not read the log up to there, and may have the rows: start it or drop it"
            )
        return (Check(layout.log_pointer(replica), pointer.version),)
    paths = tuple(layout.queue_entry(replica, index) for index in waiting)
    entries: Many = (yield GetMany(paths)) if paths else Many(())
    proof: list[Operation] = []
    for path, node in zip(paths, entries.nodes, strict=True):
        if node is None:
            return Undecided()
        entry = decode_entry(node.value, path)
        if isinstance(entry, GetEntry) and entry.replica == replica.name and not is_self:
            return NotLost(f"replica {replica.name} wrote it, and may have its rows: start it or drop it")
        proof.append(Check(path, node.version))
    return tuple(proof) if proof or is_partly_here else Undecided()


def _shares_blocks(one: Part, other: Part) -> bool:
    return one.partition == other.partition and one.block_min <= other.block_max and other.block_min <= one.block_max


def _freed_blocks(replica: Replica, insert: GetEntry | None) -> Procedure[tuple[Operation, ...]]:
    """Return what deletes the block ids of an insert whose only part is lost."""
    if insert is None or len(insert.parts) > 1:
        return ()
    parent: Node | None = yield Get(layout.blocks(replica.table))
    paths = tuple(layout.block(replica.table, block) for block in insert.blocks)
    many: Many = yield GetMany(paths)
    deletes = tuple(
        Delete(path, node.version)
        for path, node in zip(paths, many.nodes, strict=True)
        if node is not None and decode_block(node.value, path).insert == insert.insert
    )
    if parent is None or not deletes:
        return ()
    return Set(layout.blocks(replica.table), parent.value, parent.version), *deletes


# --- a part that is broken here ----------------------------------------------------------------------------------------------


def note_broken(replica: Replica, epoch: Epoch, part: Part) -> Procedure[bool]:
    """Say that this replica's files of a registered part are broken; False when that is not certain."""
    node = yield Get(layout.part(replica, part.name))
    if node is None:
        return False
    if is_broken(node.value):
        return True
    value = broken_value(content_of(node.value))
    return (yield from _set_part(replica, epoch, part, value, node))


def note_whole(replica: Replica, epoch: Epoch, part: Part) -> Procedure[bool]:
    """Say that they are whole again, unless nothing says otherwise; False when that is not certain."""
    node = yield Get(layout.part(replica, part.name))
    if node is None or not is_broken(node.value):
        return True
    return (yield from _set_part(replica, epoch, part, content_of(node.value).encode(), node))


def noted_broken(replica: Replica) -> Procedure[tuple[str, ...]]:
    """Return the registered parts whose registration says that they are broken here."""
    names: tuple[str, ...] = (yield Children(layout.parts(replica))) or ()
    found: list[str] = []
    for first in range(0, len(names), READ_BATCH):
        batch = names[first : first + READ_BATCH]
        values: Many = yield GetMany(tuple(layout.part(replica, name) for name in batch))
        found += [
            name for name, node in zip(batch, values.nodes, strict=True) if node is not None and is_broken(node.value)
        ]
    return tuple(found)


def _set_part(replica: Replica, epoch: Epoch, part: Part, value: bytes, node: Node) -> Procedure[bool]:
    committed = yield Commit(
        Check(layout.host(replica), epoch), Set(layout.part(replica, part.name), value, node.version)
    )
    return isinstance(committed, Applied)


# --- executing the entry ----------------------------------------------------------------------------------------------------


def execute_lost(replica: Replica, epoch: Epoch, view: View, item: Queued) -> Procedure[ExecuteOutcome]:
    """Make the lost part empty here.  Rows of it that are here all the same are set aside."""
    entry = item.entry
    assert isinstance(entry, LostEntry)
    part = parse_part(entry.part)
    if any(_is_making(earlier, part) for earlier in view.blockers):
        return postpone(item.index, "something is still being made of it")
    own = yield Get(layout.part(replica, part.name))
    if own is None and not view.wants(part):  # dropped; or it has another name, made of the empty part
        return (yield from finish(replica, epoch, (item.index,)))
    if own is not None and own.value == entry.content_hash.encode():
        return (yield from finish(replica, epoch, (item.index,)))
    if own is not None and not is_broken(own.value):
        kept = yield Detach((part.name,))
        if isinstance(kept, StoreFailed):
            return postpone(item.index, kept.reason)
    yield from _remove_made_of(view, part)
    found = yield FindPart(part.name)
    if found != entry.content_hash:  # otherwise an earlier try came that far, and reads may show it already
        trouble = yield from _publish_empty(part, entry)
        if trouble is not None:
            return postpone(item.index, trouble)
    claim = (
        register(replica, part, entry.content_hash)
        if own is None
        else Set(layout.part(replica, part.name), entry.content_hash.encode(), own.version)
    )
    inside = view.held.between(part.partition, part.block_min, part.block_max)
    gone = tuple(each for each in inside if each != part)
    operations = (claim, *(deregister(replica, each) for each in gone))
    return (yield from finish(replica, epoch, (item.index,), operations, (part,), gone))


def _publish_empty(part: Part, entry: LostEntry) -> Procedure[str | None]:
    """Put the empty part in the place of what is there; return what is wrong."""
    staging = staged_result(part)
    made: Made | StoreFailed = yield MakeEmpty(staging, part.name, entry.schema_version)
    if not isinstance(made, Made):
        return made.reason
    if made.content_hash != entry.content_hash:
        yield RemoveStaging(staging)
        return f"the empty part is made differently here: {made.content_hash}"
    yield RemovePart(part.name)
    published = yield Publish(staging, ((part.partition, part.name),))
    whole = isinstance(published, Published) and not published.missing
    return None if whole else "its files could not be published"


def _is_making(item: Queued, part: Part) -> bool:
    """Whether an entry that is being executed makes something of a part."""
    is_made = isinstance(item.entry, MergeEntry | MutateEntry)
    return is_made and any(_shares_blocks(each, part) for each in item.change.added)


def _remove_made_of(view: View, part: Part) -> Procedure[None]:
    """Set aside what an execution that was fenced has published of a part and not registered."""
    on_disk: tuple[str, ...] = yield ListParts()
    for each in map(parse_part, on_disk):
        if each != part and each.covers(part) and each not in view.held and view.held.covering(each) is None:
            yield RemovePart(each.name)
