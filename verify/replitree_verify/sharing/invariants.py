"""What must hold of shared storage at every moment, and when nothing more can happen.

Together they are I10 of the design: objects are deleted exactly when their last owner lets go, and none is orphaned.
"""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import layout
from replitree.protocol.state.registration import is_broken
from replitree_verify.sharing.world import INCARNATION, PIECES, TABLE, Model, World, replica_of, shares_in

DESCRIPTIONS = {
    "MARKED": "a registered part has a mark on each of its shares, and every mark of a replica has a registered part",
    "WHOLE": "the objects of every share that has a node are there",
    "OWNED": "a share's node has an owner",
    "ONCE": "no share is owned and in the garbage",
    "HELD": "fsck takes nothing from a replica that has it on its disk",
    "TRUE": "what fsck says is so: what is called dangling lacks objects, what is called an orphan has no owner",
    "FOUND": "no part is called broken whose objects are in the store, under a mark of its replica",
    "SETTLES": "in the end the garbage is empty, objects that were ever owned are there if and only if they are owned, and"
    " fsck has ended all damage",
}


def violations(world: World, model: Model) -> Iterator[str]:
    """Yield what does not hold, beginning with the name of the invariant."""
    if world.broken:
        yield world.broken
    damaged = {path.removeprefix(f"{layout.shares(TABLE)}/") for path in world.damage}
    yield from _marks(world, model.replicas, damaged)
    yield from _shares(world, damaged)
    yield from _called_broken(world, model.replicas)


def _marks(world: World, replicas: tuple[str, ...], damaged: set[str]) -> Iterator[str]:
    tree = world.tree
    shares = tree.children(layout.shares(TABLE)) or ()
    found = {
        f"{share}/{mark}" for share in shares for mark in tree.children(layout.share(TABLE, share)) or ()
    } - damaged
    expected = set(_expected(world, replicas))
    if expected - found:
        yield f"MARKED: {min(expected - found)} is missing"
    dropping = {name for name in replicas if _is_dropping(world, name)}
    on_disk = {f"{share}/{name}~{INCARNATION}~{part}" for name, part, share in world.disks}
    if stray := sorted(mark for mark in found - expected - on_disk if _replica_of(mark) not in dropping):
        yield f"MARKED: {stray[0]} has no part"


def _expected(world: World, replicas: tuple[str, ...]) -> Iterator[str]:
    """Yield the marks that registered parts must have."""
    for name in replicas:
        host = world.tree.get(layout.host(replica_of(name)))
        if host is None or host.value == b"dropped":
            continue
        for part in world.tree.children(layout.parts(replica_of(name))) or ():
            node = world.tree.get(layout.part(replica_of(name), part))
            assert node is not None
            yield from (f"{share}/{name}~{INCARNATION}~{part}" for share in shares_in(node.value))


def _called_broken(world: World, replicas: tuple[str, ...]) -> Iterator[str]:
    """Yield the parts that are called broken although the store has them."""
    for name in replicas:
        for part in world.tree.children(layout.parts(replica_of(name))) or ():
            node = world.tree.get(layout.part(replica_of(name), part))
            if node is None or not is_broken(node.value):
                continue
            pieces = [(share, piece) for share in shares_in(node.value) for piece in range(PIECES)]
            if all(each in world.objects for each in pieces):
                yield f"FOUND: {name} calls {part} broken"


def _replica_of(mark: str) -> str:
    return mark.partition("/")[2].partition("~")[0]


def _shares(world: World, damaged: set[str]) -> Iterator[str]:
    shares = world.tree.children(layout.shares(TABLE)) or ()
    garbage = set(world.tree.children(layout.all_garbage(TABLE)) or ())
    for share in sorted(set(shares) - damaged):
        if not world.tree.children(layout.share(TABLE, share)):
            yield f"OWNED: {share} has no owner"
        if any((share, piece) not in world.objects for piece in range(PIECES)):
            yield f"WHOLE: {share} lacks objects"
        if share in garbage:
            yield f"ONCE: {share}"


def in_the_end(world: World, model: Model) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    yield from _repaired(world)
    yield from violations(world, model)
    if left := world.tree.children(layout.all_garbage(TABLE)):
        yield f"SETTLES: {left[0]} stays in the garbage"
    shares = set(world.tree.children(layout.shares(TABLE)) or ())
    if orphans := sorted(share for share, _ in world.objects if share in world.owned and share not in shares):
        yield f"SETTLES: no replica deletes {orphans[0]}"


def _repaired(world: World) -> Iterator[str]:
    if world.damage:
        yield f"SETTLES: {min(world.damage)} stays"
    if left := world.tree.children(layout.all_writing(TABLE)):
        yield f"SETTLES: no replica gives up {left[0]}"
    if orphans := {share for share, _ in world.objects} - set(world.tree.children(layout.shares(TABLE)) or ()):
        yield f"SETTLES: no replica deletes {min(orphans)}"


def _is_dropping(world: World, name: str) -> bool:
    host = world.tree.get(layout.host(replica_of(name)))
    return host is None or host.value == b"dropped"


__all__ = ["DESCRIPTIONS", "in_the_end", "violations"]
