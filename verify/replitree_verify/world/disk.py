"""A replica's disk as a value: staging folders and published parts, without bytes.

What holds, as for the real disk (`storage.disk.store`), each of whose steps is synced when it returns:

* A staging folder is *whole*, or *torn* when the process died while it was written.
* A published part is whole: it got its name by one rename.
* `publish` may be repeated; what is staged replaces what is published under the name.

The content of a part is told by its content hash, which the models build from the rows that are in it (`content_of`), so
that a row that is there twice, or that a mutation missed, can be seen.  A row is the number of its request, followed by the
mutations that it went through: ``all:1+3~x`` are the rows of request 1, and those of request 3 after mutation x.  Behind
``?`` stands who made different bytes of the same rows (another version, another library).

A command ``x`` changes every row.  One with a condition, ``x@3,~y``, changes the rows of request 3, and those that mutation y
has changed before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from replitree.protocol.core.effects import RequestId, Staged, StagedPart, StagedResult, StagingId

ROWS = 100
"""Rows of one request in one partition; all requests of the models are alike."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A staging folder; a torn one can't be published.

    `parts` are (partition, content hash), ascending; of a rewrite a result stands under its source's name.
    """

    staging: StagingId
    parts: tuple[tuple[str, str], ...]
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """Staging folders, published parts (name, content hash), the contents that are kept aside; all in ascending order.

    `old`: the published parts that are marked as having left the table, in models in which these stay (`process.tags`).
    """

    folders: tuple[Folder, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()
    aside: tuple[str, ...] = ()
    old: tuple[str, ...] = ()

    def folder(self, staging: StagingId) -> Folder | None:
        """Return a staging folder."""
        return next((folder for folder in self.folders if folder.staging == staging), None)

    def content(self, part: str) -> str | None:
        """Return the content hash of a published part."""
        return next((content for name, content in self.parts if name == part), None)

    def with_folder(self, folder: Folder) -> Disk:
        """Return the disk with a staging folder, which replaces one of the same id."""
        others = tuple(each for each in self.folders if each.staging != folder.staging)
        # Sorted, as everything on a disk: two disks with the same files are one value, however they came to them.
        return replace(self, folders=tuple(sorted((*others, folder), key=lambda each: each.staging)))

    def without_folder(self, staging: StagingId) -> Disk:
        """Return the disk without a staging folder."""
        return replace(self, folders=tuple(each for each in self.folders if each.staging != staging))

    def with_part(self, name: str, content: str) -> Disk:
        """Return the disk with a published part."""
        others = tuple(each for each in self.parts if each[0] != name)
        old = tuple(each for each in self.old if each != name) if self.old else ()
        return replace(self, parts=tuple(sorted((*others, (name, content)))), old=old)

    def without_parts(self, *names: str) -> Disk:
        """Return the disk without some published parts."""
        if not names:
            return self
        left = tuple(each for each in self.old if each not in names) if self.old else ()
        return replace(self, parts=tuple(each for each in self.parts if each[0] not in names), old=left)

    def retiring(self, gone: tuple[str, ...], shown: tuple[str, ...]) -> Disk:
        """Return the disk with marks on parts that have left the table, and without those on parts that it has."""
        here = {name for name, _ in self.parts}
        return replace(self, old=tuple(sorted((here.intersection(gone) | {*self.old}).difference(shown))))

    def keeping_aside(self, names: tuple[str, ...]) -> Disk:
        """Return the disk with copies of published parts kept aside, as far as they are there."""
        # By content: `KEPT` asks for the rows, and a part that is kept aside has no name in the table any more.
        contents = {content for name, content in self.parts if name in names}
        return replace(self, aside=tuple(sorted({*self.aside, *contents})))

    def publish(self, staging: StagingId, names: tuple[tuple[str, str], ...]) -> tuple[Disk, tuple[str, ...]]:
        """Rename staged parts to their names.

        Returns
        -------
        tuple
            The disk after it, and the names of which neither the staged nor the published files are there.
        """
        disk, missing = self, []
        for partition, name in names:
            renamed = disk.rename(staging, partition, name)
            if renamed is None:
                missing.append(name)
            else:
                disk = renamed
        # With something missing the folder stays: the procedure fetches, and the sweep of the next start removes the rest.
        # It stays, too, with the parts of other partitions: a drop has removed them, and the procedure removes the folder.
        folder, named = disk.folder(staging), {partition for partition, _ in names}
        has_others = folder is not None and not named.issuperset(dict(folder.parts))
        return (disk if missing or has_others else disk.without_folder(staging)), tuple(missing)

    def rename(self, staging: StagingId, partition: str, name: str) -> Disk | None:
        """Give one staged part its name; None when neither the staged nor the published files are there."""
        folder = self.folder(staging)
        content = None if folder is None or folder.torn else dict(folder.parts).get(partition)
        if folder is None or content is None:  # renamed before: a publish may be done again
            return self if self.content(name) is not None else None
        left = replace(folder, parts=tuple(each for each in folder.parts if each[0] != partition))
        # What is staged replaces what was published under the name: so does a rename.
        return self.with_folder(left).with_part(name, content)


def content_of(partition: str, requests: Iterable[RequestId | str]) -> str:
    """Return the content hash of some rows in one partition.

    >>> content_of("all", (RequestId(1), RequestId(3)))
    'all:1+3'
    """
    return f"{partition}:{'+'.join(str(request) for request in requests)}"


def rows_in(content: str) -> tuple[str, ...]:
    """Return the rows of a part, ascending.

    >>> rows_in("all:3~x+1?r2")
    ('1', '3~x')
    """
    # What stands after `?` says who made other bytes of the same rows.
    rows = content.partition("?")[0].partition(":")[2]
    return tuple(sorted(rows.split("+"))) if rows else ()


def requests_in(content: str) -> tuple[RequestId, ...]:
    """Return the requests whose rows make up a part.

    >>> requests_in("all:1+3~x")
    (1, 3)
    """
    return tuple(RequestId(int(row.partition("~")[0])) for row in rows_in(content))


def merged_content(partition: str, contents: Iterable[str]) -> str:
    """Return the content of the rows of several parts together.

    >>> merged_content("all", ("all:3", "all:1~x?r1"))
    'all:1~x+3'
    """
    return content_of(partition, sorted(row for content in contents for row in rows_in(content)))


def mutated_content(partition: str, content: str, command: str) -> str:
    """Return the content of a part after a mutation.

    >>> mutated_content("all", "all:1+3~x", "y")
    'all:1~y+3~x~y'
    >>> mutated_content("all", "all:1+3~x", "y@~x")
    'all:1+3~x~y'
    """
    name = command.partition("@")[0]
    return content_of(partition, (f"{row}~{name}" if is_covered(row, command) else row for row in rows_in(content)))


def is_covered(row: str, command: str) -> bool:
    """Return whether the condition of a mutation's command covers a row.

    >>> is_covered("3~y", "x@1,~y"), is_covered("3", "x@1,~y"), is_covered("3", "x")
    (True, False, True)
    """
    _, at, condition = command.partition("@")
    request, *mutations = row.split("~")
    return not at or any(
        each.removeprefix("~") in mutations if each.startswith("~") else each == request
        for each in condition.split(",")
    )


def staged_parts(partitions: tuple[str, ...], requests: tuple[RequestId, ...]) -> tuple[StagedPart, ...]:
    """Return what staging the rows of `requests` makes: one part per partition."""
    rows = ROWS * len(requests)
    return tuple(StagedPart(partition, rows, rows, content_of(partition, requests)) for partition in partitions)


def staged_rewrite(results: Iterable[tuple[str, str]], inserts: Iterable[tuple[str, str]]) -> Staged:
    """Return what staging a rewrite makes: results by source, and new parts by partition, of these contents."""

    def rows(content: str) -> int:
        return ROWS * len(rows_in(content))

    parts = (StagedPart(partition, rows(each), rows(each), each) for partition, each in inserts)
    return Staged(
        tuple(parts), tuple(StagedResult(source, rows(each), rows(each), each) for source, each in sorted(results))
    )
