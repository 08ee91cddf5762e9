"""Fsck: what is wrong with a table's shares, judged from two looks (`protocol.rescue.fsck_look`).

A finding counts only when both looks have it, and it is the same: the same objects, the same mark.  What young things mean is
not judged: a *grace* goes by first, longer than any write takes.  When a replica does not answer, nothing that it could refer
to is called left over: "unknown" is never "gone".

===============  ============================================================================================================
finding          what is so
===============  ============================================================================================================
`DANGLING`       a part needs objects that are not there, or are of another size: rows of this replica can't be read
`UNMARKED`       a registered part lacks the mark on one of its shares: another replica may delete its objects
`ORPHAN`         objects without an attempt, an owner or garbage node
`UNOWNED`        a share's node without owners
`STALE_MARK`     a mark of a replica that is gone, of an earlier one of its name, or of a part that is not on its disk
`LEFT_ATTEMPT`   an attempt to write whose replica is gone; or one older than the grace of which its replica knows nothing
`LEFT_GARBAGE`   garbage that no replica has removed for longer than the grace
`LEFT_UPLOAD`    an upload in pieces that was begun before the grace and not ended
`LEFT_TRIAL`     an object of no table, older than the grace, by which a process tried the store or asked for its time
`UNREFERENCED`   an object older than the grace that no part needs, in a share that has owners: nothing is wrong, it takes room
===============  ============================================================================================================

What may be done for each, and why it is safe: `protocol.rescue.fsck_repair`.

Source: ``spec/zero_copy.md`` 4; yandex/ch-tools ``chadmin object-storage clean``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from replitree.protocol.rescue.fsck_look import (
    FsckLook,
    MultipartUpload,
    Reference,
    SeenReplica,
    StoredObject,
)
from replitree.protocol.shares.share import ShareId

GRACE_S = 24 * 3600.0
"""The age, in seconds, from which something counts as left over, by default: longer than any write takes."""


class FindingKind(Enum):
    """Kinds of findings, worst first."""

    DANGLING = "dangling"
    UNMARKED = "unmarked"
    ORPHAN = "orphan"
    UNOWNED = "unowned"
    STALE_MARK = "stale-mark"
    LEFT_ATTEMPT = "left-attempt"
    LEFT_GARBAGE = "left-garbage"
    LEFT_UPLOAD = "left-upload"
    LEFT_TRIAL = "left-trial"
    UNREFERENCED = "unreferenced"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes
    ----------
    kind, share
        What, and of which share; empty where it is of no table.
    replica, part
        Whose part it is about, where it is about one.
    mark
        Name of the stale mark.
    is_gone
        Whether a mark's owner can never come back: its replica is not in the table any more.
    upload, trial
        The upload, or the key of the object of no table, that was left.
    evidence
        What was seen, in words; the same in both looks.
    bytes
        How much the store keeps for it.
    """

    kind: FindingKind
    share: ShareId
    replica: str = ""
    part: str = ""
    mark: str = ""
    is_gone: bool = False
    upload: MultipartUpload | None = None
    trial: str = ""
    evidence: tuple[str, ...] = ()
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MarkName:
    """A mark's name taken apart; see `share.ShareOwner.name`."""

    replica: str
    incarnation: str
    part: str

    @classmethod
    def parse(cls, name: str) -> MarkName | None:
        """Take a name apart; None when it is none.

        >>> MarkName.parse("r1~i1~all_0_0_0")
        MarkName(replica='r1', incarnation='i1', part='all_0_0_0')
        """
        words = name.split("~", 2)
        return cls(*words) if len(words) == 3 else None


def confirmed(first: FsckLook, second: FsckLook, grace_ms: int) -> tuple[Finding, ...]:
    """Return what both looks find, worst first.

    Parameters
    ----------
    first, second
        One look after the other.
    grace_ms
        How old something must be before it counts as left over, in milliseconds.
    """
    seen = frozenset(findings(first, grace_ms))
    order = {kind: number for number, kind in enumerate(FindingKind)}
    return tuple(
        sorted(
            (each for each in findings(second, grace_ms) if each in seen),
            key=lambda each: (order[each.kind], each.share, each.mark, each.replica, each.part, each.trial),
        )
    )


