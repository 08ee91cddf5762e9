"""The code of a replica that keeps and gives the change feed, over a folder of its own.

What runs is what ships: the version log with its segments on a disk, the journal, the feed, the removal of old parts, and the
fetching of parts that only the feed needs.  Stand-ins are the store (a set of names) and the other replicas.  A replica that
packs old parts has the store that ships, with a small file in the folder of each part.

Times are seconds since 1970 in the models, from their first entry on.  The product reads this machine's clock, so the feed's
duration is told as the time between that clock and the model's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, cast

import xxhash

from replitree.errors import CorruptPart
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import Entry, encode_entry
from replitree.protocol.core.fold import apply, open_after
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.pull import Loaded, Place, Pointer, Queued
from replitree.protocol.upkeep.consumers import NO_CONSUMERS, Consumers
from replitree.protocol.upkeep.tags import NO_TAGS
from replitree.replica.kit.feed_journal import FeedJournal
from replitree.replica.kit.logs import Log
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.kit.version_log import FOLDER, VersionLog
from replitree.replica.parts.feed_parts import FeedParts
from replitree.replica.perform.context import LocalParts
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.versions import Versions
from replitree.replica.table.feeds import Feeds
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest, data_file
from replitree_verify.world.kernel import ProcedureFailed

TABLE = TablePlace("/c/tables/t", incarnation="t1")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it have names of their own
_QUIET = cast("Log", SimpleNamespace(info=lambda *_, **__: None, warning=lambda *_, **__: None))


@dataclass(frozen=True, slots=True)
class Written:
    """An entry of the log, and when it was written, in milliseconds since 1970 by coordination's clock."""

    index: LogIndex
    entry: Entry
    written_ms: int


class Kept(NamedTuple):
    """How much of the feed is kept.

    Attributes
    ----------
    since
        Everything that was written at or after this time, in seconds since 1970; None: the feed is off.
    consumers
        Its consumers.
    """

    since: float | None
    consumers: Consumers = NO_CONSUMERS


class Packing(NamedTuple):
    """What a replica that packs old parts has besides.

    Attributes
    ----------
    packs
        Name and content of each pack.
    marks
        The old parts that are marked.
    reading
        The parts on which a reader has a lease.
    """

    packs: tuple[tuple[str, bytes], ...] = ()
    marks: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()


class Standing(NamedTuple):
    """A replica as its process and its disk know it.

    Attributes
    ----------
    name
        The replica's.
    pointer, queue
        The next entry that it pulls, and the entries that it has pulled and not executed.
    held, old
        The names of the parts on its disk: those that it has registered, and those that have left the table.
    files
        Its version log: name and content of each segment.
    packing
        What it has besides when it packs; None: it does not.  Then `old` has the parts in folders, copies of packed ones
        included.
    """

    name: str
    pointer: int = 0
    queue: tuple[int, ...] = ()
    held: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()
    packing: Packing | None = None


