"""What must hold of merges in an object store, beside what must hold of every table there."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import layout
from replitree_verify.merging.world import MARK, RESULT, Model, World
from replitree_verify.shared_tables import invariants as shared
from replitree_verify.shared_tables.world import TABLE, replica_of

DESCRIPTIONS = {
    **shared.DESCRIPTIONS,
    "ONE": "in the end there is one copy of the result",
    "DONE": "in the end every replica has registered the result, and no mark is left",
    "STUCK": "no replica waits for a mark under which none works",
}


def in_the_end(world: World, names: tuple[str, ...], model: Model) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    yield from shared.in_the_end(world, names)
    for name in model.replicas:
        if world.tree.get(layout.part(replica_of(name), RESULT.name)) is None:
            yield f"DONE: {name} does not have the result"
    if world.tree.exists(MARK):
        yield "DONE: the mark is left"
    copies = world.tree.children(layout.shares(TABLE)) or ()
    if len(copies) > 1:
        yield f"ONE: there are {len(copies)} copies"


__all__ = ["DESCRIPTIONS", "in_the_end"]
