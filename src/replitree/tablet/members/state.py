"""The state of a member of a blob group besides its blobs: its incarnation, fences and barriers.

One small file of a directory, or one object of a store, replaced as a whole.

::

    "RTBS"  format (2 bytes)  MessagePack  XXH3-64 of all before (8)

A member without it, or with one that does not match its checksum, is not the one it was: it does not take part until
it was made anew from the others.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import xxhash

from replitree.decoding import msgpack_decoder
from replitree.errors import StoreError, UnsupportedFormat
from replitree.storage.files.durable import store_errors
from replitree.tablet.group import admission
from replitree.tablet.group.admission import MEND_IT, Admission, Standing, told
from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import BlobId, Channel, Generation, GenStep, TabletId
from replitree.tablet.group.member import Barrier, Failed, Holdings
from replitree.tablet.members.sync import sync_names, write_synced

MAGIC = b"RTBS"
FORMAT = 1
NAME = "state"
_SUM_BYTES = 8


class _Barrier(msgspec.Struct, frozen=True, array_like=True):
    tablet: TabletId
    channel: Channel
    order: tuple[Generation, int]
    soft: GenStep
    hard: GenStep
    keep: tuple[BlobId, ...]


class DirectoryState(msgspec.Struct, frozen=True, array_like=True):
    """The content of the file.

    Attributes
    ----------
    group, number
        The blob group, and which member of it this is.
    incarnation
        Made when the directory was; never used twice.
    session, seen
        The last session of this member; and of each member, as far as this one has heard.
    fences, barriers
        As in `Holdings`.
    """

    group: str
    number: int
    incarnation: str
    session: int = 0
    seen: tuple[int, ...] = ()
    fences: tuple[tuple[TabletId, Generation, str], ...] = ()
    barriers: tuple[_Barrier, ...] = ()

    def holdings(self) -> Holdings:
        """Return fences and barriers, with no blobs."""
        return Holdings(
            fences=tuple((tablet, Fence(generation, issuer)) for tablet, generation, issuer in self.fences),
            barriers=tuple(
                (each.tablet, each.channel, Barrier(each.order, each.soft, each.hard, frozenset(each.keep)))
                for each in self.barriers
            ),
        )

    @property
    def standing(self) -> Standing:
        """Its knowledge of openings."""
        return Standing(self.incarnation, self.session, self.seen)

    def with_seen(self, seen: tuple[int, ...]) -> DirectoryState:
        """Return the state after it was given each member's last session; a later session that it knew stays."""
        return msgspec.structs.replace(self, seen=told(self.standing, seen).seen)

    def with_holdings(self, held: Holdings) -> DirectoryState:
        """Return the state with these fences and barriers."""
        return msgspec.structs.replace(
            self,
            fences=tuple((tablet, fence.generation, fence.issuer) for tablet, fence in held.fences),
            barriers=tuple(
                _Barrier(tablet, channel, each.order, each.soft, each.hard, tuple(sorted(each.keep)))
                for tablet, channel, each in held.barriers
            ),
        )


def admitted(state: DirectoryState, session: int, stood: Admission | None) -> DirectoryState:
    """Return the state of a member that takes part in an opening.

    Raises
    ------
    StoreError
        It is not the one that stood so.
    """
    standing, reply = admission.admitted(state.standing, session, stood)
    if isinstance(reply, Failed):
        raise StoreError(reply.reason)
    return msgspec.structs.replace(state, session=standing.session)


def encode_state(state: DirectoryState) -> bytes:
    """Return the bytes of the file."""
    body = MAGIC + FORMAT.to_bytes(2, "big") + msgspec.msgpack.encode(state)
    return body + xxhash.xxh3_64_digest(body)


def decode_state(data: bytes, path: Path | str) -> DirectoryState:
    """Return what the bytes of the file say.

    Raises
    ------
    StoreError
        They are damaged.
    UnsupportedFormat
        A newer version wrote them.
    """
    body = data[:-_SUM_BYTES]
    if not body.startswith(MAGIC) or xxhash.xxh3_64_digest(body) != data[-_SUM_BYTES:]:
        raise StoreError(f"{path} is damaged: bring the one that was there back, or {MEND_IT}")
    found = int.from_bytes(body[4:6], "big")
    if found > FORMAT:
        raise UnsupportedFormat(f"{path} has format {found}, this version knows {FORMAT}: upgrade it")
    try:
        return msgpack_decoder(DirectoryState).decode(body[6:])
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} can't be read ({error}): bring the one that was there back, or {MEND_IT}") from error


def read_state(folder: Path) -> DirectoryState:
    """Read the file of a directory.

    Raises
    ------
    StoreError
        It is not there, can't be read, or is damaged.
    """
    path = folder / NAME
    with store_errors(f"read {path}"):
        return decode_state(path.read_bytes(), path)


def write_state(folder: Path, state: DirectoryState) -> None:
    """Put a new file in the place of the old one, durably.

    Raises
    ------
    StoreError
        The disk refused; the old file stands.
    """
    fresh = folder / f"{NAME}.new"
    with store_errors(f"write {fresh}"):
        fresh.unlink(missing_ok=True)
        write_synced(fresh, encode_state(state))
        # By one rename: a crash leaves the old state or the new one.
        os.replace(fresh, folder / NAME)  # noqa: PTH105 - says that it replaces
        sync_names(folder)
