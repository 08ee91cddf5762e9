"""Each insert is followed by itself on the packed model of quorum inserts, with the reads that ask for it or show it."""

from __future__ import annotations

import pytest

from replitree.protocol.core.effects import EntryId, LogIndex, StagedPart, StagingId
from replitree.protocol.core.entries import DropEntry, Entry, GetEntry, LostEntry
from replitree.protocol.core.part_set import PartSet
from replitree_published.bridge.single import Inserts
from replitree_verify.process.read_requests import Begun, Shown, ShowRows
from tests.verify.bridge.test_replication import NAMES, TABLE, tree_of


def get(insert: str, rows: str, drops: tuple[str, ...] = ()) -> GetEntry:
    """Return an insert of one part, whose hash in the checker is its rows."""
    parts = (StagedPart("p", 1, 1, f"p:{rows}"),)
    return GetEntry("r1", StagingId(insert), parts, (), drops=drops)


def read(position: int, *asked: int) -> ShowRows:
    begun = Begun(LogIndex(0), tuple(map(LogIndex, asked)), LogIndex(0))
    return ShowRows(9, "linearizable", begun, LogIndex(position), (), PartSet(), ())


def looked(*entries: Entry) -> Inserts:
    inserts, tree = Inserts.of(TABLE, NAMES), tree_of(*entries)
    inserts.read_log(tree)
    assert inserts.look(tree) is None
    return inserts


def shown(position: int, *rows: int) -> Shown:
    return Shown(LogIndex(position), rows)


def test_a_read_shows_what_it_asks_for() -> None:
    inserts = looked(get("s0", "1+2"), get("s1", "3"))
    assert inserts.show(read(2, 0, 1), shown(2, 1, 2, 3)) is None
    wrong = inserts.show(read(2, 0, 1), shown(2, 1, 2))
    assert wrong is not None
    assert wrong.endswith("a read that asks for {0} shows {}] (the insert at 1, read at 2)")
    assert {*inserts.follower.taken} == {"Insert", "Read"}


DROP, OTHER_DROP = (DropEntry("r1", EntryId("d"), partition) for partition in ("p", "q"))
EVERYTHING = DropEntry("r1", EntryId("d"), "*")


@pytest.mark.parametrize("taken", [DROP, EVERYTHING, get("s1", "3", drops=("p",)), LostEntry("r1", "p_0_0_0", "p:1")])
def test_nothing_is_asked_of_a_read_above_what_takes_rows_away(taken: Entry) -> None:
    inserts = looked(get("s0", "1"), taken)
    assert inserts.show(read(2, 0), shown(2)) is None
    assert inserts.show(read(1, 0), shown(1)) is not None


def test_another_partition_may_be_dropped() -> None:
    assert looked(get("s0", "1"), OTHER_DROP).show(read(2, 0), shown(2)) is not None