def findings(seen: FsckLook, grace_ms: int) -> Iterator[Finding]:
    """Yield what one look finds: it may be wrong about what changed meanwhile."""
    yield from _dangling(seen)
    yield from _unmarked(seen)
    yield from _orphans(seen, grace_ms)
    for share, marks in seen.owners.items():
        if not marks:
            yield Finding(FindingKind.UNOWNED, share, bytes=_bytes(seen, share))
    yield from _stale_marks(seen)
    yield from _left(seen, grace_ms)
    yield from _unreferenced(seen, grace_ms)


# --- what a part needs --------------------------------------------------------------------------------------------------------


def _dangling(seen: FsckLook) -> Iterator[Finding]:
    for replica in seen.replicas:
        for each in replica.references or ():
            # The mark of a part says that its objects must be there.
            is_owner = _mark(replica, each) in seen.owners.get(each.share, ())
            if is_owner and (lacking := tuple(_lacking(seen, each))):
                yield Finding(FindingKind.DANGLING, each.share, replica.name, each.part, evidence=lacking)
    silent = frozenset(seen.silent)
    for share, marks in seen.owners.items():
        if share in seen.objects:
            continue
        for mark in filter(None, map(MarkName.parse, marks)):
            # A silent replica can't say what it needs, but nothing at all is there.
            if mark.replica in silent:
                yield Finding(FindingKind.DANGLING, share, mark.replica, mark.part, evidence=("all of it is missing",))


def _mark(replica: SeenReplica, reference: Reference) -> str:
    return f"{replica.name}~{replica.incarnation}~{reference.part}"


def _lacking(seen: FsckLook, reference: Reference) -> Iterator[str]:
    sizes = {each.file: each.bytes for each in seen.objects.get(reference.share, ())}
    for needed in reference.files:
        found = sizes.get(needed.name)
        if found is None:
            yield f"{needed.name} is missing"
        elif needed.bytes is not None and found != needed.bytes:
            yield f"{needed.name} has {found} bytes instead of {needed.bytes}"


def _unmarked(seen: FsckLook) -> Iterator[Finding]:
    """Yield what registered parts have files of and no mark on; what has left them has no files any more."""
    for replica in seen.replicas:
        for each in replica.references or ():
            is_needed = bool(each.files) and each.part in replica.registered
            if is_needed and _mark(replica, each) not in seen.owners.get(each.share, ()):
                yield Finding(FindingKind.UNMARKED, each.share, replica.name, each.part)


# --- what is not needed -------------------------------------------------------------------------------------------------------


def _orphans(seen: FsckLook, grace_ms: int) -> Iterator[Finding]:
    if seen.silent:
        return
    placed = {each.name for each in (*seen.attempts, *seen.garbage)}
    referred = {each.share for replica in seen.replicas for each in replica.references or ()}
    for share, objects in seen.objects.items():
        newest = max(each.modified_ms for each in objects)
        if share in seen.owners or share in placed or share in referred or seen.now_ms - newest < grace_ms:
            continue
        yield Finding(FindingKind.ORPHAN, share, evidence=_told(objects), bytes=_bytes(seen, share))


def _told(objects: Iterable[StoredObject]) -> tuple[str, ...]:
    return tuple(f"{each.file}: {each.bytes} bytes of {each.modified_ms}" for each in objects)


def _stale_marks(seen: FsckLook) -> Iterator[Finding]:
    replicas = {each.name: each for each in seen.replicas}
    shares = {each.name: _shares_of(each) for each in seen.replicas}
    for share, marks in seen.owners.items():
        for name in marks:
            mark = MarkName.parse(name)
            if mark is None:
                continue
            replica = replicas.get(mark.replica)
            is_gone = replica is None or replica.incarnation != mark.incarnation
            if is_gone or (replica is not None and is_unused(replica, mark.part, share, shares[replica.name])):
                yield Finding(FindingKind.STALE_MARK, share, mark.replica, mark.part, name, is_gone)


