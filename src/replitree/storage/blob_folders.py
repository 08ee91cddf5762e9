"""A blob group of directories on one machine, and the file that says which these are.

::

    <folder>/group.json     the name, the write quorum, and of each member its directory and which one it must be
    <folder>/<number>       a member's directory, unless it lies elsewhere, on a disk of its own

`make_group` makes both; `open_group` opens the group, and says of each member why it does not take part, if so.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from replitree.errors import BadInput, StoreError, UnsupportedFormat
from replitree.storage.blob_directory import BlobDirectory, make_blob_directory
from replitree.storage.blob_group import BlobGroups, MemberThread
from replitree.storage.blob_member import obstacles_of, open_members
from replitree.storage.durable import store_errors, sync_folder, write_file
from replitree.tablet.ids import GroupId
from replitree.tablet.quorum import Quorum

NAME = "group.json"
FORMAT = 1


class MemberFolder(msgspec.Struct, frozen=True):
    """A member: its directory, relative to the file or absolute, and its incarnation."""

    folder: str
    incarnation: str


class GroupFile(msgspec.Struct, frozen=True):
    """What is in the file."""

    format: int
    group: GroupId
    write: int
    members: tuple[MemberFolder, ...]

    @property
    def quorum(self) -> Quorum:
        """The numbers of the group."""
        return Quorum(self.group, len(self.members), self.write)


class OpenGroup:
    """A group that is open.

    Parameters
    ----------
    folder, file
        Where its file is, and what is in it.
    patience_s
        How long a silent member is waited for, in seconds.

    Attributes
    ----------
    group
        Its name.
    groups
        Runs procedures on it.
    obstacles
        For each member None if it takes part, else why not.
    """

    def __init__(self, folder: Path, file: GroupFile, patience_s: float) -> None:
        self._file = file
        self._members = directories_of(folder, file)
        self.group = file.group
        self.obstacles = self._admitted()
        self._threads = [MemberThread(*each) for each in zip(self._members, self.obstacles, strict=True)]
        self.groups = BlobGroups({file.group: (file.quorum, self._threads)}, patience_s)

    def _admitted(self) -> tuple[str | None, ...]:
        return open_members(self._file.quorum, self._members, [each.incarnation for each in self._file.members])

    def readmit(self) -> bool:
        """Let members take part that were away and are back; tell whether there were any."""
        before = self.obstacles
        if not any(before):
            return False
        standings = [member.standing() for member in self._members]
        looked = obstacles_of(standings, [each.incarnation for each in self._file.members])
        if looked.count(None) <= before.count(None):
            return False
        try:
            self.obstacles = self._admitted()
        except StoreError:
            return False  # those that take part go on
        for thread, obstacle in zip(self._threads, self.obstacles, strict=True):
            thread.set_obstacle(obstacle)
        return self.obstacles.count(None) > before.count(None)


def make_group(folder: Path, name: str = "tablets", members: Sequence[Path] = (), count: int = 3) -> GroupFile:
    """Make a new group.

    Parameters
    ----------
    folder
        Where its file is to be; made if it is not there.
    name
        Of the group.
    members
        A directory for each member, such as one on each disk; none: below `folder`.
    count
        How many, when `members` does not say.

    Raises
    ------
    BadInput
        There is a group already.
    StoreError
        A disk refused.
    """
    path = folder / NAME
    if path.exists():
        raise BadInput(f"there is a group in {folder} already")
    with store_errors(f"make {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    made = list[MemberFolder]()
    for number, place in enumerate(members or [folder / str(each) for each in range(count)]):
        incarnation = secrets.token_hex(16)
        make_blob_directory(place, name, number, incarnation)
        written = place.relative_to(folder) if place.is_relative_to(folder) else place.absolute()
        made.append(MemberFolder(str(written), incarnation))
    file = GroupFile(FORMAT, GroupId(name), len(made) // 2 + 1, tuple(made))
    with store_errors(f"write {path}"):
        write_file(path, msgspec.json.format(msgspec.json.encode(file)))
        sync_folder(folder)
    return file


def read_group(folder: Path) -> GroupFile:
    """Read the file of a group.

    Raises
    ------
    BadInput
        There is none, or it is not one.
    UnsupportedFormat
        A newer version wrote it.
    """
    path = folder / NAME
    if not path.is_file():
        raise BadInput(f"there is no {path}: make a group with `replitree tablet make {folder}`")
    try:
        file = msgspec.json.decode(path.read_bytes(), type=GroupFile)
    except (msgspec.MsgspecError, OSError) as error:
        raise BadInput(f"{path} can't be read: {error}") from error
    if file.format > FORMAT:
        raise UnsupportedFormat(f"{path} has format {file.format}, this version knows {FORMAT}: upgrade it")
    return file


def directories_of(folder: Path, file: GroupFile) -> tuple[BlobDirectory, ...]:
    """Return the members of a group, whether they are there or not."""
    return tuple(BlobDirectory(folder / member.folder) for member in file.members)


def open_group(folder: Path, patience_s: float = 5.0) -> OpenGroup:
    """Open a group.

    Parameters
    ----------
    folder
        Where its file is.
    patience_s
        How long a silent member is waited for, in seconds.

    Raises
    ------
    BadInput, UnsupportedFormat
        As of `read_group`.
    StoreError
        Too few members can take part.
    """
    return OpenGroup(folder, read_group(folder), patience_s)
