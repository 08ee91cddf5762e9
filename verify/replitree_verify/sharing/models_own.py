"""The scenarios of a lost disk: the replica r2 has registered a part and marked its share, and has nothing on its disk."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import layout
from replitree.protocol.shares.share import ShareId
from replitree_verify.sharing.disks import leave_found, retire, tidy
from replitree_verify.sharing.mender import mend
from replitree_verify.sharing.operators import check
from replitree_verify.sharing.world import FSCK, PIECES, TABLE, Model, Task, replica_of
from replitree_verify.world.faults import Fault

PART = "all_0_0_0"
LOST, OTHER, SECOND = "r2", "r1", "r2, second process"

_CHECK: tuple[Task, ...] = ((check, ()),)
_FIND: Task = (mend, (LOST, PART))
_LEAVE_FOUND: Task = (leave_found, (LOST, PART))


def _leave(name: str) -> tuple[Task, Task]:
    return (retire, (name, PART)), (tidy, (name,))


def _lost(*old: str) -> dict[str, Any]:
    """Return a beginning in which both replicas have the part, and one of them has lost its disk.

    `old` are shares with marks of an earlier replica of that name, for a part of this name.
    """
    share = layout.share(TABLE, ShareId("s"))
    nodes = {share: b"", **{f"{share}/{name}~i1~{PART}": b"" for name in (LOST, OTHER)}}
    nodes |= {layout.part(replica_of(name), PART): b"s" for name in (LOST, OTHER)}
    damage: dict[str, bytes] = {}
    for each in old:
        place = layout.share(TABLE, ShareId(each))
        damage |= {place: b"", f"{place}/{LOST}~i0~{PART}": b""}
    return {
        "nodes": nodes,
        "damage": damage,
        "objects": frozenset((ShareId(each), piece) for each in ("s", *old) for piece in range(PIECES)),
        "disks": frozenset({(OTHER, PART, "s")}),
    }


OWN_MODELS = (
    Model(
        "own_leave",
        "a replica that has lost its disk finds its part again, while the other one lets go of it, and fsck runs",
        {LOST: (_FIND,), OTHER: _leave(OTHER), FSCK: _CHECK},
        {},
        **_lost(),
    ),
    Model(
        "own_second",
        "two processes of a replica that has lost its disk find its part again, and one of them lets go of it; fsck runs",
        {LOST: (_FIND, _LEAVE_FOUND), SECOND: (_FIND,), FSCK: _CHECK},
        {},
        rivals={SECOND: LOST},
        **_lost(),
    ),
    Model(
        "own_crash",
        "a replica that has lost its disk finds its part again, and lets go of it as the other one does, with a crash",
        {LOST: (_FIND, _LEAVE_FOUND), OTHER: _leave(OTHER)},
        {Fault.CRASH: 1},
        **_lost(),
    ),
    Model(
        "own_doubt",
        "a replica that has lost its disk finds its part again, while the answer to a commit is lost, and fsck runs",
        {LOST: (_FIND,), FSCK: _CHECK},
        {Fault.UNKNOWN: 1},
        **_lost(),
    ),
    Model(
        "own_store",
        "the same while the store does not answer, and the other replica lets go",
        {LOST: (_FIND,), OTHER: _leave(OTHER)},
        {Fault.STORE: 1},
        **_lost(),
    ),
    Model(
        "own_old",
        "there is a mark of an earlier replica of this name, too, which fsck lets go of",
        {LOST: (_FIND,), FSCK: _CHECK},
        {},
        **_lost("earlier"),
    ),
)

__all__ = ["OWN_MODELS"]
