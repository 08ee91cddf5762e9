"""What the checker remembers of a cleaned log: the entries that are gone, and the state that was declared the table's.

Invariants speak of the whole log.  So whoever delivers a commit keeps what it removes from the log below `PAST`, beside the
table: no procedure reads it, and since it follows from the history of the tree it makes no two states out of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import Check, Create, Delete, LogIndex, Operation, Set
from replitree.protocol.entries import decode_entry
from replitree.protocol.fold import restore
from replitree.protocol.layout import Replica, Table
from replitree.protocol.parts import parse_part
from replitree.protocol.table import DROPPED_HOST, NOT_LOST

PAST = "/past"
SURVIVOR = f"{PAST}/survivor"
"""Which parts the table has from which index on, since a replica's state was declared the table's."""


class Declared(msgspec.Struct, frozen=True):
    """From index `at` on the table is what follows from `parts`; earlier entries count no more."""

    at: int
    parts: tuple[str, ...]


def remember(operations: Sequence[Operation], before: Tree, after: Tree, table: Table) -> Tree:
    """Return the tree after a commit, with what it has removed from the log kept beside it."""
    log = f"{layout.log(table)}/"
    gone = [each.path for each in operations if isinstance(each, Delete) and each.path.startswith(log)]
    kept: list[Operation] = []
    for path in gone:
        node = before.get(path)
        assert node is not None
        kept.append(Create(f"{PAST}/{path.rpartition('/')[2]}", node.value))
    survivor = _survivor(operations, table)
    if survivor is not None:
        kept.append(Create(SURVIVOR, _declared(survivor, after)))
    if not kept:
        return after
    return after.commit([*(() if after.exists(PAST) else (Create(PAST),)), *kept], session=1)[0]


def _survivor(operations: Sequence[Operation], table: Table) -> Replica | None:
    """Return the replica that a commit declares good while it moves its pointer: nothing but `recover.survive` does both."""
    written = {each.path: each.value for each in operations if isinstance(each, Set)}
    for path, value in written.items():
        replica = Replica(table, path.split("/")[-2])
        if path == layout.is_lost(replica) and value == NOT_LOST and layout.log_pointer(replica) in written:
            return replica
    return None


def _declared(replica: Replica, tree: Tree) -> bytes:
    """Return the state of a replica: what it has registered, with its queue applied."""
    pointer = tree.get(layout.log_pointer(replica))
    assert pointer is not None
    queue = []
    for name in tree.children(layout.queue(replica)) or ():
        path = f"{layout.queue(replica)}/{name}"
        node = tree.get(path)
        assert node is not None
        queue.append((LogIndex(layout.queue_index(name)), decode_entry(node.value, path)))
    registered = map(parse_part, tree.children(layout.parts(replica)) or ())
    parts, _ = restore(registered, queue)
    return msgspec.json.encode(Declared(int(pointer.value), tuple(part.name for part in parts)))


def declared(tree: Tree) -> Declared | None:
    """Return the state that was declared the table's; None when none was."""
    node = tree.get(SURVIVOR)
    return None if node is None else msgspec.json.decode(node.value, type=Declared)


def recovers(tree: Tree, replica: Replica) -> bool:
    """Whether a replica is lost, so that its queue may be replaced."""
    node = tree.get(layout.is_lost(replica))
    return node is not None and node.value != NOT_LOST


def half_way(operations: Sequence[Operation], before: Tree, table: Table) -> str | None:
    """Check I6, and that nobody is dropped while it is active, for a commit that took place."""
    return half_built_source(operations, before, table) or _active_dropped(operations, before, table)


def _active_dropped(operations: Sequence[Operation], before: Tree, table: Table) -> str | None:
    deleted = [each.path for each in operations if isinstance(each, Delete)]
    for each in operations:
        if isinstance(each, Set) and each.value == DROPPED_HOST and each.path.endswith("/host"):
            replica = Replica(table, each.path.split("/")[-2])
            active = layout.is_active(replica)
            if before.exists(active) and active not in deleted:
                return f"DROPPED: {replica.name} is dropped while it is active"
    return None


def half_built_source(operations: Sequence[Operation], before: Tree, table: Table) -> str | None:
    """Check I6 for a commit that took place: whoever takes over another one's pointer takes that of a good replica."""
    for each in operations:
        if isinstance(each, Check) and each.path.endswith("/log_pointer"):
            source = Replica(table, each.path.split("/")[-2])
            if recovers(before, source):
                return f"I6: a replica took over the state of {source.name}, which is lost"
    return None
