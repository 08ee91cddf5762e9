"""What must hold of rows, wherever the parts are that have them: the second half of `I2`, `KEPT`, and `TAGGED`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.protocol.core import layout
from replitree.protocol.core.entries import DropEntry, GetEntry, RewriteEntry, staged_names
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.upkeep.tags import decode_tag
from replitree_verify.rules.lost import is_fragile
from replitree_verify.world.disk import requests_in, rows_in

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
            disk = look.disk(replica)
            # A process that died before it had marked the part as old has set it aside at its next start.
            aside = {rows_in(content) for content in disk.aside}
            lacking = [
                part
                for part in tag.parts
                if disk.content(part) is None and look.log.lineage[parse_part(part)].rows not in aside
            ]
            if lacking:
                return f"TAGGED: {replica} has no {lacking[0]} any more, which tag {name} keeps"
    return None
