"""A blob group, and the file that says where its members are.

::

    <folder>/group.json     the name, the write quorum, and of each member where it is (`places`) and which one it must be
    <folder>/<number>       a member's directory, unless it is elsewhere: on a disk of its own, on another host, on a store

`make_group` makes all of it; `open_group` opens the group, and says of each member why it does not take part, if so.  A group
of directories has a file of format 1, any other one of format 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
from typing_extensions import override

from replitree import private
from replitree.decoding import json_decoder
from replitree.errors import BadInput, UnsupportedFormat
from replitree.storage.files.durable import store_errors, sync_folder, write_file
from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import GroupId, TabletId
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.group import PATIENCE_S
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.opening import OpenMembers
from replitree.tablet.members.places import MemberPlace, Wanted, asked, close_member, make_place, open_place

NAME = "group.json"
FORMAT = 2
OF_DIRECTORIES = 1


class GroupFile(msgspec.Struct, frozen=True):
    """The content of the file."""

    format: int
    group: GroupId
    write: int
    members: tuple[MemberPlace, ...]

    @property
    def quorum(self) -> Quorum:
        """The numbers of the group."""
        return Quorum(self.group, len(self.members), self.write)

    @property
    def is_on_stores(self) -> bool:
        """Whether all members are on object stores."""
        return all(each.store for each in self.members)

    @property
    def incarnations(self) -> tuple[str, ...]:
        """Which directories the members must be."""
        return tuple(each.incarnation for each in self.members)

    def with_member(self, number: int, place: MemberPlace) -> GroupFile:
        """Return the file with another member in the place of one."""
        members = (*self.members[:number], place, *self.members[number + 1 :])
        return GroupFile(_format_of(members), self.group, self.write, members)


class OpenGroup(OpenMembers):
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
    """

    def __init__(self, folder: Path, file: GroupFile, patience_s: float, read_min: int = 0) -> None:
        self.group = file.group
        members = members_of(folder, file, probes=True, patience_s=patience_s)
        self._folder, self._file = folder, file
        try:
            super().__init__(replace(file.quorum, read_min=read_min), members, file.incarnations, asked, patience_s)
        except BaseException:
            self._close_members()
            raise

    @override
    def readmit(self) -> bool:
        """Let members take part that were away and are back, or were made anew; tell whether there were any."""
        # The file is read only while a member is away: a replaced one is named there.
        if any(self.obstacles):
            with suppress(BadInput, UnsupportedFormat):
                file = read_group(self._folder)
                places = zip(file.members, self._file.members, strict=True) if file.quorum == self._file.quorum else ()
                for number, (place, known) in enumerate(places):
                    if place != known and self.obstacles[number] is not None:
                        old = self.exchange(number, open_place(self._folder, place, probes=True), place.incarnation)
                        self._file = self._file.with_member(number, place)
                        close_member(old)
        return super().readmit()

    def fence_seen(self, tablet: TabletId) -> Fence | None:
        """Return a tablet's fence as a store, the only member, had it a moment ago; None: ask for it."""
        seen = getattr(self._members[0], "fence_seen", None) if len(self._members) == 1 else None
        fence: Fence | None = None if seen is None else seen(tablet)
        return fence

    def close(self) -> None:
        """Let what was asked be answered, but by those that hang; end the threads and close the connections."""
        self.groups.close()
        self._close_members()

    def _close_members(self) -> None:
        for member in self._members:
            close_member(member)
        self._asking.close()


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
        private.make_folder(folder, parents=True, exist_ok=True)
    wanted = members or [folder / str(each) for each in range(count)]
    made = tuple(make_place(each, folder, name, number) for number, each in enumerate(wanted))
    file = GroupFile(_format_of(made), GroupId(name), len(made) // 2 + 1, made)
    put_group(folder, file)
    return file


def _format_of(members: Sequence[MemberPlace]) -> int:
    return OF_DIRECTORIES if all(each.folder for each in members) else FORMAT


def put_group(folder: Path, file: GroupFile) -> None:
    """Put a group's file into a folder, at once and durably, whether there was one or not.

    Raises
    ------
    StoreError
        The disk refused.
    """
    path, fresh = folder / NAME, folder / f"{NAME}.new"
    with store_errors(f"write {path}"):
        # Of a crash before its rename.
        fresh.unlink(missing_ok=True)
        write_file(fresh, msgspec.json.format(msgspec.json.encode(file)))
        fresh.replace(path)
        sync_folder(folder)


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
        file = json_decoder(GroupFile).decode(path.read_bytes())
    except (msgspec.MsgspecError, OSError) as error:
        raise BadInput(f"{path} can't be read: {error}") from error
    if file.format > FORMAT:
        raise UnsupportedFormat(f"{path} has format {file.format}, this version knows {FORMAT}: upgrade it")
    # Two write quorums that do not meet could store two contents under one name.
    if not 0 <= len(file.members) - file.write < file.write:
        raise BadInput(f"{path} is damaged: {file.write} of {len(file.members)} members can't be a majority")
    return file


def members_of(
    folder: Path, file: GroupFile, *, probes: bool = False, patience_s: float = PATIENCE_S
) -> tuple[BlobMember, ...]:
    """Return the members of a group, whether they are there or not; `probes`, `patience_s`: as of `open_place`."""
    return tuple(open_place(folder, place, probes=probes, patience_s=patience_s) for place in file.members)


def open_group(folder: Path, patience_s: float = PATIENCE_S, read_min: int = 0) -> OpenGroup:
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
