"""The reckoning sees each thing that must not be, by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import make_root
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Applied, Commit, Create, Delete, Operation
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.storage.objects import open_store
from replitree.storage.parts.manifest import MANIFEST_FILE
from tests.shared.checks import Needs, Shares, compared

TABLE = TablePlace("/replitree/tables/t")
ONE = Replica(TABLE, "r1")
SHARE, MARK, PART = layout.share(TABLE, "s"), f"{layout.share(TABLE, 's')}/r1~i~p", layout.part(ONE, "p")


@pytest.fixture
def session() -> MemoryCoordination:
    """Coordination with a table in which one part owns one share."""
    made = MemoryCoordination(SharedTree())
    make_root(made, layout.parts(ONE))
    nodes = [each.path for each in sharing_nodes(TABLE)]
    assert isinstance(made.perform(Commit(*map(Create, [*nodes, SHARE, MARK, PART]))), Applied)
    return made


@pytest.fixture
def shares(session: MemoryCoordination, tmp_path: Path) -> Shares:
    store = open_store(f"file://{tmp_path}/objects")
    for file in ("manifest.json", "data-0.parquet"):
        store.create(f"tables/t1/s/{file}", b"x")
    return Shares(session, TABLE, "t1", ("r1",), store)


def test_what_is_well_is_not_wrong(shares: Shares) -> None:
    assert shares.wrong() == []
    assert shares.objects() == {"s": {"manifest.json", "data-0.parquet"}}


@pytest.mark.parametrize(
    ("operation", "wrong"),
    [
        (Create(layout.writing(TABLE, "w")), "begun: w"),
        (Create(layout.garbage(TABLE, "g")), "garbage: g"),
        (Delete(MARK, -1), "unowned: s"),
        (Delete(PART, -1), "mark without a part: r1 p"),
        (Create(f"{SHARE}/r9~i~p"), "mark without a part: r9 p"),
    ],
)
def test_each_node_that_must_not_be_is_told(
    session: MemoryCoordination, shares: Shares, operation: Operation, wrong: str
) -> None:
    session.perform(Commit(operation))
    assert shares.wrong() == [wrong]


def test_a_share_that_lacks_its_last_object_is_told(shares: Shares, tmp_path: Path) -> None:
    (tmp_path / "objects/tables/t1/s/manifest.json").unlink()
    assert shares.wrong() == ["no manifest: s"]


# --- what is needed -----------------------------------------------------------------------------------------------------------

OWN, LENT = "own", "lent"
FILES = {
    OWN: {MANIFEST_FILE, "data-0.parquet", "data-1.parquet"},
    LENT: {MANIFEST_FILE, "data-0.parquet", "data-1.parquet"},
}


def needed(**more: set[str]) -> Needs:
    """A part with two files of its own, and one file that it borrows."""
    files = {OWN: set(FILES[OWN]), LENT: {MANIFEST_FILE, "data-1.parquet"}}
    return Needs(files | more, {OWN})


def test_of_a_share_that_only_borrowers_have_some_files_may_be_needed_no_more() -> None:
    assert compared(FILES, needed(), FILES) == ([], [])
    assert needed().borrowed == 1


def test_a_file_that_no_manifest_names_came_too_late() -> None:
    found = FILES | {OWN: FILES[OWN] | {"data-7.parquet"}}
    assert compared(found, needed(), FILES) == ([], [(OWN, "data-7.parquet")])


@pytest.mark.parametrize(
    ("objects", "needs", "named", "wrong"),
    [
        (FILES | {"x": {MANIFEST_FILE}}, needed(), FILES, "x is nobody's"),
        (FILES | {LENT: {MANIFEST_FILE, "data-0.parquet"}}, needed(), FILES, "lent/data-1.parquet is missing"),
        (FILES | {LENT: {MANIFEST_FILE, "data-1.parquet"}}, needed(), FILES, "lent/data-0.parquet is missing"),
        (
            FILES,
            needed(),
            FILES | {LENT: {MANIFEST_FILE, "data-0.parquet"}},
            "lent/data-1.parquet is needed, and its manifest does not name it",
        ),
        (FILES, needed(own={MANIFEST_FILE, "data-0.parquet"}), FILES, "own/data-1.parquet is not needed"),
        (FILES, Needs(needed().files, {OWN, LENT}), FILES, "lent/data-0.parquet is not needed"),
    ],
)
def test_each_object_that_is_not_what_is_needed_is_told(
    objects: dict[str, set[str]], needs: Needs, named: dict[str, set[str]], wrong: str
) -> None:
    assert compared(objects, needs, named) == ([wrong], [])
