"""What must hold of inserts with a quorum in every state, and at the end: `QUORUM`; and what other invariants allow of them.

The node of an open insert is there exactly as long as the log does not say what became of it; it ends once; what is
acknowledged is settled, and so many disks have its rows as were promised (I2 with a quorum: it survives the loss of all but one
of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, GetEntry, SettleEntry, encode_entry, inserted_parts, quorum_of
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.membership.table import DROPPED_HOST
from replitree.protocol.state.counted import decode_quorum
from replitree_verify.world.disk import requests_in
from replitree_verify.world.history import Log
from replitree_verify.world.memory import State

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


def failed_at(log: Log) -> dict[int, int]:
    """Return the inserts that were given up, each with the index of the entry that says so."""
    return {entry.index: index for index, entry in log.raw if isinstance(entry, FailEntry)}


def failed_between(first: int, last: int, log: Log) -> bool:
    """Whether the insert at `first` was given up before `last`."""
    return first < failed_at(log).get(first, -1) < last


def quorums_end_once(look: Look) -> str | None:
    """QUORUM: an insert is settled or given up once, and its node is there until then, and not longer."""
    log, ends = look.log, dict[int, int]()
    for index, entry in log.raw:
        if isinstance(entry, SettleEntry | FailEntry):
            if entry.index in ends:
                return f"QUORUM: the insert at {entry.index} ends at {ends[entry.index]}, and again at {index}"
            ends[entry.index] = index
    for index, get in _with_quorum(log):
        is_there = log.tree.exists(layout.quorum_status(log.table, get.insert))
        if is_there is (index in ends):
            what = "is still counted, and has ended" if is_there else "is not counted any more, and has not ended"
            return f"QUORUM: the insert at {index} {what}"
    return None


def failed_inserts_free_their_ids(look: Look) -> str | None:
    """QUORUM: an insert that was given up keeps no token, so that its client can insert again."""
    failed = failed_at(look.log)
    for index, get in _with_quorum(look.log):
        for token in get.blocks if index in failed else ():
            node = look.log.tree.get(layout.block(look.log.table, token))
            # The token may be taken again by another insert of its client, but not by this one.
            if node is not None and f'"insert":"{get.insert}"'.encode() in node.value:
                return f"QUORUM: the insert at {index} was given up, and keeps its token {token}"
    return None


def acknowledged_inserts_are_settled(look: Look) -> str | None:
    """QUORUM: no client hears that an insert with a quorum is in the table before it is settled, or when it was given up."""
    quorums = {index for index, _ in _with_quorum(look.log)}
    settled = {entry.index: index for index, entry in look.log.raw if isinstance(entry, SettleEntry)}
    for request, answer in sorted(look.answers.items()):
        if not isinstance(answer, fx.Inserted | fx.Duplicate) or answer.index not in quorums:
            continue
        if answer.index not in settled:
            return f"QUORUM: request {request} was acknowledged at {answer.index}, which is not settled"
        if answer.settled not in (None, settled[answer.index]):
            at = settled[answer.index]
            return (
                f"QUORUM: request {request} heard that {answer.index} was settled at {answer.settled}, it was at {at}"
            )
    return None


def settled_rows_are_on_enough_disks(look: Look) -> str | None:
    """QUORUM: of an insert that is settled, and was not dropped, as many disks as its quorum says have all the rows."""
    settled = {entry.index for _, entry in look.log.raw if isinstance(entry, SettleEntry)}
    for index, get in _with_quorum(look.log):
        # What was dropped since need not be on any disk.
        left = {part.partition for part in inserted_parts(get, fx.LogIndex(index)) if _is_in_the_table(part, look.log)}
        if index not in settled or not left:
            continue
        wanted = {(part.partition, row) for part in get.parts for row in requests_in(part.content_hash)}
        holders = list[str]()
        for name in sorted(look.model.replicas):
            disk = look.disk(name)
            staged = [part for folder in disk.folders if not folder.torn for part in folder.parts]
            published = ((part.partition("_")[0], content) for part, content in disk.parts)
            there = {(part, row) for part, content in (*staged, *published) for row in requests_in(content)}
            # In every partition: a replica holds an insert when it has all its parts.
            if all(each in there for each in wanted if each[0] in left):
                holders.append(name)
        if len(holders) < quorum_of(get):
            return f"QUORUM: the insert at {index} is settled with {quorum_of(get)}, and only {holders} have its rows"
    return None


def settled_without(operations: Sequence[fx.Operation], after: Tree, table: TablePlace) -> str | None:
    """Check QUORUM for a commit that took place: who is named as a holder has executed the insert, or has its parts registered.

    The writer has staged them.  Of a replica that is being dropped the parts themselves count: it may be half gone.
    """
    if not any(isinstance(each, fx.Delete) and "/quorum/status/" in each.path for each in operations):
        return None
    log = Log(after, table)  # after the commit: it may register the parts and settle the quorum at once
    settles = (entry for _, entry in log.raw if isinstance(entry, SettleEntry))
    written = {each.value for each in operations if isinstance(each, fx.Create)}
    for settle in (each for each in settles if encode_entry(each) in written):
        insert = dict(log.inserts)[settle.index]
        for name in settle.holders:
            if name != insert.replica and not _has_executed(Replica(table, name), settle.index, insert, log):
                return f"QUORUM: the insert at {settle.index} settles with {name}, which does not have it"
    return None


def _has_executed(replica: Replica, index: int, insert: GetEntry, log: Log) -> bool:
    tree = log.tree
    host, pointer = tree.get(layout.host(replica)), tree.get(layout.log_pointer(replica))
    if host is None or pointer is None:
        return False
    # Pulled and no longer queued: executed, even if the parts were merged or dropped since.
    queued = {layout.queue_index(name) for name in tree.children(layout.queue(replica)) or ()}
    if host.value != DROPPED_HOST and layout.pointer_index(pointer.value) > index and index not in queued:
        return True
    registered = PartSet.of(map(parse_part, tree.children(layout.parts(replica)) or ()))
    wanted = (part for part in inserted_parts(insert, fx.LogIndex(index)) if _is_in_the_table(part, log))
    return all(registered.covering(part) is not None for part in wanted)


def all_are_counted(look: Look) -> str | None:
    """QUORUM, when nothing is left to do: a replica that works and has executed an open insert is among those that have it."""
    for index, get in _with_quorum(look.log):
        path = layout.quorum_status(look.log.table, get.insert)
        node = look.log.tree.get(path)
        counted = () if node is None else decode_quorum(node.value, path).replicas
        for seat, name in look.model.seats if node is not None else ():
            # In a quiet state it has executed the insert: nothing is left in its queue.
            works = look.memories[seat].state is State.ACTIVE and look.model.works_to_the_end(seat)
            if works and name not in counted:
                return f"QUORUM: {name} has executed the insert at {index}, which is open, and does not count itself"
    return None


def _is_in_the_table(part: Part, log: Log) -> bool:
    """Whether an insert's part is in the table: one that reaches over its block may have been made after it was dropped."""
    covering = log.parts.covering(part)
    if covering is None or part not in log.lineage or covering not in log.lineage:
        return covering is not None
    inserted, left = (requests_in(":" + "+".join(log.lineage[each].rows)) for each in (part, covering))
    return {*inserted} <= {*left}


def _with_quorum(log: Log) -> list[tuple[int, GetEntry]]:
    return [(index, entry) for index, entry in log.inserts if quorum_of(entry)]
