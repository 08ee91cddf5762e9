"""What the checker remembers of a cleaned log: the entries that are gone, and the state that was declared the table's.

Invariants speak of the whole log.  So the delivery of a commit keeps what it removes from the log below `PAST`, beside the
table: no procedure reads it, and since it follows from the history of the tree it makes no two states out of one.  The same
with results that are forgotten, and with the machines that have acted for a replica that several machines may act for.  What
is remembered of deduplication ids is in `windows`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replitree.coordination.tree import Tree
from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import decode_entry
from replitree.protocol.core.fold import restore
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import DROPPED_HOST, NOT_LOST
from replitree.protocol.state.registration import LET_BE
from replitree_verify.world import windows
from replitree_verify.world.model import seat_of
from replitree_verify.world.windows import PAST

SURVIVOR = f"{PAST}/survivor"
"""Which parts the table has from which index on, since a replica's state was declared the table's."""


_ACTED = f"{PAST}/acted-"
"""Below this and a replica's name it is kept which seats have activated it since it was last added to the table."""


class Declared(msgspec.Struct, frozen=True):
    """From index `at` on the table is what follows from `parts`; earlier entries count no more.

    `restored`: coordination had lost the table; earlier ids count no more either.
    """

    at: int
    parts: tuple[str, ...]
    restored: str = ""


def remember(operations: Sequence[fx.Operation], before: Tree, after: Tree, table: TablePlace) -> Tree:
    """Return the tree after a commit, with what it has removed from the log kept beside it."""
    gone = [each.path for each in operations if isinstance(each, fx.Delete) and is_entry(each.path, table)]
    kept: list[fx.Operation] = []
    for path in gone:
        node = before.get(path)
        assert node is not None
        # By its index, which is unique among all parents of the log; the parent may go, too.
        kept.append(fx.Create(f"{PAST}/log-{layout.index_of(table, path):010d}", node.value))
    for each in operations:  # of the results of one part the first that was forgotten counts
        name = each.path.rpartition("/")[2]
        is_forgotten = isinstance(each, fx.Delete) or (isinstance(each, fx.Set) and each.value == LET_BE)
        node = before.get(each.path) if is_forgotten and each.path == layout.result(table, name) else None
        if node is not None and not before.exists(past_result(name)):
            kept.append(fx.Create(past_result(name), node.value))
    kept += windows.remembered(operations, before, table)
    kept += _acted(operations, before, table)
    survivor = _survivor(operations, table)
    if survivor is not None:
        restored = "" if before.get(layout.restoring(table)) is None else survivor.name
        kept.append(fx.Create(SURVIVOR, _declared(survivor, after, restored)))
    if any(isinstance(each, fx.Delete) and each.path == table.path for each in operations):
        # Nothing binds the next table of this name, and no machine has acted for it.
        paths = [f"{PAST}/{name}" for name in after.children(PAST) or ()] if after.exists(PAST) else []
        forgotten = (
            fx.Set(path, b"", fx.ANY_VERSION) if path.startswith(_ACTED) else fx.Delete(path, fx.ANY_VERSION)
            for path in paths
        )
        return after.commit(tuple(forgotten), session=1)[0]
    if not kept:
        return after
    # Session 1 owns nothing that is kept, so what is remembered outlives every process.
    remembered, outcome = after.commit([*(() if after.exists(PAST) else (fx.Create(PAST),)), *kept], session=1)
    assert isinstance(outcome, fx.Applied), outcome
    return remembered


def with_machines(tree: Tree, replicas: Sequence[str]) -> Tree:
    """Return a tree in which it is remembered which machines act for some replicas."""
    made = (fx.Create(f"{_ACTED}{name}") for name in replicas)
    return tree.commit((*(() if tree.exists(PAST) else (fx.Create(PAST),)), *made), session=1)[0] if replicas else tree


def acted(tree: Tree, replica: str) -> tuple[str, ...]:
    """Return the seats whose processes have activated a replica of `with_machines` since it was last added to the table."""
    node = tree.get(f"{_ACTED}{replica}")
    return () if node is None else tuple(node.value.decode().split())


