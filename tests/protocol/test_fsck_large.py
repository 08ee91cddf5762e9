"""A table of 100,000 parts on an object store: what a start and fsck ask of coordination, and that both end in time."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import make_root
from replitree.procedures import run
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, Create
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.rescue.fsck import FindingKind
from replitree.protocol.rescue.fsck_look import (
    AskReferences,
    ListAges,
    Listing,
    ListObjects,
    NeededFile,
    Reference,
    StoredObject,
)
from replitree.protocol.rescue.fsck_repair import Repair, Report, fsck
from replitree.protocol.shares.owning import LOOK_BATCH, own_held
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ShareId
from replitree.protocol.shares.share_effects import SharedPart, Sharer, SharesOf
from replitree.protocol.shares.table_store import sharing_nodes

TABLE = TablePlace("/replitree/tables/t")
NAMES = ("r1", "r2", "r3")
FILES = (NeededFile("data-0.parquet", 4), NeededFile("manifest.json", None))
LEFT = ShareId("f" * 32)
NODES_AT_ONCE = 3000


class LargeTable:
    """So many parts, each a share that three replicas own; one share more is nobody's."""

    def __init__(self, parts: int) -> None:
        self.shares = {f"all_{number}_{number}_0": ShareId(f"{number:032x}") for number in range(parts)}
        self.session = MemoryCoordination(SharedTree())
        self.asked: Counter[str] = Counter()
        make_root(self.session, layout.replicas(TABLE))
        self._create([each.path for each in sharing_nodes(TABLE)])
        for name in NAMES:
            replica = Replica(TABLE, name)
            self._create([layout.replica_path(replica), layout.host(replica), layout.parts(replica)])
            self._create([layout.part(replica, part) for part in self.shares])
        for sharer in map(self.sharer, NAMES):
            if sharer.replica.name == NAMES[0]:
                self._create([layout.share(TABLE, share) for share in self.shares.values()])
            self._create([sharer.mark(self._shared(part)) for part in self.shares])

    def _create(self, paths: list[str]) -> None:
        for first in range(0, len(paths), NODES_AT_ONCE):
            self.session.perform(Commit(*map(Create, paths[first : first + NODES_AT_ONCE])))

    def _shared(self, part: str) -> SharedPart:
        return SharedPart(part, self.shares[part], is_new=False)

    def sharer(self, name: str) -> Sharer:
        return Sharer(Replica(TABLE, name), "")

    def perform(self, effect: Any) -> Any:
        self.asked[type(effect).__name__] += 1
        match effect:
            case ListObjects():
                found = [StoredObject(share, file.name, 4, 0) for share in self.shares.values() for file in FILES]
                return Listing(1, (*found, StoredObject(LEFT, "data-0.parquet", 4, 0)))
            case ListAges():
                return ()
            case AskReferences():
                return tuple(Reference(part, share, FILES) for part, share in self.shares.items())
            case SharesOf(parts):
                return tuple(map(self._shared, parts))
            case DeleteObjects():
                return ObjectsGone()
        return self.session.perform(effect)


def check(parts: int) -> None:
    table = LargeTable(parts)
    assert run(own_held(table.sharer("r2"), tuple(table.shares)), table.perform) == ()
    assert table.asked == {"SharesOf": -(-parts // LOOK_BATCH), "GetMany": -(-parts // LOOK_BATCH)}
    table.asked.clear()
    report: Report = run(cast("Any", fsck(TABLE, 0, with_repair=True)), table.perform)
    assert [(finding.kind, finding.share, done) for finding, done in report.findings] == [
        (FindingKind.ORPHAN, LEFT, Repair.DONE)
    ]
    assert report.shares == parts + 1
    assert table.asked["Children"] <= 2 * (parts + 10)


def test_a_start_and_fsck_look_at_each_share_once() -> None:
    check(1_000)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_start_and_fsck_of_100_000_parts() -> None:
    check(100_000)
