"""An object store as a value: the objects of shares, and requests that are on their way to it.

A share has `PIECES` objects, its manifest the last one.  A crash or a lost answer may leave any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from replitree.protocol.core.effects import Effect
from replitree.protocol.shares.share import DeleteObjects, ShareId

PIECES = 2
"""Objects of a share."""


@dataclass(frozen=True, slots=True)
class PutObjects(Effect):
    """Put the objects of a share into the store, durably.  Outcome: `ObjectsThere` or `ObjectsInDoubt`."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class Objects:
    """What is in a store.

    Attributes
    ----------
    there
        The objects: a share, and the number of the piece.
    late
        The puts and deletes that are on their way, and whose sender does not wait for them any more.
    stray
        The shares whose objects may come when no process knows of them: a put was on its way when its process died, or its
        replica was dropped.
    torn
        The shares whose manifest can't be read; their data can.
    """

    there: frozenset[tuple[ShareId, int]] = frozenset()
    late: tuple[PutObjects | DeleteObjects, ...] = ()
    stray: frozenset[ShareId] = frozenset()
    torn: frozenset[ShareId] = frozenset()

    def is_whole(self, share: ShareId) -> bool:
        """Whether all objects of a share are there."""
        return all((share, piece) in self.there for piece in range(PIECES))

    def has_manifest(self, share: ShareId) -> bool:
        """Whether the object of a share that is put last is there, and can be read."""
        return (share, PIECES - 1) in self.there and share not in self.torn

    def can_be_read(self, share: ShareId) -> bool:
        """Whether a share has all its objects, and a manifest that says what they are."""
        return self.is_whole(share) and share not in self.torn

    def after(self, request: PutObjects | DeleteObjects) -> Objects:
        """Return the store after a request."""
        objects = frozenset((request.share, piece) for piece in range(PIECES))
        there = self.there | objects if isinstance(request, PutObjects) else self.there - objects
        return replace(self, there=there)

    def half_after(self, request: PutObjects | DeleteObjects) -> Objects:
        """Return the store after the first half of a request."""
        # Piece 0: the manifest is put last, so half a put is without it.
        one = frozenset(((request.share, 0),))
        return replace(self, there=self.there | one if isinstance(request, PutObjects) else self.there - one)

    def without_answer(self, request: PutObjects | DeleteObjects) -> Iterator[tuple[str, Objects]]:
        """Yield what a request may leave whose sender stops to wait for the answer, but for the store as it is."""
        # No process may know of the share any more when these objects come: `KNOWN` allows for them.
        strays = self.stray | {request.share} if isinstance(request, PutObjects) else self.stray
        yield "done", self.after(request)
        yield "half done", self.half_after(request)
        # Sorted: requests on their way arrive in any order, so their order makes no two states.
        yield "on its way", replace(self, late=tuple(sorted((*self.late, request), key=repr)), stray=strays)

    def arrived(self, request: PutObjects | DeleteObjects) -> Objects:
        """Return the store after a request that was on its way."""
        late = list(self.late)
        late.remove(request)
        return replace(self.after(request), late=tuple(late))
