"""What must hold of merges whose results a client puts, beside what must hold of every merge in an object store."""

from __future__ import annotations

from collections.abc import Iterator

from replitree_verify.merging import invariants as merging
from replitree_verify.merging.world import Model
from replitree_verify.prepared.world import World


def in_the_end(world: World, names: tuple[str, ...], model: Model) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    for _, share in world.uploads:
        yield f"SETTLES: an upload has {share} still"
    yield from merging.in_the_end(world, names, model)


__all__ = ["in_the_end"]
