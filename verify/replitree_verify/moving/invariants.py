"""What must hold of parts that move, at every moment and when nothing more can happen."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import layout
from replitree.protocol.shares.share import ShareId
from replitree_verify.moving.world import Model, World, files_of, shares_in
from replitree_verify.rules.stored_shares import marks_of, not_deleted, not_ended, of_shares
from replitree_verify.shared_tables.world import INCARNATION, TABLE, replica_of

DESCRIPTIONS = {
    "MARKED": "a registered part whose manifest names a share, and that is shown, has a mark on it",
    "ROWS": "a part whose manifest names no share has its rows on its disk",
    "COPIES": "the files on a disk of a part whose manifest names a share are those of the share",
    "HELD": "a mark stands for a part whose manifest names the share, or for a note on its replica's disk",
    "WHOLE": "the objects of every share that has a node are there",
    "OWNED": "a share's node has an owner",
    "ONCE": "a share is written, owned, or in the garbage: never two of these",
    "KNOWN": "objects are of shares that are written, owned or in the garbage, unless they came late",
    "SINGLE": "replicas that move a part at once end with one share for all that have the same files, as long as no session"
    " ends",
    "SETTLES": "in the end nothing is noted, claimed, being written or garbage; every mark has a part, every object an owner;"
    " without faults a part that is still here is where it was to go",
}


def violations(world: World, model: Model) -> Iterator[str]:
    """Yield what does not hold, beginning with the name of the invariant."""
    marks = marks_of(world.tree, TABLE)
    yield from _of_replicas(world, model, marks)
    yield from of_shares(world, TABLE, marks)


def _of_replicas(world: World, model: Model, marks: set[tuple[str, str]]) -> Iterator[str]:
    for name, machine in zip(model.replicas, world.machines, strict=True):
        for part, share in machine.disk.parts:
            if share is None and part not in machine.disk.rows:
                yield f"ROWS: {name} has {part} without its rows"
            if share is not None and part in machine.disk.rows and machine.disk.written != files_of(share):
                yield f"COPIES: {name} has {part} in {share}, and other files of it on its disk"
            is_registered = world.tree.exists(layout.part(replica_of(name), part))
            is_shown = is_registered and part not in machine.process.hidden
            for each in shares_in(share) if share is not None and is_shown else ():
                if (each, f"{name}~{INCARNATION}~{part}") not in marks:
                    yield f"MARKED: {name} has {part} in {each} and no mark"
        told = {*machine.disk.parts, *(note[:2] for note in machine.disk.notes)}
        here = ((part, share) for part, own in told if own is not None for share in shares_in(own))
        known = {(share, f"{name}~{INCARNATION}~{part}") for part, share in here}
        for place, mark in sorted(marks):
            if mark.startswith(f"{name}~") and (place, mark) not in known:
                yield f"HELD: {place} is marked by {mark}, which is not there"


def in_the_end(world: World, model: Model) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    tree = world.tree
    yield from not_ended(tree, TABLE)
    claims = [name for name in tree.children(layout.sharing(TABLE)) or () if name.startswith("moving-")]
    yield from (f"SETTLES: {claim} stays" for claim in claims)
    owned = set(tree.children(layout.shares(TABLE)) or ())
    yield from not_deleted(world, TABLE)
    if model.is_once and len(owned) > 1 + len(model.differing):
        yield f"SINGLE: there are {', '.join(sorted(owned))}"
    for name, machine in zip(model.replicas, world.machines, strict=True):
        for note in sorted(machine.disk.notes):
            yield f"SETTLES: {name} has not let go of {note.part}"
        yield from _not_there(name, machine.disk.parts, model)


def _not_there(name: str, parts: tuple[tuple[str, ShareId | None], ...], model: Model) -> Iterator[str]:
    """Yield what was to move and has not."""
    if any(model.faults.values()):
        return
    for part, share in parts:
        tasks = model.threads.get((name, "move"), ())
        if tasks and (share is None) != (tasks[-1].to_store is False):
            yield f"SETTLES: {name} has not moved {part}"


__all__ = ["DESCRIPTIONS", "in_the_end", "violations"]
