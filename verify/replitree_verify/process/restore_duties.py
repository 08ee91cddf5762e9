"""Restoring a table: coordination has lost everything, and operators make a table of what the disks have.

The counterpart of `replica.rescue.restore`: a run holds the lock of the replica's data folder, takes the parts that are
whole, and gives the lock back at its end or its death.  A server opens the table when coordination has it, and no process
holds the lock. After a death, and when coordination did not say in time what it has done, the operator begins another run.

`RESTORED`: a run ends when the replica has registered exactly what the run has found on its disk (`wrongly_ended`).  A run that
begins after the end says that the table is restored already if that holds, and only then (`wrongly_repeated`).

Parts are registered one by one here, so that a run may be cut off between two of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, Delete, Effect
from replitree.protocol.core.entries import encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.program.life import become_active
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.rescue import restore as procedures
from replitree.protocol.rescue.restore import (
    NotRestored,
    Restored,
    RestoreOutcome,
    choose_parts,
    detached_parts,
    restore,
)
from replitree.protocol.rescue.restore_shared import RestoredShares
from replitree.protocol.shares.share import ShareId
from replitree_verify.process.longlife import any_good
from replitree_verify.process.shares import STORE_ID, sharer_of
from replitree_verify.world.disk import Disk
from replitree_verify.world.history import Log
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import me_of
from replitree_verify.world.past import past_disk, past_result, with_machines
from replitree_verify.world.shared_disk import SharedDisk
from replitree_verify.world.windows import PAST

METADATA, COLUMNS = b"", b""
"""What the disks keep of the table's definition; that of `create_table` in the models."""

SPOILT = "?spoilt"
"""How the content of a part ends whose files are not what its manifest says."""

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LockDisk(Effect):
    """Wait until no replica is good and no process holds the data folder of one; hold it.  Outcome: `Found`.

    `again`: wait until a replica is good, for a run that an operator begins although the table is restored.
    """

    replica: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a run works with: a value for `host`; the parts of the disk, whole or not, with their contents; what is aside.

    `shares`: of a table in an object store, what each part has.
    """

    me: bytes
    parts: tuple[tuple[str, str], ...]
    aside: tuple[str, ...] = ()
    shares: tuple[tuple[str, ShareId], ...] | None = None

    def run(self, replica: Replica, me: bytes) -> Generator[Any, Any, RestoreOutcome]:
        """Make a table of what was found, with one part in each commit that registers parts."""
        known = None
        if self.shares is not None:
            each = {part: tuple(share for name, share in self.shares if name == part) for part, _ in self.parts}
            known = RestoredShares(STORE_ID, sharer_of(replica).incarnation, each)
        run = restore(replica, me, METADATA, COLUMNS, _chosen(self.parts, self.aside), known)
        outcome: Any = None
        try:
            while True:
                # Only while the procedure runs: between two of its effects other procedures do.
                batch, procedures.BATCH = procedures.BATCH, 1
                try:
                    effect = run.send(outcome)
                finally:
                    procedures.BATCH = batch
                outcome = yield effect
        except StopIteration as stop:
            ended: RestoreOutcome = stop.value
            return ended


@dataclass(frozen=True, slots=True)
class UnlockDisk(Effect):
    """Give the data folder back; `is_already`: what a run after the end has told the operator."""

    is_already: bool | None = None


@dataclass(frozen=True, slots=True)
class OpenTable(Effect):
    """Wait until coordination has the table and no process holds the replica's data folder; then the process starts."""


def locked_by(memories: Mapping[str, Memory], replica: str) -> bool:
    """Whether a run of a restore holds the data folder of a replica."""
    return any(memory.lock is not None and memory.lock[0] == replica for memory in memories.values())


def whole_parts(parts: Iterable[tuple[str, str]]) -> dict[Part, str]:
    """Return the parts of a disk whose files are what their manifests say, each with its content."""
    return {parse_part(name): content for name, content in parts if not content.endswith(SPOILT)}


def chosen_parts(disk: Disk) -> tuple[str, ...]:
    """Return the names of the parts that a table is made of, ascending."""
    return tuple(part.name for part in _chosen(disk.parts, disk.aside))


