"""Members of blob groups in memory and in directories, and what can happen to them: the same faults for all kinds."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from replitree.storage.files.durable import write_all
from replitree.tablet.group.effects import Fence, GroupEffect, Procedure
from replitree.tablet.group.ids import BlobId, Channel, Cookie, Generation, GenStep, GroupId, Step, TabletId
from replitree.tablet.group.member import Holdings, with_blobs
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tablet.members.frames import OVERHEAD_BYTES, frame_of
from replitree.tablet.members.group import BlobGroups
from replitree.tablet.members.member import BlobMember, MemoryMember
from replitree.tablet.members.opening import OpenMembers
from replitree.tablet.members.places import asked

TABLET = TabletId(7)
GROUP = GroupId("g")


def blob_id(generation: int, step: int, channel: int = 0) -> BlobId:
    """Name a blob."""
    return BlobId(TABLET, Channel(channel), Generation(generation), Step(step), Cookie(0))


def at(generation: int, step: int) -> GenStep:
    """Name a place."""
    return GenStep(Generation(generation), Step(step))


def fence(generation: int, issuer: str = "a") -> Fence:
    """Make a fence."""
    return Fence(Generation(generation), issuer)


class Provider(Protocol):
    """Three members, numbered from 0, and what can happen to them."""

    incarnations: tuple[str, ...]
    is_atomic: bool
    """Whether a member that refuses blobs has none of them."""

    def close(self) -> None:
        """End what it has started."""

    def member(self, number: int) -> BlobMember:
        """Open a member as a new process would."""

    def take_away(self, number: int) -> None:
        """Unplug its disk."""

    def bring_back(self, number: int) -> None:
        """Plug it in again."""

    def save(self, number: int) -> Callable[[], None]:
        """Make a copy; what is returned puts the copy in the member's place."""

    def replace_by_empty(self, number: int) -> None:
        """Put an empty disk in its place."""

    def rot(self, number: int, blob: BlobId) -> None:
        """Change a bit of a blob that it has."""

    def fill(self, number: int) -> None:
        """Let it take no more bytes."""

    def make_room(self, number: int) -> None:
        """Let it take bytes again."""


class _Local:
    """What members of this process have in common."""

    is_atomic = True

    def close(self) -> None:
        """Nothing was started."""


class InMemory(_Local):
    """Members in memory."""

    def __init__(self) -> None:
        self.incarnations: tuple[str, ...] = ("m0", "m1", "m2")
        self._members = [MemoryMember(name) for name in self.incarnations]

    def member(self, number: int) -> BlobMember:
        return self._members[number]

    def take_away(self, number: int) -> None:
        self._members[number].trouble = "it is not there"

    def bring_back(self, number: int) -> None:
        self._members[number].trouble = None

    def save(self, number: int) -> Callable[[], None]:
        member = self._members[number]
        kept = member.held, member.session, member.seen

        def put_back() -> None:
            member.held, member.session, member.seen = kept

        return put_back

    def replace_by_empty(self, number: int) -> None:
        member = self._members[number]
        member.incarnation, member.held, member.session, member.seen = "another", Holdings(), 0, ()

    def rot(self, number: int, blob: BlobId) -> None:
        member = self._members[number]
        assert blob in member.held.names
        member.held = with_blobs(member.held, {blob: None})

    def fill(self, number: int) -> None:
        self._members[number].is_full = True

    def make_room(self, number: int) -> None:
        self._members[number].is_full = False


class InDirectories(_Local):
    """Members in directories."""

    def __init__(self, root: Path, patch: Callable[[str, object], None]) -> None:
        self._root = root
        self._patch = patch
        self._full: set[str] = set()
        self.incarnations: tuple[str, ...] = ("d0", "d1", "d2")
        for number, incarnation in enumerate(self.incarnations):
            make_blob_directory(self._folder(number), GROUP, number, incarnation)
        self._limit_writing()

    def _folder(self, number: int) -> Path:
        return self._root / str(number)

    def _limit_writing(self) -> None:
        """A full disk: its files take half of what is written, then nothing."""

        def write(descriptor: int, data: bytes | memoryview) -> None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if any(path.startswith(f"{self._root}/{number}/") for number in self._full):
                write_all(descriptor, memoryview(data)[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            write_all(descriptor, data)

        def write_parts(descriptor: int, parts: Sequence[bytes], offset: int) -> int:
            os.lseek(descriptor, offset, os.SEEK_SET)
            write(descriptor, b"".join(parts))
            return sum(map(len, parts))

        self._patch("replitree.tablet.members.segments.write_parts", write_parts)
        self._patch("replitree.storage.files.durable.write_all", write)

    def member(self, number: int) -> BlobMember:
        return BlobDirectory(self._folder(number))

    def take_away(self, number: int) -> None:
        self._folder(number).rename(self._root / f"away-{number}")

    def bring_back(self, number: int) -> None:
        (self._root / f"away-{number}").rename(self._folder(number))

    def save(self, number: int) -> Callable[[], None]:
        copy = self._root / f"copy-{number}"
        shutil.copytree(self._folder(number), copy)

        def put_back() -> None:
            shutil.rmtree(self._folder(number))
            copy.rename(self._folder(number))

        return put_back

    def replace_by_empty(self, number: int) -> None:
        shutil.rmtree(self._folder(number))
        make_blob_directory(self._folder(number), GROUP, number, "another")

    def rot(self, number: int, blob: BlobId) -> None:
        """Change the first bit of the payload; an empty payload's checksum instead."""
        for path in self._folder(number).glob("blobs/*/*/*.seg"):
            data = bytearray(path.read_bytes())
            position = data.find(frame_of(blob, b"")[:24])
            if position >= 0:
                data[position + OVERHEAD_BYTES - 8] ^= 1
                path.write_bytes(data)
                return
        raise AssertionError(f"{blob} is not on member {number}")

    def fill(self, number: int) -> None:
        self._full.add(str(number))

    def make_room(self, number: int) -> None:
        self._full.discard(str(number))


QUORUM = Quorum(GROUP, 3, 2)


def open_group(provider: Provider, quorum: Quorum = QUORUM) -> BlobGroups:
    """Open the group as a new process would; the caller closes it."""
    return open_all(provider, quorum).groups


def open_all(provider: Provider, quorum: Quorum = QUORUM) -> OpenMembers:
    """Open the group as a new process would; the caller closes its `groups`."""
    members = [provider.member(number) for number in range(3)]
    return OpenMembers(quorum, members, provider.incarnations, asked, patience_s=60)


def do(groups: BlobGroups, effect: GroupEffect) -> Any:
    """Perform one effect."""

    def procedure() -> Procedure[Any]:
        return (yield effect)

    return groups.run(procedure())
