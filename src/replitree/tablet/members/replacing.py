"""`replitree tablet replace`: rebuild a member of a blob group from the others, by the procedure `tablet.group.replacing`.

The command first makes the new member's place, or takes one that an earlier run began.  A lock excludes other replacements of
members of the group.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from replitree.errors import BadInput
from replitree.procedures import run
from replitree.tablet.group.openings import AskEach
from replitree.tablet.group.replacing import NameIt, Replacement, make_anew
from replitree.tablet.members.asking import Asking
from replitree.tablet.members.folders import GroupFile, members_of, put_group, read_group
from replitree.tablet.members.group import BATCH_BYTES
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.places import MemberPlace, Wanted, close_member, make_place, open_place

PATIENCE_S = 60.0
"""How long a service is waited for, in seconds."""


@dataclass(frozen=True, slots=True)
class ReplacedMember:
    """The member that was made anew, and the blobs that were copied.

    Attributes
    ----------
    place
        Where the new member is.
    blobs, bytes
        What it got from the others.
    """

    place: MemberPlace
    blobs: int
    bytes: int


def replace_member(folder: Path, number: int, wanted: Wanted | None = None) -> ReplacedMember:
    """Make a member anew from the others.

    Parameters
    ----------
    folder
        Of the group's file.
    number
        Which member.
    wanted
        Where it is to be; by default where the old one was, of which nothing may be there any more.

    Raises
    ------
    BadInput
        There is no such member, or its place is taken.
    StoreError
        Too few of the others answer, or something is on none of them in one piece: nothing was lost, and it may be repeated.
    """
    with _alone(folder):
        file = read_group(folder)
        if not 0 <= number < len(file.members):
            raise BadInput(f"group {file.group} has members 0 to {len(file.members) - 1}")
        old = file.members[number]
        if wanted is None:
            wanted = folder / old.folder if old.folder else msgspec.structs.replace(old, incarnation="")
        place = make_place(wanted, folder, file.group, number, file.incarnations)
        members = members_of(folder, file, patience_s=PATIENCE_S)
        fresh = open_place(folder, place, probes=True, patience_s=PATIENCE_S)
        try:
            anew = Replacement(file.quorum, number, file.incarnations, place.incarnation, BATCH_BYTES)
            named = file.with_member(number, place)
            copied = run(make_anew(anew), partial(_perform, Asking(PATIENCE_S), folder, named, (*members, fresh)))
            return ReplacedMember(place, copied.blobs, copied.bytes)
        finally:
            for each in (*members, fresh):
                close_member(each)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Exclude other replacements of members of the same group."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"there is no group in {folder}: {error}") from error
    try:
        # On the folder itself: no file has to be made, and none is left.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BadInput(f"a member of the group in {folder} is being replaced already: wait for that") from None
    finally:
        os.close(descriptor)


def _perform(
    asking: Asking, folder: Path, named: GroupFile, members: Sequence[BlobMember], effect: AskEach | NameIt
) -> Any:
    """Perform an effect; `named`: the group's file when it names the new member."""
    return put_group(folder, named) if isinstance(effect, NameIt) else asking.each(members, effect)