def _chosen(parts: Iterable[tuple[str, str]], aside: tuple[str, ...]) -> dict[Part, str]:
    """Return what a table is made of: the parts that are whole and were not detached, with their contents."""
    whole = whole_parts(parts)
    detached = detached_parts(whole, {part: content for part, content in whole.items() if content in aside})
    chosen, _ = choose_parts(part for part in whole if part not in detached)
    return {part: whole[part] for part in chosen}


def wiped(tree: Tree, disks: Mapping[str, Disk], contested: Sequence[str] = ()) -> Tree:
    """Return coordination without the table; what invariants need of it is kept beside it (`past`)."""
    log = Log(tree)
    kept = {f"{PAST}/log-{index:010d}": encode_entry(entry) for index, entry in log.raw}
    kept |= {past_result(part): content.encode() for part, content in log.results.items()}
    kept |= {past_disk(name): " ".join(chosen_parts(disk)).encode() for name, disk in disks.items()}
    return with_machines(Tree.of(kept), contested)


def lock(
    effect: LockDisk, seat: str, memories: Mapping[str, Memory], disk: Disk, tree: Tree, table: TablePlace
) -> Found | None:
    """Return what a run finds when it takes the lock; None while it can't have it, or there is nothing to restore.

    Seats that are not operators' are called like their replicas.
    """
    busy = memories[effect.replica].is_there or locked_by(memories, effect.replica)
    if busy or any_good(tree, table) is not effect.again:
        return None
    shares = disk.shares if isinstance(disk, SharedDisk) else None
    return Found(me_of(seat, memories[seat].incarnation), disk.parts, disk.aside, shares)


def wrongly_ended(effect: Commit, memory: Memory, replica: Replica, tree: Tree) -> str | None:
    """RESTORED: a run has ended, in this tree, with other parts registered than it has found."""
    mark = layout.restoring(replica.table)
    if memory.lock is None or not any(isinstance(each, Delete) and each.path == mark for each in effect.operations):
        return None
    name, parts = memory.lock
    registered = tree.children(layout.parts(Replica(replica.table, name))) or ()
    if sorted(registered) == sorted(parts):
        return None
    return f"RESTORED: {name} has registered {', '.join(registered) or 'nothing'}, it should be {', '.join(parts)}"


def wrongly_repeated(effect: UnlockDisk, memory: Memory, table: TablePlace, tree: Tree) -> str | None:
    """RESTORED: a run after the end has said that the table is restored already when it is not so, or the other way round."""
    if memory.lock is None or effect.is_already is None:
        return None
    name, parts = memory.lock
    registered = tree.children(layout.parts(Replica(table, name))) or ()
    is_so = sorted(registered) == sorted(parts)
    if effect.is_already is is_so:
        return None
    said = "is restored already" if effect.is_already else "can't be restored"
    return f"RESTORED: the table {said}, with {', '.join(registered) or 'nothing'}; {name} has {', '.join(parts) or 'nothing'}"


# --- stages -------------------------------------------------------------------------------------------------------------------


def open_table(replica: Replica, me: bytes) -> Stage:
    """Start, some time after coordination has the table again."""
    yield OpenTable()
    return Then(become_active, (replica, me))


def restore_disk(operator: Replica, name: str, attempt: int = 0) -> Stage:
    """Let the parts on a replica's disk be the table; go on until that is done, or it is known why it can't be."""
    found: Found = yield LockDisk(name)
    outcome = yield from found.run(Replica(operator.table, name), found.me + str(attempt).encode())
    yield UnlockDisk()
    again = isinstance(outcome, NotRestored) and outcome.again
    return Then(restore_disk, (operator, name, attempt + 1)) if again else None


def repeat_restore(operator: Replica, name: str) -> Stage:
    """Begin a run after another one has ended, as an operator does who was not told so."""
    found: Found = yield LockDisk(name, again=True)
    outcome = yield from found.run(Replica(operator.table, name), found.me)
    yield UnlockDisk(isinstance(outcome, Restored) and outcome.already)
    return None


DUTIES = {"restore": restore_disk, "restore-again": repeat_restore}
"""What a model can ask for, by name."""
