"""The mapping onto quorum inserts and reads, `packed.models.quorum_queues`: any number open at once, what clients were told.

A replica has an insert when every part of it is registered there, or covered by one that is; its writer has it from the commit
on, because its files are staged.  Who counts for it stands in its node while it is open, and in the entry that settles it.  A
replica that is lost has nothing, so a recovery that ends is the same as getting what it has.

Read are the answers at the levels sequential and linearizable.  When a read was asked for is known when it is done: what was
acknowledged then is looked at as if it had been asked for just before.

Merges, mutations, cleaning, sessions and processes change nothing here.  A drop would take from replicas what they have, and a
lost part, too: runs with these can't be followed.
"""

from __future__ import annotations

import msgspec

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Duplicate, Inserted, NotInserted
from replitree.protocol.core.entries import (
    DropEntry,
    FailEntry,
    GetEntry,
    LostEntry,
    SettleEntry,
    inserted_parts,
    quorum_of,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.state.counted import decode_quorum
from replitree_published.bridge.mapping import Answers, Mapping, NoState
from replitree_published.packed.bits import put
from replitree_published.packed.models import quorum_queues as model
from replitree_published.packed.models.quorum_queues import RECORDS_MAX, QuorumQueueLimits
from replitree_verify.process.read_requests import Shown, ShowRows
from replitree_verify.world.disk import requests_in
from replitree_verify.world.history import Log


class Quorum(msgspec.Struct, frozen=True):
    """An insert.

    Attributes
    ----------
    index, requests
        Its entry, and whose rows it has.
    needed
        How many replicas must have it; 1 without a quorum.
    is_settled, rank
        How it has ended (None: it is open), and how many had ended before.
    is_acked, is_refused
        What its clients were told.
    """

    index: int
    requests: tuple[int, ...]
    needed: int
    is_settled: bool | None = None
    rank: int = 0
    is_acked: bool = False
    is_refused: bool = False


class Quorums(msgspec.Struct, frozen=True):
    """Inserts, replicas and clients at one moment.

    Attributes
    ----------
    inserts
        In the order of the log.
    has, counts
        Of each replica, in an order that stays: the inserts that it has, and those for which it counts, as masks.
    shown
        What reads have shown, as a mask.
    asked, last
        Of a read that is asked for now: what it asks for; of one that is done: what it shows.
    """

    inserts: tuple[Quorum, ...]
    has: tuple[int, ...]
    counts: tuple[int, ...]
    shown: int = 0
    asked: int = 0
    last: int | None = None

    def mask(self, indexes: tuple[int, ...]) -> int:
        """Return the inserts at these indexes of the log."""
        return sum(1 << number for number, insert in enumerate(self.inserts) if insert.index in indexes)

    def with_rows(self, requests: tuple[int, ...]) -> int:
        """Return the inserts of which these are rows."""
        return sum(1 << number for number, insert in enumerate(self.inserts) if {*insert.requests} & {*requests})


def quorums_of(tree: Tree, table: TablePlace, names: tuple[str, ...]) -> Quorums:
    """Return what a tree shows of a table.

    Raises
    ------
    BadInput
        Parts were dropped or declared lost, or there are more inserts than the packed model has room for.
    NoState
        An insert has ended twice.
    """
    log = Log(tree, table)
    gets = [(index, entry) for index, entry in log.raw if isinstance(entry, GetEntry)]
    if any(isinstance(entry, DropEntry | LostEntry) or getattr(entry, "drops", ()) for _, entry in log.raw):
        raise BadInput(f"parts are dropped or lost: {model.MODEL.name} has no word for that")
    if len(gets) > RECORDS_MAX:
        raise BadInput(f"the log has {len(gets)} inserts; {model.MODEL.name} has room for {RECORDS_MAX}")
    ends = _ends(log)
    inserts = tuple(_insert(index, entry, ends) for index, entry in gets)
    members = [_members(log, index, entry) for index, entry in gets]
    counts = (sum(1 << number for number, held in enumerate(members) if name in held) for name in names)
    return Quorums(inserts, tuple(held(log, Replica(table, name), gets) for name in names), tuple(counts))


def _ends(log: Log) -> dict[int, tuple[int, bool]]:
    """Return of each insert that has ended how many had before, and whether it is settled."""
    found: dict[int, tuple[int, bool]] = {}
    for index, entry in log.raw:
        ended = entry.index if isinstance(entry, SettleEntry | FailEntry) else index
        if isinstance(entry, GetEntry) and quorum_of(entry):
            continue
        if isinstance(entry, SettleEntry | FailEntry | GetEntry):
            if ended in found:
                raise NoState(f"the insert at {ended} ends again, at {index}")
            found[ended] = len(found), not isinstance(entry, FailEntry)
    return found


def _insert(index: int, entry: GetEntry, ends: dict[int, tuple[int, bool]]) -> Quorum:
    rank, is_settled = ends.get(index, (0, None))
    return Quorum(index, requests_of(entry), quorum_of(entry) or 1, is_settled, rank)


def requests_of(entry: GetEntry) -> tuple[int, ...]:
    """Return the requests whose rows an insert has, in a run of the checker."""
    return tuple(sorted({int(number) for part in entry.parts for number in requests_in(part.content_hash)}))


def _members(log: Log, index: int, entry: GetEntry) -> tuple[str, ...]:
    """Return who counts for an insert."""
    if not quorum_of(entry):
        return (entry.replica,)
    node = log.tree.get(layout.quorum_status(log.table, entry.insert))
    if node is not None:
        return decode_quorum(node.value, entry.insert).replicas
    return next((end.holders for _, end in log.raw if isinstance(end, SettleEntry) and end.index == index), ())


def held(log: Log, replica: Replica, gets: list[tuple[int, GetEntry]]) -> int:
    """Return the inserts that a replica has, as a mask."""
    if log.mark(replica) != NOT_LOST:
        return 0
    registered = [parse_part(name) for name in log.registered(replica)]
    waiting = {layout.queue_index(name) for name in log.tree.children(layout.queue(replica)) or ()}
    pointer = log.pointer(replica)
    mask = 0
    for number, (index, entry) in enumerate(gets):
        parts = inserted_parts(entry, index)
        holds = all(any(has == part or has.covers(part) for has in registered) for part in parts)
        is_staged = entry.replica == replica.name and (index >= pointer or index in waiting)
        mask |= int(holds or is_staged) << number
    return mask


def heard(quorums: Quorums, answers: Answers) -> Quorums:
    """Return an outline with what clients were told."""
    acked = {answer.index for answer in answers.values() if isinstance(answer, Inserted | Duplicate)}
    failed = {number for number, answer in answers.items() if isinstance(answer, NotInserted)}
    inserts = tuple(
        msgspec.structs.replace(each, is_acked=each.index in acked, is_refused=bool(failed & {*each.requests}))
        for each in quorums.inserts
    )
    shown = 0
    for answer in answers.values():
        shown |= quorums.with_rows(answer.requests) if isinstance(answer, Shown) else 0
    return msgspec.structs.replace(quorums, inserts=inserts, shown=shown)


def read(before: Quorums, after: Quorums, effect: ShowRows, shown: Shown) -> tuple[Quorums, Quorums]:
    """Return the outlines in which a read is asked for, and done."""
    asked = before.mask(effect.begun.settled)
    rows = after.with_rows(shown.requests)
    return msgspec.structs.replace(before, asked=asked), msgspec.structs.replace(after, asked=asked, last=rows)


def limits_for(replicas: int) -> QuorumQueueLimits:
    """Return the limits of the packed model for so many replicas."""
    return QuorumQueueLimits(replicas=replicas, records=RECORDS_MAX, quorum=replicas)


def state_of(quorums: Quorums, limits: QuorumQueueLimits) -> int:
    """Return the state that an outline stands for."""
    state = put(put(0, model.SHOWN, 3, quorums.shown), model.ASKED, 3, quorums.asked)
    if quorums.last is not None:
        state = put(state | model.DONE, model.LAST, 3, quorums.last)
    for number, insert in enumerate(quorums.inserts):
        state |= _bits(insert) << (number * model.RECORD)
    for replica in range(limits.replicas):
        block = quorums.has[replica] << model.HAS | quorums.counts[replica] << model.COUNTS
        state = model.with_block(state, replica, block)
    return state


def _bits(insert: Quorum) -> int:
    bits = insert.needed << model.NEED | insert.rank << model.RANK
    bits |= int(insert.is_settled is True) << model.SETTLED | int(insert.is_settled is False) << model.FAILED
    return bits | int(insert.is_acked) << model.ACKED | int(insert.is_refused) << model.REFUSED


def seen_of(state: int, _: QuorumQueueLimits) -> int:
    """Return the state: outlines show all of it."""
    return state


def is_between(state: int, start: int, goal: int, _: QuorumQueueLimits) -> bool:
    """Tell whether a way may go through a state: nothing is there as neither at the start nor at the goal."""
    return (state ^ start) & (state ^ goal) == 0


QUORUM = Mapping(
    "quorum", model.MODEL, Quorums, quorums_of, limits_for, state_of, seen_of, is_between, heard=heard, read=read
)
