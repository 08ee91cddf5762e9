"""The scenario of fsck in which a part comes again to a replica that has let go of it."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.shares.share import ShareId
from replitree_verify.sharing.disks import retire, take, tidy
from replitree_verify.sharing.operators import check
from replitree_verify.sharing.world import FSCK, PIECES, TABLE, Model, Task, replica_of

_SHARE = layout.share(TABLE, ShareId("s"))
_TAKE: Task = (take, ("r2", "a", "r1"))

FSCK_MODELS = (
    Model(
        "fsck_marks",
        "a mark of an earlier replica of this name, beside take-overs and letting go",
        {"r2": (_TAKE, (retire, ("r2", "a")), (tidy, ("r2",)), _TAKE), FSCK: ((check, ()),)},
        {},
        nodes={_SHARE: b"", f"{_SHARE}/r1~i1~a": b"", layout.part(replica_of("r1"), "a"): b"s"},
        objects=frozenset((ShareId("s"), piece) for piece in range(PIECES)),
        disks=frozenset({("r1", "a", "s")}),
        damage={f"{_SHARE}/r1~i0~a": b""},
    ),
)

__all__ = ["FSCK_MODELS"]
