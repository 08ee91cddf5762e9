"""A blob group, and the file that says where its members are.

::

    <folder>/group.json     the name, the write quorum, and of each member where it is (`blob_places`) and which one it must be
    <folder>/<number>       a member's directory, unless it is elsewhere: on a disk of its own, on another host, on a store

`make_group` makes all of it; `open_group` opens the group, and says of each member why it does not take part, if so.  A group
of directories has a file of format 1, any other one of format 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from replitree.errors import BadInput, StoreError, UnsupportedFormat
from replitree.storage.blob_group import BlobGroups
from replitree.storage.blob_member import BlobMember, obstacles_of, open_members
from replitree.storage.blob_places import MemberPlace, Wanted, asked, close_member, make_place, open_place
from replitree.storage.durable import store_errors, sync_folder, write_file
from replitree.tablet.ids import GroupId
from replitree.tablet.quorum import Quorum

NAME = "group.json"
FORMAT = 2
OF_DIRECTORIES = 1


class GroupFile(msgspec.Struct, frozen=True):
    """What is in the file."""

    format: int
    group: GroupId
    write: int
    members: tuple[MemberPlace, ...]

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
    read_min
        As of `Quorum`.

    Attributes
    ----------
    group
        Its name.
    groups
        Runs procedures on it.
    obstacles
        For each member None if it takes part, else why not.
    """

    def __init__(self, folder: Path, file: GroupFile, patience_s: float, read_min: int = 0) -> None:
        self._file = file
        self._members = members_of(folder, file, probes=True)
        self.group = file.group
        self.obstacles = self._admitted()
        self._asked = [asked(*each) for each in zip(self._members, self.obstacles, strict=True)]
        self.groups = BlobGroups({file.group: (replace(file.quorum, read_min=read_min), self._asked)}, patience_s)

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
        for each, obstacle in zip(self._asked, self.obstacles, strict=True):
            each.set_obstacle(obstacle)
        return self.obstacles.count(None) > before.count(None)

    def close(self) -> None:
        """Let what was asked be answered, then end the threads and close the connections."""
        self.groups.close()
        for member in self._members:
            close_member(member)


def make_group(folder: Path, name: str = "tablets", members: Sequence[Wanted] = (), count: int = 3) -> GroupFile:
    """Make a new group.

    Parameters
    ----------
    folder
        Where its file is to be; made if it is not there.
    name
        Of the group.
    members
        A directory for each member, such as one on each disk, or another place; none: directories below `folder`.
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
    wanted = members or [folder / str(each) for each in range(count)]
    made = tuple(make_place(each, folder, name, number) for number, each in enumerate(wanted))
    version = OF_DIRECTORIES if all(each.folder for each in made) else FORMAT
    file = GroupFile(version, GroupId(name), len(made) // 2 + 1, made)
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


def members_of(folder: Path, file: GroupFile, *, probes: bool = False) -> tuple[BlobMember, ...]:
    """Return the members of a group, whether they are there or not; `probes`: as of `open_place`."""
    return tuple(open_place(folder, place, probes=probes) for place in file.members)


def open_group(folder: Path, patience_s: float = 5.0, read_min: int = 0) -> OpenGroup:
    """Open a group.

    Parameters
    ----------
    folder
        Where its file is.
    patience_s
        How long a silent member is waited for, in seconds.
    read_min
        How many members must answer a read, although fewer could have told.

    Raises
    ------
    BadInput, UnsupportedFormat
        As of `read_group`.
    StoreError
        Too few members can take part.
    """
    return OpenGroup(folder, read_group(folder), patience_s, read_min)
