"""Parts that this disk has lost and the object store still has: found again by this replica's own marks.

A registered part whose rows no replica can send is not lost as long as its objects are there, and they are: this replica's
mark keeps them, whatever became of its disk.  So before such a part is called broken, the shares with its marks are looked for,
the manifest in one of them is read, and what has the content that is registered, with all its files, is the part.

What the store does not tell is not decided, and the part is not called broken meanwhile: a store that gives no answer, or a
manifest of a newer format, is no proof that the rows are gone.  Nor is one wrong answer: objects that were found broken from
here are read once more, every byte.  Data files that the share lacks are created again from copies on this disk, if it has any.

Absent on purpose: owning the share again, which follows as after every fetch (`replitree.replica.table.mending`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from replitree.errors import BadInput, CorruptPart, NotAuthorized, StoreError, UnsupportedFormat
from replitree.protocol.program.mender_effects import PartContent
from replitree.protocol.shares.share import ShareId
from replitree.replica.kit.logs import Log
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.salvage import Salvage
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import decode_manifest

LOOK_AGAIN_S = 30.0
"""How long a part that was not found is not looked for again, in seconds."""

NEVER = float("-inf")
NOT_LOOKED = "it was not looked for in the object store yet"


class OwnShares:
    """Finds what the store has of one table replica's parts.

    Parameters
    ----------
    store
        The parts on this disk.
    storage
        The table's object store.
    salvage
        Creates missing objects from copies on this disk.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        store: PartStore,
        storage: FollowedStorage,
        salvage: Salvage,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._storage = storage
        self._log = log
        self._salvage = salvage
        self._clock = clock
        self._looked_at: dict[str, float] = {}
        self._undecided: dict[str, str] = {}

    def due(self, lacking: tuple[PartContent, ...]) -> tuple[PartContent, ...]:
        """Return the parts to look for now; those that were not found a moment ago wait.

        Parameters
        ----------
        lacking
            All registered parts that no replica could send.
        """
        names = {name for name, _ in lacking}
        self._looked_at = {name: at for name, at in self._looked_at.items() if name in names}
        self._undecided = {name: why for name, why in self._undecided.items() if name in names}
        if self._storage.sharing is None:
            return ()
        now = self._clock()
        return tuple(each for each in lacking if now - self._looked_at.get(each[0], NEVER) >= LOOK_AGAIN_S)

    def take(self, parts: tuple[PartContent, ...], marked: Mapping[str, Sequence[ShareId]]) -> tuple[str, ...]:
        """Publish the parts that the store has; return their names.

        Parameters
        ----------
        parts
            Those that were due.
        marked
            The shares with this replica's marks for each.
        """
        sharing = self._storage.sharing
        assert sharing is not None, "without an object store nothing is due"
        now = self._clock()
        found: list[str] = []
        store, objects = self._store, sharing.objects
        for part, content in parts:
            self._undecided.pop(part, None)
            # By the first share that has all of it.
            for share in marked.get(part, ()):
                try:
                    raw = objects.manifest_in(share)
                    manifest = None if raw is None else decode_manifest(raw, f"the manifest in share {share}")
                    if raw is None or manifest is None or manifest.content != content:
                        continue
                    if store.shared.distrusts(manifest):
                        store.shared.verify_objects(manifest)
                    if objects.has_files(manifest) or self._salvage.heal(part, manifest):
                        store.fetched.publish((store.fetched.receive_shared(part, manifest, raw, content),))
                        found.append(part)
                        break
                    objects.check_store()
                    self._salvage.know(part, manifest)
                except CorruptPart:
                    # The share is of another part, or its manifest is damaged.
                    continue
                except (StoreError, NotAuthorized, BadInput, UnsupportedFormat, OSError) as error:
                    self._undecided[part] = f"it may be in share {share} of the object store: {error}"
        self._looked_at |= {name: now for name, _ in parts if name not in found}
        if found:
            self._log.warning("parts that this disk had lost found in the object store", parts=len(found))
        return tuple(found)

    def forget(self) -> None:
        """Forget what was looked for: nothing is lacking any more."""
        self._looked_at.clear()
        self._undecided.clear()

    def why_undecided(self, part: str) -> str | None:
        """Say why the store may still have a part that is lacking; None: it was looked for, and is not there."""
        if self._storage.sharing is None:
            return None
        return self._undecided.get(part, None if part in self._looked_at else NOT_LOOKED)


__all__ = ["OwnShares"]
