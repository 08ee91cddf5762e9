"""Tokens that are used again for other rows: the insert is a duplicate all the same, and the client is warned.

The log entry of the first insert has the content of each of its parts.  They are compared with those of the rows that came
now, when the entry is still there, has no rows of another request, and was written with the same columns.  Otherwise nothing is
known, and nothing is reported.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from replitree.errors import ReplitreeError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Duplicate, Get
from replitree.protocol.core.entries import GetEntry, decode_entry
from replitree.replica.kit.payloads import Rows, StagedRewrite, StagedUpload
from replitree.storage.parts.manifest import FORMAT
from replitree.wire.block_ids import is_of_token

if TYPE_CHECKING:
    from replitree.protocol.core.layout import TablePlace
    from replitree.replica.insert.group_commit import PendingInsert
    from replitree.replica.perform.runner import Performer
    from replitree.storage.parts.manifest import PartManifest


def has_other_rows(performer: Performer, table: TablePlace, pending: PendingInsert, found: Duplicate) -> bool:
    """Return whether a duplicate with a token is one of an insert that certainly had other rows, or in another order."""
    if found.index is None or not is_of_token(pending.block):
        return False
    path = layout.log_entry(table, found.index)
    # The outcome of the insert is known already; an error here only leaves out a warning.
    with suppress(ReplitreeError):
        node = performer.perform(Get(path))
        entry = None if node is None else decode_entry(node.value, path)
        if isinstance(entry, GetEntry) and entry.blocks == (pending.block,):
            if entry.schema_version != pending.schema_version:
                return False
            earlier = {part.partition: part.content_hash for part in entry.parts}
            payload = pending.payload
            manifests: tuple[PartManifest, ...]
            if isinstance(payload, Rows):
                from replitree.storage.parts.encode import unwritten_manifests

                manifests = tuple(unwritten_manifests(payload.table, payload.definition))
            else:
                manifests = (
                    payload.manifests if isinstance(payload, StagedUpload | StagedRewrite) else (payload.manifest,)
                )
            # An earlier version of replitree hashed the rows alone.
            now = {each.partition: (each.content_hash, replace(each, format=FORMAT).content) for each in manifests}
            return earlier.keys() != now.keys() or any(earlier[each] not in contents for each, contents in now.items())
    return False