def _acted(operations: Sequence[fx.Operation], before: Tree, table: TablePlace) -> list[fx.Operation]:
    """Return what keeps the machines that a commit begins or ends the work of."""
    kept: list[fx.Operation] = []
    for name in before.children(PAST) or () if before.exists(PAST) else ():
        replica, path = Replica(table, name.removeprefix("acted-")), f"{PAST}/{name}"
        if not path.startswith(_ACTED):
            continue
        seats = known = acted(before, replica.name)
        for each in operations:
            if isinstance(each, fx.Create) and each.path == layout.replica_path(replica):
                # Added anew: the machines that acted for it before count no more.
                seats = ()
            elif (
                isinstance(each, fx.Set) and each.path == layout.host(replica) and each.value not in (b"", DROPPED_HOST)
            ):
                # A process that activates its replica writes itself as the host.
                seats = tuple(sorted({*seats, seat_of(each.value)[0]}))
        if seats != known:
            kept.append(fx.Set(path, " ".join(seats).encode(), fx.ANY_VERSION))
    return kept


def past_result(part: str) -> str:
    """Return where a forgotten result is kept."""
    return f"{PAST}/result-{part}"


def past_disk(replica: str) -> str:
    """Return where it is kept which parts a replica's disk had when coordination lost everything."""
    return f"{PAST}/disk-{replica}"


def is_entry(path: str, table: TablePlace) -> bool:
    """Whether a path is that of a log entry, below any parent."""
    return path.startswith(f"{table.path}/log") and "/log-" in path


def _survivor(operations: Sequence[fx.Operation], table: TablePlace) -> Replica | None:
    """Return the replica whose state a commit makes the table's."""
    written = {each.path: each.value for each in operations if isinstance(each, fx.Set)}
    restored = any(isinstance(each, fx.Delete) and each.path == layout.restoring(table) for each in operations)
    for path, value in written.items():
        replica = Replica(table, path.split("/")[-2])
        # Only `recover.survive` declares a replica good in the commit that moves its pointer; or the commit ends a restore.
        if (
            path == layout.is_lost(replica)
            and value == NOT_LOST
            and (restored or layout.log_pointer(replica) in written)
        ):
            return replica
    return None


def _declared(replica: Replica, tree: Tree, restored: str) -> bytes:
    """Return the state of a replica: what it has registered, with its queue applied."""
    pointer = tree.get(layout.log_pointer(replica))
    assert pointer is not None
    queue = []
    for name in tree.children(layout.queue(replica)) or ():
        path = f"{layout.queue(replica)}/{name}"
        node = tree.get(path)
        assert node is not None
        queue.append((fx.LogIndex(layout.queue_index(name)), decode_entry(node.value, path)))
    registered = map(parse_part, tree.children(layout.parts(replica)) or ())
    parts, _ = restore(registered, queue)
    return msgspec.json.encode(
        Declared(layout.pointer_index(pointer.value), tuple(part.name for part in parts), restored)
    )


def declared(tree: Tree) -> Declared | None:
    """Return the state that was declared the table's; None when none was."""
    node = tree.get(SURVIVOR)
    return None if node is None else json_decoder(Declared).decode(node.value)


def recovers(tree: Tree, replica: Replica) -> bool:
    """Whether a replica is lost, so that its queue may be replaced."""
    node = tree.get(layout.is_lost(replica))
    return node is not None and node.value != NOT_LOST


def half_way(operations: Sequence[fx.Operation], before: Tree, table: TablePlace) -> str | None:
    """Check I6, DROPPED and WINDOW for a commit that took place."""
    half_built = half_built_source(operations, before, table)
    if half_built is not None:
        return half_built
    deleted = [each.path for each in operations if isinstance(each, fx.Delete)]
    for each in operations:
        if isinstance(each, fx.Set) and each.value == DROPPED_HOST and each.path.endswith("/host"):
            replica = Replica(table, each.path.split("/")[-2])
            active = layout.is_active(replica)
            if before.exists(active) and active not in deleted:
                return f"DROPPED: {replica.name} is dropped while it is active"
    return windows.forgotten_too_early(operations, before, table)


def half_built_source(operations: Sequence[fx.Operation], before: Tree, table: TablePlace) -> str | None:
    """Check I6 for a commit that took place: a replica that takes over another one's pointer takes that of a good replica."""
    moves = any(isinstance(each, fx.Set | fx.Create) and each.path.endswith("/log_pointer") for each in operations)
    for each in operations if moves else ():  # a declaration of a loss checks pointers, too
        if isinstance(each, fx.Check) and each.path.endswith("/log_pointer"):
            source = Replica(table, each.path.split("/")[-2])
            if recovers(before, source):
                return f"I6: a replica took over the state of {source.name}, which is lost"
    return None