class _Shelf:
    """A store that has names and no files."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, {*names}
        self.packs = SimpleNamespace(names=tuple)

    def parts(self) -> tuple[str, ...]:
        return tuple(self.names)

    def has_part(self, name: str) -> bool:
        return name in self.names

    def part_path(self, name: str) -> Any:
        return SimpleNamespace(is_dir=lambda: name in self.names)

    def manifest(self, name: str) -> Any:
        # Asked for the size of an old part only, which counts as 0 bytes then.
        raise CorruptPart(f"part {name} has no files here")

    def remove_parts(self, names: Sequence[str]) -> None:
        self.names -= {*names}


class Desk:
    """The objects of one replica that have to do with the feed.

    Parameters
    ----------
    root
        An empty folder.
    standing
        The replica.
    log
        The entries of the table's log, ascending, those included that coordination does not have any more.
    first
        The lowest index that coordination still has.
    kept
        How much of the feed is kept.
    """

    def __init__(self, root: Path, standing: Standing, log: Sequence[Written], first: int, kept: Kept) -> None:
        self.root, self._standing, self._log, self._first, self._kept = root, standing, log, first, kept
        (root / FOLDER).mkdir()
        begins = sorted(int(name) for name, _ in standing.files)
        ends = dict(pairwise((*begins, standing.pointer)))
        for name, content in standing.files:
            path = root / FOLDER / name
            path.write_bytes(content)
            # The version log takes the time of a segment's file for that of its last entry when it forgets old ones.
            written = [each.written_ms for each in log if int(name) <= each.index < ends[int(name)]]
            at = (written[-1] if written else 0) / 1_000
            os.utime(path, (at, at))
        folders = (*standing.held, *standing.old)
        self._shelf = _Shelf(root, folders) if standing.packing is None else _stocked(root, folders, standing.packing)
        (root / "retired").mkdir()
        for name in standing.old if standing.packing is None else standing.packing.marks:
            (root / "retired" / name).touch()
            os.utime(root / "retired" / name, (0, 0))
        # Without a lifetime of their own, old parts stay for the feed and its consumers alone.
        self.old_parts = OldParts(cast("Any", self._shelf), 0.0)
        self.old_parts.consumers = kept.consumers
        if standing.packing is not None:
            self._resume(standing.packing)
        self.progress = Progress(Replica(TABLE, standing.name))
        here = place_at(log, standing.pointer)
        queue = tuple(each for each in folded(log) if each.index in standing.queue)
        self.progress.take_over(
            Loaded(here, queue, PartSet.of(map(parse_part, standing.held))), self.progress.begin_load()
        )
        self.versions = Versions(
            self.progress,
            self.old_parts,
            root,
            self._look_up,
            _QUIET,
            lambda: None if kept.since is None else time.time() - kept.since,
        )

    def _resume(self, packing: Packing) -> None:
        """Let the process go on: it knows the sizes of old parts, and a reader has a lease."""
        self.old_parts.read_sizes()
        if packing.reading:
            self.old_parts.lease(packing.reading, 60.0)
            self.old_parts.unpack(packing.reading)

    def _look_up(self, procedure: fx.Procedure[Any]) -> Any:
        """Read the table's log, as far as coordination has it."""
        there = {layout.log_entry(TABLE, each.index): each for each in self._log if each.index >= self._first}

        def perform(effect: object) -> fx.Many:
            assert isinstance(effect, fx.GetMany), effect
            found = (there.get(path) for path in effect.paths)
            return fx.Many(
                tuple(
                    None if each is None else fx.Node(encode_entry(each.entry), fx.Version(0), each.written_ms)
                    for each in found
                )
            )

        return run(procedure, perform)

    @cached_property
    def _parts(self) -> LocalParts:
        return LocalParts(cast("Any", self._shelf), self.progress, self.old_parts, self.versions)

    @cached_property
    def feeds(self) -> Feeds:
        """What answers readers."""
        feed = "" if self._kept.since is None else "1d"
        holds = bool(self._kept.consumers.holding)
        return Feeds(self._standing.name, self._parts, feed, lambda: None, lambda: holds)

    def pull(self, end: int) -> None:
        """Note what a pull up to an index has brought."""
        place = place_at(self._log, end)
        items = tuple(each for each in folded(self._log) if self._standing.pointer <= each.index < end)
        # Before: what is appended from here on is followed in memory.
        self.versions.journal.read()
        self.versions.take_in(items, place, {each.index: each.written_ms for each in self._log})
        self.progress.pulled(place, items)
        followed = _known_by(self.versions.journal)
        read = _known_by(FeedJournal(VersionLog(self.root / FOLDER, TABLE.incarnation), lambda: None))
        if followed != read:
            raise ProcedureFailed(f"the journal in memory knows {followed}, and the disk {read}")

    def catch_up(self) -> None:
        """Note what was pulled and is not noted yet, as far as the log has it still."""
        self.versions.catch_up()

    def clear(self) -> None:
        """Remove the old parts, and forget the entries, that nothing keeps; as maintenance does it."""
        self.versions.catch_up()
        chosen = self.old_parts.choose_due()
        self.old_parts.remove_chosen(chosen, NO_TAGS, self._kept.consumers, self.versions.forget_old)

    def pack(self) -> None:
        """Pack old parts, and remove the copies that no reader needs; as maintenance does it."""
        self.old_parts.pack(0.0)
        self.old_parts.remove_copies()

    def lease(self, start: int) -> None:
        """Let a reader begin at an index."""
        parts = self.feeds.take(LogIndex(start), None, 60.0).parts
        assert self._standing.packing is not None
        self._standing = self._standing._replace(packing=self._standing.packing._replace(reading=tuple(sorted(parts))))

    def lacks(self, parts: Iterable[str]) -> tuple[str, ...]:
        """Return those of some parts that have no folder."""
        return tuple(part for part in parts if not self._shelf.has_part(part))

    def fetch(self, others: Iterable[tuple[str, frozenset[str]]]) -> None:
        """Fetch parts that only the feed needs; `others`: each other replica, and the names of the parts on its disk."""
        disks = dict(others)

        def manifest_of(other: str, part: str) -> Any:
            return SimpleNamespace(content=part) if part in disks[other] else None

        def fetch(wanted: Sequence[fx.FetchPart]) -> list[fx.Fetched]:
            self._shelf.names |= {each.part for each in wanted}
            return [fx.Fetched(each.part) for each in wanted]

        context = SimpleNamespace(
            definitions=SimpleNamespace(
                current=SimpleNamespace(is_shared=False, feed="1d" if self._kept.since is not None else "")
            ),
            performer=SimpleNamespace(look_up=lambda _: [Replica(TABLE, name) for name in sorted(disks)]),
            replica=self.progress.replica,
            log=_QUIET,
        )
        exchange = SimpleNamespace(manifest_of=manifest_of, fetch=fetch)
        FeedParts(cast("Any", context), self._parts, cast("Any", exchange)).look()

    @property
    def standing(self) -> Standing:
        """The replica after what was done: the old parts and the version log may be others."""
        files = sorted((path.name, path.read_bytes()) for path in (self.root / FOLDER).iterdir())
        packing = self._standing.packing
        if packing is None:
            old = tuple(sorted(self.old_parts.names() & self._shelf.names))
            return self._standing._replace(old=old, files=tuple(files))
        packs = self.root / "packs"
        here = packing._replace(
            packs=tuple((path.name, path.read_bytes()) for path in sorted(packs.glob("*"))),
            marks=tuple(sorted(path.name for path in (self.root / "retired").iterdir())),
        )
        old = tuple(sorted({path.name for path in (self.root / "parts").iterdir()}.difference(self._standing.held)))
        return self._standing._replace(old=old, files=tuple(files), packing=here)


