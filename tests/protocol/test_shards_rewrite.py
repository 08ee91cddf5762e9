"""Which entries of a log keep a rewrite of some parts from counting behind them."""

from __future__ import annotations

import pytest

from replitree.protocol.core.effects import EntryId, LogIndex, StagedPart, StagedResult, StagingId
from replitree.protocol.core.entries import (
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
)
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.sharded.rewrite import concerns

SOURCES = PartSet.of(map(parse_part, ("p_0_3_1", "q_5_5_0")))
ID = EntryId("c")


def get(*drops: str) -> GetEntry:
    more = {"drops": drops, "format": 2} if drops else {}
    return GetEntry("r", StagingId("s"), (StagedPart("p", 1, 1, ""),), (), **more)  # type: ignore[arg-type]


def mutate(partition: str = "*", **scope: object) -> MutateEntry:
    return MutateEntry("r", ID, partition, "DELETE", format=2, **scope)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (get(), False),
        (get("q"), True),
        (get("*"), True),
        (get("x"), False),
        (SettleEntry("r", StagingId("s"), 8, ("r",)), False),
        (FailEntry("r", StagingId("s"), 8, ("p",)), False),
        (FailEntry("r", StagingId("s"), 5, ("q",)), True),
        # Whether a merge counts depends on parts between its sources, which are not known here.
        (MergeEntry("r", ("p_0_3_1", "p_4_4_0")), True),
        (MergeEntry("r", ("p_4_4_0", "p_6_6_0")), False),
        (mutate(), True),
        (mutate("x"), False),
        (mutate(partitions=("x",), since=9), False),
        (mutate(partitions=("x",), since=4), True),
        (RewriteEntry("r", ID, StagingId("s"), (StagedResult("q_5_5_0", 1, 1, ""),)), True),
        (RewriteEntry("r", ID, StagingId("s"), (StagedResult("q_6_6_0", 1, 1, ""),)), False),
        (DropEntry("r", ID, "p"), True),
        (DropEntry("r", ID, "x"), False),
        (DropEntry("r", ID, "p", 0, 3), True),
        # A part reaches over the range: nothing is dropped.
        (DropEntry("r", ID, "p", 0, 2), False),
        (LostEntry("r", "q_5_5_0", ""), True),
        (AlterEntry("r", ID, "ADD", 2), True),
        (StorageEntry("r", ID, "local"), False),
        (RollEntry("r"), False),
    ],
)
def test_an_entry_concerns_a_rewrite_when_it_may_replace_a_source(entry: Entry, expected: bool) -> None:
    assert concerns(SOURCES, LogIndex(10), entry) is expected
