"""Broken rules of uploads."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.rescue import fsck, fsck_repair
from replitree.protocol.rescue.fsck import Finding
from replitree.protocol.rescue.fsck_look import FsckLook, SeenReplica
from replitree.protocol.shares import uploading
from replitree.protocol.shares.share import ObjectsThere, ShareId, Sharing
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.engine.small_search import mutant_of


def _looks_at_nothing(_sharer: Sharer, _shares: tuple[ShareId, ...]) -> Sharing[ObjectsThere]:
    yield from ()
    return ObjectsThere()


def _believes_the_disk(_sharer: Sharer, shares: tuple[ShareId, ...]) -> Sharing[tuple[ShareId, ...]]:
    yield from ()
    return shares


def _never_uses(_replica: SeenReplica, _share: ShareId) -> bool:
    return False


def _no_orphans(_seen: FsckLook, _grace_ms: int) -> Iterator[Finding]:
    yield from ()


UPLOAD_MUTANTS = (
    mutant_of(
        "upload-believed",
        "upload",
        "THERE",
        "a part is made of objects that a client says it has put, without a look",
        (uploading, "take_attempts", _looks_at_nothing),
    ),
    mutant_of(
        "upload-named-by-the-disk",
        "upload_crash",
        "NAMED",
        "the next process names shares that only the disk has noted",
        (uploading, "noted_attempts", _believes_the_disk),
    ),
    mutant_of(
        "upload-given-up-for-its-age",
        "upload_old",
        "HELD",
        "fsck gives an old attempt up, though an upload on its replica's disk has it",
        (fsck, "may_use", _never_uses),
        (fsck_repair, "may_use", _never_uses),
    ),
    mutant_of(
        "upload-late-put-kept",
        "upload_store",
        "SETTLES",
        "what a task puts when its upload is over stays in the store",
        (fsck, "_orphans", _no_orphans),
    ),
)


__all__ = ["UPLOAD_MUTANTS"]
