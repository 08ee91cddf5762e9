"""Damaged files that an error of Spark names: reported to the replica whose files they are, and whole again.

Files are verified before the JVM gets their paths; blocks of large files are compared as the JVM reads them
(`replitree.storage.parts.verified`).  When one is damaged or missing the query fails, and the error has the file's path.  The
replica of the part is asked to check it, sets it aside and fetches it again, into the same place.

`named_files` finds the files of frames in an error, `damaged_files` those that are the reason of it, and `await_whole` returns
when all bytes of them are right again.  `replitree.spark.session.actions` calls these when an action fails.

Absent on purpose: files in a bucket.  What the JVM reads there has no path on this machine.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from replitree.client.read.part_cache import is_brought
from replitree.client.read.snapshot import SoundFile
from replitree.errors import CorruptPart, ReplitreeError
from replitree.storage.files.sums import sums_path
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.parts.part_folder import DamagedFile
from replitree.storage.parts.sums_files import has_sums
from replitree.storage.parts.verified import CheckedFile, is_whole_file

if TYPE_CHECKING:
    from replitree.client.read.snapshot import PartSource

FILES_MAX = 65_536
"""Files of which it is known whose part they are; each is noted by the frames that read it."""

SLASHES_MAX = 200
"""How many beginnings of a path are tried in a line."""

REPAIR_S_MAX = 30.0
"""How long a replica may take to have a damaged file whole again, in seconds; a large file has more."""

REPAIR_BYTES_PER_S = 32 << 20
"""At this rate the time grows with the file: a replica reads a part, sends it, and verifies it twice."""

REPORT_AGAIN_S = 5.0
"""A replica that has not yet made a part whole is asked again after so long, in seconds."""

LOOK_S = 0.05
"""Pause between two looks at a file, in seconds."""

_DAMAGE = ("ChecksumException", "CRC checksum verification failed")
_GONE = ("FileNotFoundException", "FILE_NOT_EXIST")
_NAME = re.compile(r"/data-(?:0|[1-9][0-9]{0,5})\.parquet")
_log = logging.getLogger("replitree.spark")


class NotRepaired(CorruptPart):
    """A damaged file is not whole again: its replica has no good copy yet, or will have none at this path."""


@dataclass(frozen=True, slots=True, eq=False)
class WatchedFile:
    """A data file that a frame of this process reads.

    Attributes
    ----------
    path
        As the JVM has it.
    part
        The part that it belongs to.
    source
        Knows the replica whose file it is.
    file
        What its manifest says; with `replace` only when it is a copy of this process.
    """

    path: Path
    part: str
    source: PartSource
    file: CheckedFile

    @property
    def is_whole(self) -> bool:
        """Whether the JVM can read it: every byte is right, and so are the block checksums beside it."""
        return is_whole_file(self.file) and has_sums(self.path, self.file.entry)

    @property
    def has_other_rows(self) -> bool:
        """Whether the part has come back in other files."""
        try:
            entries = read_manifest(self.path.parent).files
        except ReplitreeError:
            return False
        ours = self.file.entry
        return all((entry.name, entry.checksum) != (ours.name, ours.checksum) for entry in entries)

    def report(self) -> bool:
        """Report it to its replica.  False: the replica does not have the part any more."""
        _log.warning("%s is damaged: part %s is reported to its replica, which fetches it again", self.path, self.part)
        try:
            return self.source.report(self.part)
        except Exception as error:  # noqa: BLE001 - the connection may be closed; the caller has an error of its own to raise
            _log.warning("part %s was not reported: %s", self.part, error)
            return True

    def bring_again(self) -> None:
        """Bring a copy of this process again."""
        for path in (self.path, sums_path(self.path)):
            path.unlink(missing_ok=True)
        try:
            self.file.replaced(DamagedFile(f"{self.path} is damaged", self.path))
        except (ReplitreeError, FileNotFoundError) as error:
            raise NotRepaired(f"{self.path} is damaged, and can't be brought again: {error}") from error

    def stamp(self) -> tuple[int, ...]:
        """Return what changes when another file takes its place, or its checksums are written."""
        found: list[int] = []
        for path in (self.path, sums_path(self.path)):
            try:
                stat = path.stat()
            except OSError:
                continue
            found += [stat.st_ino, stat.st_size, stat.st_mtime_ns]
        return tuple(found)


_lock = threading.Lock()
_files: dict[str, WatchedFile] = {}


def note_files(source: PartSource, files: Sequence[SoundFile]) -> None:
    """Note which files a frame reads.

    Parameters
    ----------
    source
        Knows the replica whose files they are.
    files
        What the JVM gets.
    """
    with _lock:
        for path, part, file in files:
            replace = file.replace if is_brought(path) and not path.is_symlink() else None
            known = str(path)
            # Taken out first: the newest files are last, and the oldest ones are forgotten.
            _files.pop(known, None)
            _files[known] = WatchedFile(path, part, source, CheckedFile(path, file.entry, replace))
        for known in list(_files)[: max(0, len(_files) - FILES_MAX)]:
            del _files[known]


def is_damage(text: str) -> bool:
    """Tell whether Spark failed because bytes of a file do not have their checksum."""
    return any(sign in text for sign in _DAMAGE)


def named_files(text: str) -> tuple[WatchedFile, ...]:
    """Return the files of frames that an error of Spark names."""
    with _lock:
        found = dict.fromkeys(filter(None, map(_files.get, _paths(text))))
    return tuple(found)


def damaged_files(text: str, *, verify: bool = True) -> tuple[WatchedFile, ...]:
    """Return the files that an error names because they are, or were, damaged or missing; none: it has another reason.

    Parameters
    ----------
    text
        The message of the error and of its causes.
    verify
        Read the files that it names when its words do not tell.
    """
    files = named_files(text)
    if is_damage(text) or any(sign in text for sign in _GONE):
        return files
    return tuple(file for file in files if verify and not file.is_whole)


def await_whole(files: Sequence[WatchedFile]) -> None:
    """Report damaged files, and return when all of them are whole.

    Raises
    ------
    NotRepaired
        One is not, after `REPAIR_S_MAX` and what its bytes allow; or the replica has other files of these rows, or no longer
        has the part.
    """
    for file in files:
        if file.file.replace is not None and not file.is_whole:
            file.bring_again()
        begun = report_at = time.monotonic()
        end = begun + REPAIR_S_MAX + file.file.entry.bytes / REPAIR_BYTES_PER_S
        seen: tuple[int, ...] | None = None
        while True:
            now, stamp = time.monotonic(), file.stamp()
            # All bytes are read again only when the file may be another one by now.
            if stamp != seen:
                seen = stamp
                if file.is_whole:
                    break
                if file.has_other_rows:
                    raise NotRepaired(_other_files(file, "its replica has other files of the same rows by now"))
            if now >= report_at:
                report_at = now + REPORT_AGAIN_S
                if not file.report() and not file.path.exists():
                    raise NotRepaired(_other_files(file, "its replica does not have the part any more"))
            if now >= end:
                raise NotRepaired(
                    f"{file.path} is damaged, and its replica has no good copy of part {file.part} after {now - begun:.0f} s:"
                    " start the replicas that are not running, then run: replitree doctor"
                )
            time.sleep(LOOK_S)


def _other_files(file: WatchedFile, why: str) -> str:
    return f"{file.path} of part {file.part} was damaged, and {why}: make the frame again, with to_df or sql_views"


def _paths(text: str) -> Iterator[str]:
    """Yield what may be the path of a data file in a message, as it is and as in a URL; a path may have spaces and colons."""
    for line in dict.fromkeys(text.splitlines()):
        for name in _NAME.finditer(line):
            for begin in [at for at, character in enumerate(line[: name.end()]) if character == "/"][:SLASHES_MAX]:
                path = line[begin : name.end()]
                yield path
                yield unquote(path)


__all__ = ["NotRepaired", "WatchedFile", "await_whole", "damaged_files", "is_damage", "named_files", "note_files"]