def is_unused(replica: SeenReplica, part: str, share: ShareId, known: Mapping[str, set[ShareId]] | None = None) -> bool:
    """Whether a replica has answered that no part of this name has this share."""
    if replica.references is None:
        return False
    shares = (_shares_of(replica) if known is None else known).get(part, ())
    # A part that is registered and not on the disk was lost there, or is about to be fetched: its mark must stay.
    return share not in shares and (bool(shares) or part not in replica.registered)


def _shares_of(replica: SeenReplica) -> dict[str, set[ShareId]]:
    """Return the shares that a replica has said each part has."""
    found: dict[str, set[ShareId]] = {}
    for each in replica.references or ():
        found.setdefault(each.part, set()).add(each.share)
    return found


def may_use(replica: SeenReplica, share: ShareId) -> bool:
    """Whether a replica has a share on its disk or is writing it, or did not say that it is not."""
    return replica.references is None or any(each.share == share for each in replica.references)


def _left(seen: FsckLook, grace_ms: int) -> Iterator[Finding]:
    writers = {f"{each.name}~{each.incarnation}": each for each in seen.replicas}
    for attempt in seen.attempts:
        share, signature = ShareId(attempt.name), attempt.value.decode(errors="replace")
        writer = writers.get(signature)
        if writer is None or (attempt.age_ms >= grace_ms and not may_use(writer, share)):
            name = signature.partition("~")[0]
            yield Finding(FindingKind.LEFT_ATTEMPT, share, name, is_gone=writer is None, bytes=_bytes(seen, share))
    for node in seen.garbage:
        if node.age_ms >= grace_ms:
            share = ShareId(node.name)
            yield Finding(FindingKind.LEFT_GARBAGE, share, bytes=_bytes(seen, share))
    for upload in seen.uploads:
        if seen.now_ms - upload.begun_ms >= grace_ms:
            yield Finding(FindingKind.LEFT_UPLOAD, upload.share, upload=upload)
    for trial in seen.trials:
        if seen.now_ms - trial.modified_ms >= grace_ms:
            yield Finding(FindingKind.LEFT_TRIAL, ShareId(""), trial=trial.key, bytes=trial.bytes)


def _unreferenced(seen: FsckLook, grace_ms: int) -> Iterator[Finding]:
    """Yield what owned shares have besides what is needed: files that a mutation has written anew, files that came late.

    All owners of a share must have said what they need of it, and none may be about to write or to release it.
    """
    if seen.silent:
        return
    said: dict[ShareId, dict[str, set[str]]] = {}
    busy: set[ShareId] = {ShareId(each.name) for each in (*seen.attempts, *seen.garbage)}
    for replica in seen.replicas:
        for each in replica.references or ():
            named = said.setdefault(each.share, {}).setdefault(_mark(replica, each), set())
            named.update(file.name for file in each.files)
            busy.update(() if each.files else (each.share,))
    for share, marks in seen.owners.items():
        needed = said.get(share, {})
        if share in busy or not marks or not needed.keys() >= set(marks):
            continue
        names = set[str]().union(*needed.values())
        extra = [each for each in seen.objects.get(share, ()) if each.file not in names]
        old = tuple(each for each in extra if seen.now_ms - each.modified_ms >= grace_ms)
        if old:
            yield Finding(FindingKind.UNREFERENCED, share, evidence=_told(old), bytes=sum(each.bytes for each in old))


def _bytes(seen: FsckLook, share: ShareId) -> int:
    return sum(each.bytes for each in seen.objects.get(share, ()))


__all__ = ["GRACE_S", "Finding", "FindingKind", "MarkName", "confirmed", "findings", "is_unused", "may_use"]
