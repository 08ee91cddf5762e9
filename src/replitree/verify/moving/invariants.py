"""What must hold of parts that move, at every moment and when nothing more can happen."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol import layout
from replitree.protocol.share import ShareId
from replitree.verify.moving.tasks import INCARNATION, TABLE, replica_of
from replitree.verify.moving.world import Fault, Model, World

DESCRIPTIONS = {
    "MARKED": "a registered part whose manifest names a share, and that is shown, has a mark on it",
    "ROWS": "a part whose manifest names no share has its rows on its disk",
    "HELD": "a mark stands for a part whose manifest names the share, or for a note on its replica's disk",
    "WHOLE": "the objects of every share that has a node are there",
    "OWNED": "a share's node has an owner",
    "ONCE": "a share is written, owned, or in the garbage: never two of these",
    "KNOWN": "objects are of shares that are written, owned or in the garbage, unless they came when nobody waited for them",
    "SINGLE": "replicas that move a part at once end with one share, as long as no session ends",
    "SETTLES": "in the end nothing is noted, claimed, being written or garbage; every mark has a part, every object an owner;"
    " without faults a part that is still here is where it was to go",
}


def violations(world: World, model: Model) -> Iterator[str]:
    """Yield what does not hold, beginning with the name of the invariant."""
    tree = world.tree
    shares = set(tree.children(layout.shares(TABLE)) or ())
    garbage = set(tree.children(layout.all_garbage(TABLE)) or ())
    writing = set(tree.children(layout.all_writing(TABLE)) or ())
    marks = {(share, mark) for share in shares for mark in tree.children(layout.share(TABLE, share)) or ()}
    yield from _of_replicas(world, model, marks)
    for share in sorted(shares):
        if not any(each == share for each, _ in marks):
            yield f"OWNED: {share} has no owner"
        if not world.is_whole(ShareId(share)):
            yield f"WHOLE: {share} lacks objects"
    for share in sorted((shares & garbage) | (shares & writing) | (garbage & writing)):
        yield f"ONCE: {share}"
    known = shares | garbage | writing | world.stray
    yield from (f"KNOWN: {unknown}" for unknown in sorted({share for share, _ in world.objects} - known))


def _of_replicas(world: World, model: Model, marks: set[tuple[str, str]]) -> Iterator[str]:
    for name, machine in zip(model.replicas, world.machines, strict=True):
        for part, share in machine.disk.parts:
            if share is None and part not in machine.disk.rows:
                yield f"ROWS: {name} has {part} without its rows"
            is_registered = world.tree.exists(layout.part(replica_of(name), part))
            is_shown = is_registered and part not in machine.process.hidden
            if share is not None and is_shown and (share, f"{name}~{INCARNATION}~{part}") not in marks:
                yield f"MARKED: {name} has {part} in {share} and no mark"
        told = {*machine.disk.parts, *(note[:2] for note in machine.disk.notes)}
        known = {(own, f"{name}~{INCARNATION}~{part}") for part, own in told if own is not None}
        for place, mark in sorted(marks):
            if mark.startswith(f"{name}~") and (place, mark) not in known:
                yield f"HELD: {place} is marked by {mark}, which is not there"


def in_the_end(world: World, model: Model) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    tree = world.tree
    for parent in (layout.all_writing(TABLE), layout.all_garbage(TABLE)):
        if left := tree.children(parent):
            yield f"SETTLES: {left[0]} stays in {parent.rpartition('/')[2]}"
    claims = [name for name in tree.children(layout.sharing(TABLE)) or () if name.startswith("moving-")]
    yield from (f"SETTLES: {claim} stays" for claim in claims)
    owned = set(tree.children(layout.shares(TABLE)) or ())
    yield from (
        f"SETTLES: nobody deletes {left}" for left in sorted({s for s, _ in world.objects} - owned - world.stray)
    )
    if model.is_once and len(owned) > 1:
        yield f"SINGLE: there are {', '.join(sorted(owned))}"
    for name, machine in zip(model.replicas, world.machines, strict=True):
        for note in sorted(machine.disk.notes):
            yield f"SETTLES: {name} has not let go of {note.part}"
        yield from _not_there(name, machine.disk.parts, model)


def _not_there(name: str, parts: tuple[tuple[str, ShareId | None], ...], model: Model) -> Iterator[str]:
    """Yield what was to move and has not."""
    if any(model.faults.get(kind) for kind in Fault):
        return
    for part, share in parts:
        moves = [task.__name__ for task, _ in model.threads.get((name, "move"), ())]
        if moves and (share is None) != (moves[-1] == "bring"):
            yield f"SETTLES: {name} has not moved {part}"


__all__ = ["DESCRIPTIONS", "in_the_end", "violations"]
