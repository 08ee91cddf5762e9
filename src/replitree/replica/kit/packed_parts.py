"""Packed parts: the old parts of one table that lie in packs (`replitree.storage.disk.packs`), and copies of them in folders.

====================  ==============================  ==========================================================================
a packed part has     marked (``retired/<part>``)     what it is
====================  ==============================  ==========================================================================
no folder             no                              packed: a reader who asks for it gets a copy first (`unpack`)
a folder              yes                             a copy, for readers; it goes when none has a lease on it (`remove_copies`)
a folder              no                              revived: the table has it again; what the pack has is not counted
====================  ==============================  ==========================================================================

A part that was just packed is a copy, too: its folder goes as that of any copy, also after a crash.  A copy has its mark before
its folder, and longer.  A start removes every copy: a copy is not synced.

What is kept of a pack in memory is a few hundred bytes; names are read from the disk, and those of the packs that were asked
for last stay.

Damage: a part that can't be unpacked is left out of its pack, and the pack as it was is set aside.  From then on the part is
not here, for readers and for what fetches missing parts.

Absent on purpose: what keeps a part (`replitree.replica.kit.old_parts`).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from replitree import private
from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.protocol.core.parts import parse_part
from replitree.storage.disk.packs import PackedPart, blocks_of
from replitree.storage.disk.store import PartStore
from replitree.storage.files.durable import sync_folder

NAMES_CACHED = 64
"""Packs whose names are in memory, about 0.1 MB each."""

COPY_S = 60.0
"""For how many seconds a copy stays after a reader has asked for it, whether or not there is a lease on it."""

COPIES_AT_ONCE = 4_096
"""Copies that are removed in one go."""

REWRITE_S = 600.0
"""How often at most a pack is rewritten because the feed does not need some of its parts any more, in seconds."""

REWRITES_AT_ONCE, REMOVALS_AT_ONCE = 4, 256
"""Packs that one round of maintenance rewrites, and deletes."""


@dataclass(slots=True)
class Needs:
    """How many parts, and bytes, of a pack tags keep, the feed keeps, and consumers of the feed keep alone."""

    tagged: int = 0
    tagged_bytes: int = 0
    fed: int = 0
    fed_bytes: int = 0
    consumed: int = 0
    consumed_bytes: int = 0


@dataclass(slots=True, eq=False)
class Pack:
    """A pack.

    Attributes
    ----------
    first, last
        Blocks of its first and last part.
    since
        From when on all of its parts are old, in seconds since 1970.
    parts, bytes
        How many parts it has, and the bytes of their data files.
    gone
        Parts that are about to leave it.
    version
        How often this process has written it again.
    kept_by, looked_at, needs
        For those who look at what keeps its parts: a part that something kept at the last look, when that was (monotonic
        seconds), and what was found.
    written_at
        When this process has written it (monotonic seconds).
    """

    name: str
    since: float
    parts: int
    bytes: int
    first: int = field(init=False)
    last: int = field(init=False)
    gone: frozenset[str] = frozenset()
    version: int = 0
    kept_by: str = ""
    looked_at: float = float("-inf")
    needs: Needs = field(default_factory=Needs)
    written_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.first, self.last = blocks_of(self.name)


@dataclass(frozen=True, slots=True)
class Removal:
    """Parts that leave a pack, and those that stay in it."""

    pack: Pack
    parts: tuple[str, ...]
    rest: tuple[PackedPart, ...]


class PackedParts:
    """The packed parts of one table on one disk.  Any thread may use it.

    Parameters
    ----------
    store
        Where the packs are.
    marks
        Folder of the marks of old parts.
    """

    def __init__(self, store: PartStore, marks: Path) -> None:
        self._store, self._marks = store, marks
        # `moving` is held while folders of packed parts come and go, and is taken before `_lock`.
        self.moving, self._lock = threading.Lock(), threading.Lock()
        self._packs: list[Pack] = []
        self._reach: list[int] = []
        self._names: OrderedDict[Pack, Mapping[str, int]] = OrderedDict()
        self._copies: dict[str, float] = {}
        self._revived: dict[str, int] = {}
        self._problems: list[str] = []
        for name in store.packs.names():
            try:
                index = store.packs.index(name)
            except CorruptPart as error:
                self._set_aside(name, str(error))
            except UnsupportedFormat as error:
                self._problems.append(str(error))
            else:
                self._packs.append(Pack(name, index.since, len(index.parts), sum(index.bytes)))
        self._order()

    def settle(self, marked: Collection[str]) -> frozenset[str]:
        """Remove the copies that an earlier process has left; called once, before anything else.

        Parameters
        ----------
        marked
            The parts with a mark.

        Returns
        -------
        frozenset
            Those of them that were copies, which have no mark any more.
        """
        if not self._packs:
            return frozenset()
        # In the order of their blocks: the names of a pack are read once.
        copies = [part for part in sorted(marked, key=_block) if self.pack_of(part) is not None]
        self._remove_folders(copies)
        there = sorted(self._store.parts(), key=_block)
        for part in there:
            pack = None if part in marked else self.pack_of(part)
            if pack is not None:
                self._revived[part] = self.names_of(pack)[part]
        return frozenset(copies)

    def _order(self) -> None:
        self._packs.sort(key=lambda pack: (pack.first, pack.last, pack.name))
        # Packs may overlap: a look at those before a place ends where none of them reaches as far.
        self._reach = list(accumulate((pack.last for pack in self._packs), max))

    # --- looking ---

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The packs, in the order of their first blocks."""
        with self._lock:
            return tuple(self._packs)

    def is_copied(self, part: str) -> bool:
        """Whether a packed part has a folder for readers."""
        return part in self._copies

    def count(self) -> tuple[int, int]:
        """Return how many parts are packed, and the bytes of their data files."""
        with self._lock:
            parts = sum(pack.parts for pack in self._packs) - len(self._revived)
            return parts, sum(pack.bytes for pack in self._packs) - sum(self._revived.values())

    def problems(self) -> list[str]:
        """Return what was found damaged since this was asked last."""
        with self._lock:
            found, self._problems = self._problems, []
        return found

    def look_again(self) -> None:
        """Let each pack be looked at as a whole as soon as possible."""
        for pack in self.packs:
            pack.looked_at = float("-inf")

    def names_of(self, pack: Pack) -> Mapping[str, int]:
        """Return the names of the parts in a pack, in the order of their blocks, each with the bytes of its data files.

        Those that the table has again, or that are about to leave, are left out.  A pack that is damaged, or gone, has none.
        """
        with self._lock:
            names, version = self._names.get(pack), pack.version
        if names is None:
            try:
                index = self._store.packs.index(pack.name)
            except CorruptPart as error:
                self._give_up(pack, str(error))
                return {}
            names = dict(zip(index.parts, index.bytes, strict=True))
        with self._lock:
            # It was written again meanwhile: what was read may be the file before.
            names = names if version == pack.version else self._names[pack]
            self._names[pack] = names
            self._names.move_to_end(pack)
            while len(self._names) > NAMES_CACHED:
                self._names.popitem(last=False)
            hidden = pack.gone if not self._revived else pack.gone.union(self._revived.keys() & names.keys())
        return {name: size for name, size in names.items() if name not in hidden} if hidden else names

    def pack_of(self, part: str) -> Pack | None:
        """Return the pack that has a part; None: it is in none, or the table has it again."""
        if not self._packs:
            return None
        block = _block(part)
        with self._lock:
            if part in self._revived:
                return None
            at, found = bisect_right(self._packs, block, key=lambda pack: pack.first), list[Pack]()
            while at and self._reach[at - 1] >= block:
                at -= 1
                if self._packs[at].last >= block:
                    found.append(self._packs[at])
        return next((pack for pack in found if part in self.names_of(pack)), None)

    # --- packing ---

    def pack(
        self,
        parts: Sequence[PackedPart],
        since: float,
        needs: Needs,
        take: Callable[[Sequence[str]], Collection[str]],
    ) -> None:
        """Write a pack; the folders of its parts are copies from then on.

        Parameters
        ----------
        parts, since
            Whole parts that are in no pack, in the order of their blocks, and from when on all of them are old.
        needs
            What keeps them.
        take
            Called under `moving` when the pack is durable; returns those of the parts that are old still.

        Raises
        ------
        StoreError
            The disk refuses.
        """
        name = self._store.packs.free_name((_block(parts[0].name), _block(parts[-1].name)))
        self._store.packs.stage(name, parts, since)
        with self.moving:
            self._store.packs.publish(name)
            size = sum(part.bytes for part in parts)
            pack = Pack(name, since, len(parts), size, needs=needs, written_at=time.monotonic())
            with self._lock:
                # First: at every moment an old part is known as one.
                self._packs.append(pack)
                self._order()
                self._names[pack] = dict(parts)
            old = frozenset(take([part.name for part in parts]))
            with self._lock:
                # In the order of the parts, whatever the order of a set is.
                self._copies |= {part: float("-inf") for part, _ in parts if part in old}
                self._revived |= {part: size for part, size in parts if part not in old}

    # --- copies for readers ---

    def unpack(self, parts: Iterable[str]) -> None:
        """Give packed parts a folder again, for readers; those that can't be unpacked are in no pack afterwards.

        Raises
        ------
        StoreError
            The disk refuses.
        """
        packed = [part for part in parts if self.pack_of(part) is not None] if self._packs else ()
        if packed:
            with self.moving:
                self._unpack(packed, synced=False)

    def _unpack(self, parts: Iterable[str], *, synced: bool) -> None:
        """Unpack parts, under `moving`: each pack is opened once."""
        wanted, now = dict[Pack, list[str]](), time.monotonic()
        for part in parts:
            pack = self.pack_of(part)
            if pack is not None and (synced or part not in self._copies):
                wanted.setdefault(pack, []).append(part)
            elif pack is not None:
                self._copies[part] = now
        for pack, names in wanted.items():
            for name in names:
                private.touch(self._marks / name)
            try:
                found = self._store.packs.unpack(pack.name, names, synced=synced)
            except CorruptPart as error:
                self._give_up(pack, str(error))
                continue
            with self._lock:
                self._copies |= dict.fromkeys(found.parts, now)
            if found.damaged:
                self._leave_out(pack, found.damaged)

    def remove_copies(self, leased: Callable[[], Collection[str]]) -> int:
        """Remove the folders of copies that no reader needs; return how many.

        Parameters
        ----------
        leased
            Returns the parts with a lease.

        Raises
        ------
        StoreError
            The disk refuses.
        """
        if not self._copies:
            return 0
        with self.moving:
            # A reader gets its lease first, and then its copies: what has none now is not being waited for.
            before, kept = time.monotonic() - COPY_S, leased()
            over = [part for part, at in self._copies.items() if at <= before and part not in kept][:COPIES_AT_ONCE]
            self._remove_folders(over)
        return len(over)

    def _remove_folders(self, parts: Sequence[str]) -> None:
        if parts:
            with self._lock:
                for part in parts:
                    self._copies.pop(part, None)
            self._store.remove_parts(parts)
            for part in parts:
                (self._marks / part).unlink(missing_ok=True)

    # --- parts that leave the table again, or come back ---

    def retire(self, part: str) -> bool:
        """Take a folder for a copy, if a pack has the part; return whether it has."""
        if not self._packs:
            return False
        with self._lock:
            self._revived.pop(part, None)
        if self.pack_of(part) is None:
            return False
        with self._lock:
            self._copies.setdefault(part, float("-inf"))
        return True

    def revive(self, parts: Iterable[str]) -> None:
        """Give packed parts that the table has again durable folders of their own.  Raises StoreError."""
        if not self._packs:
            return
        with self.moving:
            found = [(part, pack) for part in parts if (pack := self.pack_of(part)) is not None]
            if not found:
                return
            sizes = {part: self.names_of(pack).get(part, 0) for part, pack in found}
            self._unpack(sizes, synced=True)
            with self._lock:
                there = [part for part in sizes if self._copies.pop(part, None) is not None]
                self._revived |= {part: sizes[part] for part in there}
            for part in there:
                (self._marks / part).unlink(missing_ok=True)
            # A mark that comes back with the power would make a copy of what the table has.
            sync_folder(self._marks)

    # --- what leaves ---

    def plan(self, due: Iterable[str], needs: Callable[[Sequence[str]], bool]) -> list[Removal]:
        """Return how parts that nothing keeps leave their packs now: with the pack, or by a pack without them.

        Parameters
        ----------
        due
            The parts.
        needs
            Whether the feed needs some of the parts that stay.  Then the others leave bit by bit as its time passes, and the
            pack is rewritten when half of them can go, or after `REWRITE_S`.
        """
        leaving = dict[Pack, set[str]]()
        for part in due:
            pack = self.pack_of(part)
            if pack is not None:
                leaving.setdefault(pack, set()).add(part)
        found, rewrites = list[Removal](), 0
        for pack, parts in list(leaving.items())[:REMOVALS_AT_ONCE]:
            names = self.names_of(pack)
            rest = tuple(PackedPart(name, size) for name, size in names.items() if name not in parts)
            if rest:
                now, is_half = time.monotonic(), 2 * len(parts) >= len(names)
                if now < pack.written_at + REWRITE_S and not is_half and needs([part.name for part in rest]):
                    pack.looked_at = now
                    continue
                if rewrites >= REWRITES_AT_ONCE:
                    continue
                rewrites += 1
            found.append(Removal(pack, tuple(sorted(parts)), rest))
        return found

    def forget(self, removals: Iterable[Removal]) -> None:
        """Take parts for gone, before they are."""
        with self._lock:
            for removal in removals:
                removal.pack.gone = removal.pack.gone.union(removal.parts)

    def remove(self, removals: Sequence[Removal]) -> None:
        """Remove parts from their packs, and their copies.

        Raises
        ------
        StoreError
            The disk refuses.
        """
        if not removals:
            return
        with self.moving:
            try:
                self._drop([removal.pack for removal in removals if not removal.rest])
                for removal in removals:
                    if removal.rest:
                        self._rewrite(removal.pack, removal.rest)
            finally:
                # Where the disk has refused, the parts are still there: they are chosen again.
                for removal in removals:
                    removal.pack.gone = frozenset()
            self._remove_folders([part for removal in removals for part in removal.parts if part in self._copies])

    def _drop(self, packs: Collection[Pack]) -> None:
        """Delete packs, under `moving`."""
        if packs:
            self._store.packs.remove([pack.name for pack in packs])
            with self._lock:
                self._forget_revived(part for pack in packs for part in self._names.pop(pack, ()))
                self._packs = [pack for pack in self._packs if pack not in packs]
                self._order()

    def _rewrite(self, pack: Pack, rest: Sequence[PackedPart]) -> None:
        """Write a pack without some of its parts, under `moving`; what is damaged in it is left out as well."""
        try:
            damaged = self._store.packs.stage_rest(pack.name, rest, pack.since)
        except CorruptPart as error:
            self._give_up(pack, str(error))
            return
        if damaged:
            self._report(pack.name, damaged)
            self._store.packs.set_aside(pack.name, _text(damaged), keep=True)
        left = {part.name: part.bytes for part in rest if part.name not in damaged}
        if not left:
            self._drop((pack,))
            return
        self._store.packs.publish(pack.name)
        with self._lock:
            self._forget_revived(set(self._names.get(pack, ())).difference(left))
            self._names[pack], pack.gone, pack.version = left, frozenset(), pack.version + 1
            pack.parts, pack.bytes = len(left), sum(left.values())
            pack.looked_at, pack.written_at = float("-inf"), time.monotonic()

    def _forget_revived(self, parts: Iterable[str]) -> None:
        for part in parts:
            self._revived.pop(part, None)

    # --- damage ---

    def _leave_out(self, pack: Pack, damaged: Mapping[str, str]) -> None:
        """Write a pack without parts that are damaged in it, under `moving`."""
        self._report(pack.name, damaged)
        self._store.packs.set_aside(pack.name, _text(damaged), keep=True)
        rest = [PackedPart(name, size) for name, size in self.names_of(pack).items() if name not in damaged]
        for part in damaged:
            (self._marks / part).unlink(missing_ok=True)
        self._rewrite(pack, rest) if rest else self._drop((pack,))

    def _give_up(self, pack: Pack, problem: str) -> None:
        """Forget a pack that is damaged as a whole; copies of its parts stay as they are."""
        with self._lock:
            if pack not in self._packs:
                return
            self._packs.remove(pack)
            self._order()
            self._names.pop(pack, None)
        if self._store.packs.path(pack.name).exists():
            self._set_aside(pack.name, problem)

    def _set_aside(self, name: str, problem: str) -> None:
        self._problems.append(problem)
        self._store.packs.set_aside(name, problem)

    def _report(self, name: str, damaged: Mapping[str, str]) -> None:
        with self._lock:
            self._problems.append(f"pack {name} is damaged: {_text(damaged)}")


def _block(part: str) -> int:
    return parse_part(part).block_min


def _text(damaged: Mapping[str, str]) -> str:
    return "; ".join(f"{part}: {problem}" for part, problem in sorted(damaged.items())[:5])


__all__ = ["Needs", "Pack", "PackedParts", "Removal"]
