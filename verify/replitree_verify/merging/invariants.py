"""What must hold of merges in an object store, beside what must hold of every table there."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import layout
from replitree_verify.merging.world import MARK, RESULT, Model, World
from replitree_verify.shared_tables import invariants as shared
from replitree_verify.shared_tables.world import CONTENT, TABLE, replica_of

DESCRIPTIONS = {
    **shared.DESCRIPTIONS,
    "SAME": "a registered result has the content that the first one had, and so have the objects that it owns",
    "ONE": "in the end there is one copy of the result, unless who has the other one can't be asked for it",
    "DONE": "in the end every replica has registered the result, and no mark is left",
    "STUCK": "no replica waits for a mark under which none works",
}


def violations(world: World, names: tuple[str, ...], model: Model) -> Iterator[str]:
    """Yield what does not hold, beginning with the name of the invariant."""
    yield from shared.violations(world, names)
    claimed = world.tree.get(layout.result(TABLE, RESULT.name))
    contents = dict(model.contents)
    for name, seat in zip(names, world.seats, strict=True):
        node = world.tree.get(layout.part(replica_of(name), RESULT.name))
        if node is None:
            continue
        own = seat.disk.shares_of(RESULT.name)[:1]
        if claimed is None or node.value != claimed.value:
            yield f"SAME: {name} has registered other content"
        elif any(contents.get(share.partition("-")[0], CONTENT).encode() != node.value for share in own):
            yield f"SAME: {name} owns other content than it has registered"


def in_the_end(world: World, names: tuple[str, ...], model: Model) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    yield from shared.in_the_end(world, names)
    for name in () if model.written else model.replicas:
        if world.tree.get(layout.part(replica_of(name), RESULT.name)) is None:
            yield f"DONE: {name} does not have the result"
    if world.tree.exists(MARK):
        yield "DONE: the mark is left"
    copies = world.tree.children(layout.shares(TABLE)) or ()
    if len(copies) > 1 + bool(model.holder):
        yield f"ONE: there are {len(copies)} copies"


__all__ = ["DESCRIPTIONS", "in_the_end", "violations"]
