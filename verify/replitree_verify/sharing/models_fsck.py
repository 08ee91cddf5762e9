"""The scenario of fsck in which a part comes again to a replica that has let go of it."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import layout
from replitree.protocol.shares.share import ShareId
from replitree_verify.sharing.disks import retire, take, tidy
from replitree_verify.sharing.operators import check
from replitree_verify.sharing.world import FSCK, PIECES, TABLE, Model, Task, replica_of


def _take(name: str, part: str, source: str) -> Task:
    return take, (name, part, source)


def _leave(name: str, part: str) -> tuple[Task, Task]:
    return (retire, (name, part)), (tidy, (name,))


_CHECK: tuple[Task, ...] = ((check, ()),)


def _share(name: str) -> str:
    return layout.share(TABLE, ShareId(name))


def _objects(*names: str) -> frozenset[tuple[ShareId, int]]:
    return frozenset((ShareId(name), piece) for name in names for piece in range(PIECES))


def _nodes(*paths: str) -> dict[str, bytes]:
    return dict.fromkeys(paths, b"")


def _held(*names: str, shares: tuple[str, ...] = ("s",)) -> dict[str, Any]:
    """Return a beginning in which these replicas have the part `a` with these shares."""
    nodes = {_share(share): b"" for share in shares}
    for name in names:
        nodes |= {f"{_share(share)}/{name}~i1~a": b"" for share in shares}
        nodes |= {layout.part(replica_of(name), "a"): " ".join(shares).encode()}
    disks = frozenset((name, "a", share) for name in names for share in shares)
    return {"nodes": nodes, "objects": _objects(*shares), "disks": disks}


FSCK_MODELS = (
    Model(
        "fsck_marks",
        "a mark of an earlier replica of this name, beside take-overs and letting go",
        {"r2": (_take("r2", "a", "r1"), *_leave("r2", "a"), _take("r2", "a", "r1")), FSCK: _CHECK},
        {},
        damage=_nodes(f"{_share('s')}/r1~i0~a"),
        **_held("r1"),
    ),
)


__all__ = ["FSCK_MODELS"]