def _stocked(root: Path, parts: Sequence[str], packing: Packing) -> Any:
    """Return the store that ships, with some parts in folders, and with packs."""
    store = PartStore(root)
    for name in parts:
        folder = store.part_path(name)
        folder.mkdir()
        (folder / data_file(0)).write_bytes(name.encode())
        (folder / MANIFEST_FILE).write_bytes(_manifest_of(name))
    for pack, content in packing.packs:
        store.packs.root.mkdir(exist_ok=True)
        store.packs.path(pack).write_bytes(content)
    return store


@lru_cache(1 << 10)
def _manifest_of(name: str) -> bytes:
    data = name.encode()
    file = FileEntry(data_file(0), 1, len(data), xxhash.xxh3_128_hexdigest(data))
    manifest = PartManifest(
        partition=parse_part(name).partition,
        rows=1,
        bytes=len(data),
        schema_version=1,
        files=(file,),
        content_hash=xxhash.xxh3_128_hexdigest(data),
    )
    return manifest.encode()


def _known_by(journal: FeedJournal) -> tuple[int, int, tuple[str, ...]]:
    """Return from where to where a journal knows the entries, and the parts that they need."""
    journal.read()
    return journal.first, journal.end, tuple(journal.needed(LogIndex(0)))


@contextmanager
def desk_of(standing: Standing, log: Sequence[Written], first: int, kept: Kept) -> Iterator[Desk]:
    """Set up the code of a replica in a folder that is removed afterwards; parameters as of `Desk`."""
    memory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="replitree-feed-", dir=memory) as root:
        yield Desk(Path(root), standing, log, first, kept)


def folded(log: Sequence[Written]) -> tuple[Queued, ...]:
    """Return what each entry of a log changes."""
    return tuple(queued for queued, _, _ in _fold(tuple(log)))


def place_at(log: Sequence[Written], index: int) -> Place:
    """Return where a replica stands that pulls an index next."""
    parts, opened = PartSet(), tuple[LogIndex, ...]()
    for queued, after, open_then in _fold(tuple(log)):
        if queued.index < index:
            parts, opened = after, open_then
    # Every pull moves the pointer once, so its version grows with the index.
    return Place(Pointer(LogIndex(index), fx.Version(index), opened), parts)


def end_of(log: Sequence[Written]) -> LogIndex:
    """Return the index that follows a log."""
    return next_index(log[-1].index, log[-1].entry) if log else LogIndex(0)


_Step: TypeAlias = tuple[Queued, PartSet, tuple[LogIndex, ...]]


@lru_cache(1 << 14)
def _fold(log: tuple[Written, ...]) -> tuple[_Step, ...]:
    """Return each entry with what it changes, the parts and the open inserts after it."""
    parts, opened, found = PartSet(), tuple[LogIndex, ...](), list[_Step]()
    for each in log:
        parts, change = apply(parts, each.index, each.entry, opened=opened)
        opened = open_after(opened, each.index, each.entry)
        found.append((Queued(each.index, each.entry, change), parts, opened))
    return tuple(found)
