"""Where a member of a blob group is: a directory, a place on an object store, or a blob service; and how it is opened there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from replitree.errors import BadInput, StoreError
from replitree.tablet.group.member import Failed
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tablet.members.group import PATIENCE_S, Answering, AskedMember, MemberPool, MemberThread
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.state import NAME, DirectoryState, read_state
from replitree.tls import TlsFiles


class MemberPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member; one of `folder`, `store` and `service` says where it is.

    Attributes
    ----------
    folder
        Its directory, relative to the group's file or absolute.
    incarnation
        Which one it must be.
    store
        URL of its place on an object store.
    service, token_file
        ``host:port`` or ``https://host:port`` of its blob service, and the file with the shared secret.
    tls_ca, tls_certificate, tls_key
        PEM files, relative to the group's file or absolute: the authorities of the service's certificate, and a certificate of
        this client with its key, where the service wants one.
    """

    folder: str = ""
    incarnation: str = ""
    store: str = ""
    service: str = ""
    token_file: str = ""
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return self.folder or self.store or self.service


Wanted: TypeAlias = "Path | MemberPlace"
"""A directory, or a place that has no incarnation yet."""


def make_place(
    wanted: Wanted, folder: Path, group: str, number: int, others: Sequence[str] | None = None
) -> MemberPlace:
    """Make a member's place; a service has made its own (``replitree blobd --make``).

    Parameters
    ----------
    wanted
        Where.
    folder
        Of the group's file.
    group, number
        Of which group it is which member.
    others
        The incarnations that the group has: a member that is there already, and is none of these, was begun before and is
        taken.  None: there must be no member.

    Raises
    ------
    StoreError
        The disk or the store refused, or the service does not answer; or there is a member.
    """
    incarnation = secrets.token_hex(16)
    if isinstance(wanted, Path):
        incarnation = (
            _begun(read_state(wanted) if (wanted / NAME).exists() else None, group, number, others) or incarnation
        )
        if not (wanted / NAME).exists():
            make_blob_directory(wanted, group, number, incarnation)
        written = wanted.relative_to(folder) if wanted.is_relative_to(folder) else wanted.absolute()
        return MemberPlace(folder=str(written), incarnation=incarnation)
    if wanted.store:
        from replitree.storage.objects import open_store
        from replitree.tablet.members.store import make_blob_store, state_on

        objects = open_store(wanted.store)
        begun = _begun(state_on(objects), group, number, others)
        if begun is None:
            make_blob_store(objects, group, number, incarnation)
        incarnation = begun or incarnation
        return MemberPlace(store=wanted.store, incarnation=incarnation)
    service = open_place(folder, wanted)
    try:
        standing = service.standing()
    finally:
        close_member(service)
    if isinstance(standing, Failed):
        raise StoreError(f"{standing.reason}; start it with `replitree blobd --make {group} --number {number}`")
    # The service still serves the member that is to be replaced.
    if standing.incarnation in (others or ()):
        raise StoreError(
            f"{wanted.service} serves a member that the group has: start `replitree blobd --make {group} --number {number}`"
            " with a new directory first"
        )
    return msgspec.structs.replace(wanted, incarnation=standing.incarnation)


def _begun(state: DirectoryState | None, group: str, number: int, others: Sequence[str] | None) -> str | None:
    """Return the incarnation of a member that was begun before; None if nothing is there."""
    if state is None:
        return None
    if others is None or state.incarnation in others or (state.group, state.number) != (group, number):
        raise StoreError(
            f"member {state.number} of group {state.group} is there already: name another place, or move it aside first"
        )
    return state.incarnation


def open_place(folder: Path, place: MemberPlace, *, probes: bool = False, patience_s: float = PATIENCE_S) -> BlobMember:
    """Return a member, whether it is there or not.

    Parameters
    ----------
    folder
        Of the group's file.
    place
        Where it is.
    probes
        Whether a store must show that it honours conditions before it takes part.
    patience_s
        How long an answer of a service is waited for, in seconds.

    Raises
    ------
    BadInput
        Nothing, or nothing that can be, says where it is.
    NotAuthorized
        There are no credentials for its store.
    """
    if place.folder:
        return BlobDirectory(folder / place.folder)
    # Stores and services are loaded only where they are needed: a process that takes over must start quickly.
    if place.store:
        from replitree.storage.objects import open_store
        from replitree.tablet.members.store import BlobStore

        return BlobStore(open_store(place.store), probes=probes)
    if place.service:
        from replitree.tablet.members.remote import RemoteMember

        path = folder / place.token_file
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"can't read {path}, the file with the blob service's secret: {error}") from error
        files = (place.tls_ca, place.tls_certificate, place.tls_key)
        tls = TlsFiles(*(str(folder / file) if file else "" for file in files))
        return RemoteMember(place.service, token, patience_s, tls.check(("tls_ca", "tls_certificate", "tls_key")))
    raise BadInput("a member of the group says neither folder nor store nor service: mend the group's file")


def asked(member: Answering, obstacle: str | None = None) -> AskedMember:
    """Return what sends requests to a member: one after the other to a disk, many at once to a store."""
    is_concurrent = getattr(member, "is_concurrent", False)
    return MemberPool(member, obstacle) if is_concurrent else MemberThread(member, obstacle)


def close_member(member: BlobMember) -> None:
    """End what a member has: open files, threads of a store's, the connection to a service."""
    close = getattr(member, "close", None)
    if close is not None:
        close()
