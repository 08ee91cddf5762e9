"""The scenarios of fsck: it looks and repairs while others write, take over, let go, crash, and are not answered."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import layout
from replitree.protocol.shares.share import ShareId
from replitree_verify.sharing.disks import retire, take, tidy, write
from replitree_verify.sharing.operators import check, check_afterwards
from replitree_verify.sharing.world import FSCK, PIECES, TABLE, Model, Task, replica_of
from replitree_verify.world.faults import Fault


def _write(name: str, part: str) -> Task:
    return write, (name, part)


def _take(name: str, part: str, source: str) -> Task:
    return take, (name, part, source)


def _leave(name: str, part: str) -> tuple[Task, Task]:
    return (retire, (name, part)), (tidy, (name,))


_CHECK: tuple[Task, ...] = ((check, ()),)
_AFTERWARDS: tuple[Task, ...] = ((check_afterwards, ()),)


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
        "fsck_write",
        "fsck beside a write",
        {"r1": (_write("r1", "a"),), FSCK: _CHECK},
        {},
        ("r1",),
    ),
    Model(
        "fsck_leave",
        "fsck while one of two owners deregisters a part, keeps it for readers, and lets go",
        {"r1": _leave("r1", "a"), FSCK: _CHECK},
        {},
        **_held("r1", "r2"),
    ),
    Model(
        "fsck_borrowed",
        "the same of a part that borrows: it lets go of one share after the other",
        {"r1": _leave("r1", "a"), FSCK: _CHECK},
        {},
        **_held("r1", "r2", shares=("s", "t")),
    ),
    Model(
        "fsck_crash",
        "fsck after a write that crashed at any step, or in the middle of a request, which may still be on its way",
        {"r1": (_write("r1", "a"),), FSCK: _AFTERWARDS},
        {Fault.CRASH: 1},
        ("r1",),
    ),
    Model(
        "fsck_doubt",
        "fsck after a write of which the answer to a commit was lost, which took place, or comes late, or never",
        {"r1": (_write("r1", "a"),), FSCK: _AFTERWARDS},
        {Fault.UNKNOWN: 1},
        ("r1",),
    ),
    Model(
        "fsck_store",
        "fsck after a write to a store that does not answer, and does half of it or all of it late",
        {"r1": (_write("r1", "a"),), FSCK: _AFTERWARDS},
        {Fault.STORE: 1},
        ("r1",),
    ),
    Model(
        "fsck_stale",
        "fsck beside a write, reading old values although it syncs",
        {"r1": (_write("r1", "a"),), FSCK: _CHECK},
        {Fault.STALE: 1, Fault.DEPOSED: 2},
        ("r1",),
    ),
    Model(
        "fsck_staged",
        "an attempt that is old and at work: its replica has the part staged",
        {FSCK: _CHECK},
        {Fault.CRASH: 1},
        ("r1",),
        nodes={layout.writing(TABLE, "s"): b"r1~i1"},
        objects=_objects("s"),
        disks=frozenset({("r1", "a", "s")}),
    ),
    Model(
        "fsck_silent",
        "two replicas of which any does not answer once; one keeps a part for readers that it has deregistered",
        {"r1": _leave("r1", "a"), FSCK: _CHECK},
        {Fault.SILENT: 2},
        **_held("r1", "r2"),
    ),
    Model(
        "fsck_marks",
        "a mark of an earlier replica of this name, beside take-overs and letting go",
        {"r2": (_take("r2", "a", "r1"), *_leave("r2", "a"), _take("r2", "a", "r1")), FSCK: _CHECK},
        {},
        damage=_nodes(f"{_share('s')}/r1~i0~a"),
        **_held("r1"),
    ),
    Model(
        "fsck_orphan",
        "objects without an owner, and garbage that was left, while the store does not answer",
        {FSCK: _CHECK},
        {Fault.STORE: 1},
        ("r1",),
        objects=_objects("orphan", "garbage"),
        damage={layout.garbage(TABLE, "garbage"): b""},
    ),
    Model(
        "fsck_unowned",
        "a share without owners, and an attempt of a replica that is gone",
        {FSCK: _CHECK},
        {Fault.CRASH: 1},
        (),
        objects=_objects("unowned", "left"),
        damage={_share("unowned"): b"", layout.writing(TABLE, "left"): b"r9~i1"},
    ),
    Model(
        "fsck_two",
        "two fscks at once, and a mark of a replica that is gone",
        {FSCK: _CHECK, "another": _CHECK},
        {},
        (),
        objects=_objects("gone"),
        damage=_nodes(_share("gone"), f"{_share('gone')}/r9~i1~a"),
    ),
)


__all__ = ["FSCK_MODELS"]
