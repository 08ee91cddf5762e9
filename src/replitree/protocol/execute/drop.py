"""Drop: earlier parts leave the table, by a command or because an insert replaces them.

The failure of an insert whose quorum was given up is a drop of its block, in the partitions that it wrote to.

Only a drop removes for good.  So it is executed after every earlier queue entry that could bring back a part that it removes
(`registration.blockers`).  Such entries have nothing left to add, and leave the queue at once.

A *detach* is a drop that keeps copies of the removed parts aside, in the form in which the replica has them.  So that the rows
of every insert are kept by some replica, the writer executes its inserts first (`registration.to_be_kept`); and every entry
that would replace or remove a part that is to be kept waits for the detach.

The node ``drops/<partition>`` records the index below which the partition's blocks are gone: their rows may be inserted again
(`protocol.insert.insert`).  Every replica writes it in the commit that executes the drop, and it only grows.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    DropEntry,
    FailEntry,
    GetEntry,
    RewriteEntry,
    dropped_partitions,
    inserted_parts,
    written_parts,
)
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.fetch import fetch_anywhere
from replitree.protocol.state.pull import Fenced, Queued
from replitree.protocol.state.registration import (
    Executed,
    ExecuteOutcome,
    View,
    deregister,
    failure,
    finish,
    postpone,
    register,
)

DROP_BATCH = 500
"""Parts taken back in one commit."""


def execute_drop(replica: Replica, epoch: fx.Epoch, view: View, item: Queued) -> fx.Procedure[ExecuteOutcome]:
    """Take back the parts that a drop, or the failure of an insert, removes."""
    entry = item.entry
    assert isinstance(entry, DropEntry | FailEntry)
    if must_wait(view, item):
        return postpone(item.index, "waits for earlier entries of the same blocks")
    gone = yield from _registered(replica, item)
    if isinstance(entry, DropEntry) and entry.detach and gone:
        kept = yield fx.Detach(tuple(part.name for part in gone))
        if isinstance(kept, fx.StoreFailed):
            return postpone(item.index, kept.reason)
    while len(gone) > DROP_BATCH:
        batch, gone = gone[:DROP_BATCH], gone[DROP_BATCH:]
        committed = yield fx.Commit(
            fx.Check(layout.host(replica), epoch), *(deregister(replica, part) for part in batch)
        )
        if not isinstance(committed, fx.Applied):
            return failure(committed)
        yield fx.Reveal((), tuple(part.name for part in batch))
    is_whole = isinstance(entry, DropEntry) and entry.block_min is None
    notes = (yield from _notes(replica, item.index, _scope(item)[2])) if is_whole else ()
    operations = (*notes, *(deregister(replica, part) for part in gone))
    return (yield from finish(replica, epoch, (item.index,), operations, (), (*gone, *_still_shown(view, item, gone))))


def execute_overwrite(replica: Replica, epoch: fx.Epoch, view: View, item: Queued) -> fx.Procedure[ExecuteOutcome]:
    """Bring the parts of an insert and take back those that it replaces, at once."""
    entry = item.entry
    assert isinstance(entry, GetEntry)
    if must_wait(view, item):
        return postpone(item.index, "waits for earlier entries of the same blocks")
    hashes = {part.partition: part.content_hash for part in entry.parts}
    own = entry.replica == replica.name
    parts = inserted_parts(entry, item.index)
    wanted = tuple(part for part in parts if view.wants(part) or (own and view.must_keep(part)))
    missing = tuple(part.name for part in wanted)
    if own and wanted:
        published = yield fx.Publish(entry.insert, tuple((part.partition, part.name) for part in wanted))
        if isinstance(published, fx.StoreFailed) and not all(map(view.wants, wanted)):
            # Only this replica has the part that the detach must keep aside.
            return postpone(item.index, published.reason)
        missing = published.missing if isinstance(published, fx.Published) else missing
    brought: dict[Part, str] = {part: hashes[part.partition] for part in wanted if part.name not in missing}
    for part in wanted:
        if part.name in missing and view.wants(part):
            cover = view.parts.covering(part) or part
            cover = part if view.hides_kept(cover) else cover
            # The part itself, or else the later form of it that the table has now.
            for form in dict.fromkeys((part, cover)):
                content_hash = yield from fetch_anywhere(replica, form)
                if content_hash is not None:
                    brought[form] = content_hash
                    break
            else:
                return postpone(item.index, f"no replica could send {part.name}")
    gone = yield from _registered(replica, item)
    notes = yield from _notes(replica, item.index, dropped_partitions(entry))
    operations: tuple[fx.Operation, ...] = (
        *notes,
        *(register(replica, part, content_hash) for part, content_hash in brought.items()),
        *(deregister(replica, part) for part in gone),
    )
    hidden = (*gone, *_still_shown(view, item, gone))
    outcome = yield from finish(replica, epoch, (item.index,), operations, tuple(brought), hidden)
    yield from clear_overtaken(replica, view, (item,), outcome)
    return outcome


def clear_overtaken(
    replica: Replica, view: View, inserts: tuple[Queued, ...], outcome: ExecuteOutcome
) -> fx.Procedure[None]:
    """Remove the files of own inserts that left the queue, as far as later entries have removed them from the table.

    This comes after the commit that takes the entries out of the queue.  The insert may be about to publish these files: when
    they are missing, it looks whether its entry has left the queue (`protocol.insert.insert`).
    """
    if isinstance(outcome, Fenced):
        return
    for item in inserts:
        entry = item.entry
        assert isinstance(entry, GetEntry)
        if entry.replica != replica.name:
            continue
        parts = inserted_parts(entry, item.index)
        left = tuple(part for part in parts if not view.wants(part) and not view.must_keep(part))
        if left:
            yield fx.RemoveStaging(entry.insert)
            # The insert may have published them before.  After a commit in doubt they stay on disk: an earlier commit may
            # have registered them.  A recovered replica may hold a part whose entry is in its queue all the same.
            if isinstance(outcome, Executed):
                yield fx.Reveal((), tuple(part.name for part in left if part not in view.held))


def must_wait(view: View, item: Queued) -> bool:
    """Whether an earlier entry may still bring something that `item` removes."""
    # An insert counts by its blocks, also when a later entry drops all of it: as long as it is in the queue, a restore of the
    # table from the registrations would bring it back.
    return removes(item) and any(_is_removed(part, item) for earlier in view.blockers for part in _touched(earlier))


def removes(item: Queued) -> bool:
    """Whether an entry is a drop, an overwrite, or the failure of an insert."""
    return isinstance(item.entry, DropEntry | FailEntry) or (
        isinstance(item.entry, GetEntry) and bool(dropped_partitions(item.entry))
    )


def _touched(item: Queued) -> tuple[Part, ...]:
    written = written_parts(item.entry, item.index) if isinstance(item.entry, GetEntry | RewriteEntry) else ()
    return (*written, *item.change.removed, *item.change.added)


def _is_removed(part: Part, item: Queued) -> bool:
    """Whether a part has a block in the scope of a drop or an overwrite."""
    first, last, partitions = _scope(item)
    is_in_scope = EVERY_PARTITION in partitions or part.partition in partitions
    return is_in_scope and part.block_min <= last and first <= part.block_max


def _scope(item: Queued) -> tuple[int, int, tuple[str, ...]]:
    """Return the first and the last block that an entry removes, and in which partitions."""
    entry, before = item.entry, item.index - 1
    if isinstance(entry, GetEntry):
        return 0, before, dropped_partitions(entry)
    if isinstance(entry, FailEntry):
        return entry.index, entry.index, entry.partitions
    assert isinstance(entry, DropEntry)
    if entry.block_min is None or entry.block_max is None:
        return 0, before, (entry.partition,)
    return entry.block_min, min(entry.block_max, before), (entry.partition,)


def _registered(replica: Replica, item: Queued) -> fx.Procedure[tuple[Part, ...]]:
    """Return what this replica has registered of that which an entry removes, in whatever form."""
    first, last, _ = _scope(item)
    # Coordination is asked, because the view does not have the parts that another one covers (`start.forget_covered`): left
    # behind, they would be in the table again.
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    parts = tuple(parse_part(name) for name in names)
    # A later merge may already reach over the hole that a drop of a range leaves: that part stays.
    return tuple(sorted(part for part in parts if _is_removed(part, item) and part.is_within(first, last)))


def _still_shown(view: View, item: Queued, gone: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return what reads show of that which an entry removes, although it is not registered any more.

    A later form has been registered in its place by a commit whose answer was lost, after the state was loaded again.
    """
    first, last, _ = _scope(item)
    removed = (part for part in view.held if _is_removed(part, item) and part.is_within(first, last))
    return tuple(part for part in removed if part not in gone)


def _notes(replica: Replica, index: fx.LogIndex, partitions: tuple[str, ...]) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return what writes down that these partitions were dropped, where it is not yet."""
    paths = tuple(layout.drop(replica.table, partition) for partition in partitions)
    many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    value = str(index).encode()
    notes: list[fx.Operation] = []
    for path, node in zip(paths, many.nodes, strict=True):
        if node is None:
            notes.append(fx.Create(path, value))
        elif int(node.value) < index:
            notes.append(fx.Set(path, value, node.version))
    return tuple(notes)
