"""What must hold of rows, wherever the parts are that have them: the second half of `I2`, `KEPT`, `TAGGED`, `F7` and `F8`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from replitree.protocol.core import layout
from replitree.protocol.core.entries import DropEntry, GetEntry, RewriteEntry, staged_names
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.upkeep.consumers import ConsumerValue, decode_consumer
from replitree.protocol.upkeep.tags import decode_tag
from replitree_verify.process.consumers import overdue_at
from replitree_verify.rules.lost import is_fragile
from replitree_verify.world.disk import requests_in, rows_in
from replitree_verify.world.memory import State

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


def inserted_rows_are_there(look: Look) -> str | None:
    """I2, second half: of every part of the table some disk has the rows: in it, in its sources, or staged at its writer."""
    for part in look.log.parts:
        if not _can_be_had(part, look):
            return f"I2: no replica has the rows of {part.name}, which the log has"
    return None


def _can_be_had(part: Part, look: Look) -> bool:
    # Its files may break on every replica: `LOST` says what must hold then.
    if is_fragile(part, look):
        return True
    origin = look.log.lineage[part]
    contents = (disk.content(part.name) for disk in look.disks.values())
    if any(content is not None and rows_in(content) == origin.rows for content in contents):
        return True
    if origin.sources:
        return all(_can_be_had(source, look) for source in origin.sources)
    entry = origin.item.entry
    assert isinstance(entry, GetEntry | RewriteEntry)
    keys = {each: key for key, each, _ in staged_names(entry, origin.item.index)}
    folders = (look.disks[name].folder(entry.insert) for name in look.model.disks_of(entry.replica))
    # Only the writer has staged them, and it can not publish a torn folder.
    staged = (dict(folder.parts) for folder in folders if folder is not None and not folder.torn)
    return any(rows_in(parts[keys[part]]) == origin.rows for parts in staged if keys[part] in parts)


def detached_rows_are_kept(look: Look) -> str | None:
    """KEPT: the rows that a detach removes are on some disk: kept aside in any form, or still to be."""
    detaches = [item for item in look.log.entries if isinstance(item.entry, DropEntry) and item.entry.detach]
    if not detaches:
        return None
    there, inserts = set[int](), look.log.inserts
    for disk in look.disks.values():
        # In whatever form: kept aside, published, or staged by a process that may still publish it.
        staged = (content for folder in disk.folders if not folder.torn for _, content in folder.parts)
        contents = (*disk.aside, *(content for _, content in disk.parts), *staged)
        there.update(request for content in contents for request in requests_in(content))
    # But for rows whose writer was lost: it sweeps what it had staged and its source's queue does not name.  Every mark of a
    # replica, and its removal, raises the version of the node.
    marks = {entry.replica: look.log.tree.get(layout.is_lost(look.log.replica(entry.replica))) for _, entry in inserts}
    never_lost = {name for name, mark in marks.items() if mark is not None and mark.version == 0}
    not_swept = {
        request
        for _, entry in inserts
        if entry.replica in never_lost
        for part in entry.parts
        for request in requests_in(part.content_hash)
    }
    for item in detaches:
        for part in item.change.removed:
            rows = {int(row.partition("~")[0]) for row in look.log.lineage[part].rows}
            gone = sorted(str(row) for row in rows if row in not_swept and row not in there)
            if gone and not is_fragile(part, look):
                return f"KEPT: no replica has kept {' and '.join(gone)} of {part.name}, which {item.index} detached"
    return None


def tagged_parts_are_there(look: Look) -> str | None:
    """TAGGED: the replica that made a tag has all its parts, or has set them aside.

    Where the tag was made in the prelude, every replica has.
    """
    tree, table = look.log.tree, look.log.table
    if not look.model.keeps_old:
        return None
    for name in tree.children(layout.tags(table)) or () if tree.exists(layout.tags(table)) else ():
        node = tree.get(layout.tag(table, name))
        assert node is not None
        tag = decode_tag(node.value, name)
        # Another replica may have deleted the parts of a version before that got its tag.
        is_early = any("tag" in step for step in look.model.prelude)
        for replica in look.model.joined if is_early else (tag.replica,):
            lacking = _lacking(look, replica, tag.parts)
            if lacking:
                return f"TAGGED: {replica} has no {lacking} any more, which tag {name} keeps"
    return None


def _lacking(look: Look, replica: str, parts: Iterable[str]) -> str | None:
    """Return a part that a replica does not have; None: it has all, or has set them aside."""
    disk = look.disk(replica)
    # A process that died before it had marked the part as old has set it aside at its next start.
    aside = {rows_in(content) for content in disk.aside}
    lineage = look.log.lineage
    gone = (part for part in parts if disk.content(part) is None and lineage[parse_part(part)].rows not in aside)
    return next(gone, None)


def consumers_have_their_feed(look: Look) -> str | None:
    """F7: what a consumer keeps is at the replica that made it until its hold ends, and its hold ends visibly.

    Where the consumer was made in the prelude, it is at every replica that has executed the entries.  A part that a later entry
    has taken out of the table before it was made there, the replica never had: it is asked for only if it was removed.
    """
    tree, table, model = look.log.tree, look.log.table, look.model
    if not model.keeps_old:
        return None
    names = tree.children(layout.consumers(table)) or () if tree.exists(layout.consumers(table)) else ()
    dropped = {str(duty.arguments[0]) for duty in model.duties if duty.name == "unconsume"}
    gone = sorted(model.consumed_early - dropped - {*names})
    if gone:
        return f"F7: consumer {gone[0]} is gone, and no client has dropped it"
    for name in names:
        node = tree.get(layout.consumer(table, name))
        assert node is not None
        value = decode_consumer(node.value, name)
        if value.expired:
            if value.expired != overdue_at(value.index):
                return f"F7: consumer {name} stands at {value.index}, and was marked because it was {value.expired}"
            continue
        for replica in model.joined if name in model.consumed_early else (value.replica,):
            kept = sorted(_kept_for(value, look, replica))
            if look.removed is not None:
                kept = [part for part in kept if part in look.removed.get(replica, ())]
            lacking = _lacking(look, replica, kept)
            if lacking:
                return f"F7: {replica} has no {lacking} any more, which consumer {name} keeps"
    return None


def _kept_for(value: ConsumerValue, look: Look, replica: str) -> frozenset[str]:
    """Return the names of the parts that a replica keeps for a consumer; none when it is leaving the table."""
    log, place = look.log, look.log.replica(replica)
    if not log.tree.exists(layout.log_pointer(place)):
        return frozenset()
    pointer, queued = log.pointer(place), {index for index, _ in log.queue(place)}
    fed = (parts for at, parts in log.fed_from(value.index).items() if at < pointer and at not in queued)
    snapshot = () if value.snapshot is None else log.parts_at(value.snapshot)
    return frozenset(part.name for part in snapshot).union(*fed)


def fed_rows_are_there(look: Look) -> str | None:
    """F8: what the feed tells of an insert or a rewrite is on its writer's disk, also when a later entry has removed it.

    It is staged, or has its name.  When the writer has executed the entry and is at rest, it is registered or old.  A process
    that died before it had marked the result of a rewrite as old has set it aside at its next start.
    """
    if not look.model.feeds:
        return None
    needed = frozenset[str]().union(*look.log.fed_from(0).values())
    for item in look.log.entries:
        entry = item.entry
        if not isinstance(entry, GetEntry | RewriteEntry):
            continue
        disk, folder = look.disk(entry.replica), look.disk(entry.replica).folder(entry.insert)
        staged = {} if folder is None or folder.torn else dict(folder.parts)
        for key, part, content in staged_names(entry, item.index):
            contents = (disk.content(part.name), staged.get(key), *(() if part.is_inserted else disk.aside))
            if part.name in needed and content not in contents:
                return f"F8: {entry.replica} has no {part.name} any more, which the feed of {item.index} needs"
    return None


def fed_rows_are_given(look: Look) -> str | None:
    """F8, second half: a replica at rest gives what it has written: it is registered, or old."""
    needed = frozenset[str]().union(*look.log.fed_from(0).values()) if look.model.feeds else ()
    for item in look.log.entries if needed else ():
        entry = item.entry
        if not isinstance(entry, GetEntry | RewriteEntry) or not _is_at_rest(look, entry.replica):
            continue
        disk = look.disk(entry.replica)
        given = {*look.log.registered(look.log.replica(entry.replica)), *disk.old}
        for _, part, content in staged_names(entry, item.index):
            is_aside = not part.is_inserted and content in disk.aside
            if part.name in needed and part.name not in given and not is_aside:
                return f"F8: {entry.replica} does not give {part.name} to readers of the feed"
    return None


def _is_at_rest(look: Look, replica: str) -> bool:
    """Whether a replica has an active process, which works to the end."""
    seats = (seat for seat, name in look.model.seats if name == replica)
    return any(look.memories[seat].state is State.ACTIVE and look.model.works_to_the_end(seat) for seat in seats)


def needless_old_parts(look: Look, seat: str) -> list[str]:
    """Return the old parts that a seat keeps although nothing needs them, if it deletes any."""
    memory, log = look.memories[seat], look.log
    clears = any(duty.seat == seat and duty.name == "clear" for duty in look.model.duties)
    if not clears or memory.feed_from is not None:
        return []
    kept, tree = {*memory.leased}, log.tree
    for parent in (layout.tags(log.table), layout.consumers(log.table)):
        for name in tree.children(parent) or () if tree.exists(parent) else ():
            node = tree.get(f"{parent}/{name}")
            assert node is not None
            if parent == layout.tags(log.table):
                kept.update(decode_tag(node.value, name).parts)
                continue
            value = decode_consumer(node.value, name)
            if not value.expired:
                kept.update(value.parts, *log.fed_from(value.index).values())
    return [part for part in look.disk(look.model.place(seat).name).old if part not in kept]


OF_ROWS = (
    inserted_rows_are_there,
    detached_rows_are_kept,
    tagged_parts_are_there,
    consumers_have_their_feed,
    fed_rows_are_there,
)
"""What is checked in every state."""
