"""What the models ask of an object store beside the protocol's effects: a replica puts the objects of one share at a time."""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core.effects import Effect
from replitree.protocol.shares.share import ShareId


@dataclass(frozen=True, slots=True)
class PutObjects(Effect):
    """Put the objects of a share into the store, durably.  Outcome: `ObjectsThere` or `ObjectsInDoubt`."""

    share: ShareId


__all__ = ["PutObjects"]
