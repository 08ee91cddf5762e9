"""`optimize(final=True, cleanup=True)`: deletions go with all that they hide, on every replica, and nothing comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from replitree.client.change import clean_up
from replitree.client.change.rewrite import TRIES, RewritePlan
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SCHEMA = "p int not null, k bigint not null, seen int, gone boolean, s string"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False) as cluster:
        yield cluster


def made(running: LocalCluster, name: str, policy: str = "replacing(seen, gone)") -> Table:
    return running.create_table(name, SCHEMA, order_by=("p", "k"), partition_by="p", policy=policy, wait_replicas=2)


def put(table: Table, *rows: tuple[int, int, int, bool]) -> None:
    """Insert rows: partition, key, version, whether it is a deletion."""
    found: dict[str, list[Any]] = {"p": [], "k": [], "seen": [], "gone": [], "s": []}
    for row in rows:
        for name, value in zip(found, (*row, f"s{row[2]}"), strict=True):
            found[name].append(value)
    table.insert(found, deduplicate=False)


def shown(table: Table, running: LocalCluster, *, final: bool = False) -> list[tuple[int, int, int, bool]]:
    """Read the rows at each replica; all must agree once each has made the merges."""
    found: list[list[tuple[int, int, int, bool]]] = []

    def agree() -> bool:
        read = [
            table.replica(name).to_arrow(("p", "k", "seen", "gone"), level="linearizable", final=final).to_pylist()
            for name in running.names
        ]
        found[:] = [sorted(tuple(row.values()) for row in rows) for rows in read]
        return all(each == found[0] for each in found)

    wait_for(agree, "the replicas agree")
    return found[0]


def test_deletions_go_with_what_they_hide_and_other_partitions_stay(running: LocalCluster) -> None:
    table = made(running, "cleaned")
    put(table, (1, 1, 1, False), (1, 2, 1, False), (2, 1, 1, False))
    put(table, (1, 1, 2, True), (1, 3, 1, True), (2, 1, 2, False))
    put(table, (1, 1, 1, False), (1, 2, 3, False))
    before = shown(table, running, final=True)
    assert before == [(1, 2, 3, False), (2, 1, 2, False)]
    merged = table.optimize(final=True)
    assert merged.finished, merged.reason
    kept = shown(table, running)
    assert [row for row in kept if row[3]] == [(1, 1, 2, True), (1, 3, 1, True)]
    assert table.optimize(final=True, cleanup=True).finished
    assert shown(table, running) == shown(table, running, final=True) == before
    # A second one finds nothing to do.
    assert table.optimize(final=True, cleanup=True).finished
    (done,) = [each for each in table.history() if each.kind == "rewrite"]
    assert {part.part for part in table.snapshot().parts if str(done.index) in part.part.split("_")[4:]} == {
        part.part for part in table.snapshot().parts if part.manifest.partition == "1"
    }
    put(table, (1, 1, 0, False))
    assert (1, 1, 0, False) in shown(table, running, final=True), "an older row that comes later is shown"


def test_rows_that_come_meanwhile_are_not_lost_and_the_clean_up_begins_again(
    running: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(running, "meanwhile")
    put(table, (1, 1, 5, True), (1, 2, 1, False))
    put(table, (1, 1, 1, False))
    make, tries = clean_up.make_final, list[int]()

    def insert_first(plan: RewritePlan) -> None:
        make(plan)
        tries.append(plan.index)
        if len(tries) == 1:
            # The deletion that is being removed hides this row.
            put(table, (1, 1, 2, False), (1, 3, 1, False))

    monkeypatch.setattr(clean_up, "make_final", insert_first)
    assert table.optimize(final=True, cleanup=True).finished
    assert len(tries) == 2
    assert shown(table, running) == shown(table, running, final=True) == [(1, 2, 1, False), (1, 3, 1, False)]


def test_a_partition_that_changes_all_the_time_is_left_and_named(
    running: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(running, "busy")
    put(table, (1, 1, 5, True), (1, 2, 1, False), (2, 1, 1, True))
    make, tries = clean_up.make_final, list[int]()

    def insert_always(plan: RewritePlan) -> None:
        make(plan)
        if plan.sources[0].manifest.partition == "1":
            tries.append(plan.index)
            put(table, (1, 10 + len(tries), 1, False))

    monkeypatch.setattr(clean_up, "make_final", insert_always)
    done = table.optimize(final=True, cleanup=True)
    assert (done.finished, len(tries)) == (False, TRIES)
    assert done.reason.startswith("partition 1 has changed all the time")
    assert [row for row in shown(table, running) if row[3]] == [(1, 1, 5, True)], "partition 2 is clean"


def test_a_clean_up_that_makes_no_sense_is_refused(running: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(running, "refused")
    with pytest.raises(BadInput, match="goes with final=True"):
        table.optimize(cleanup=True)
    plain = made(running, "no_marker", "replacing(seen)")
    with pytest.raises(BadInput, match=r"needs the policy replacing\(version, is_deleted\).*'replacing\(seen\)'"):
        plain.optimize(final=True, cleanup=True)
    put(table, (1, 1, 1, True), (1, 2, 1, False))
    monkeypatch.setattr(clean_up, "ROWS_MAX", 1)
    with pytest.raises(BadInput, match="partition 1 has 2 rows, and a clean-up reads 1 at most"):
        table.optimize(final=True, cleanup=True)
    assert len(shown(table, running)) == 2


@pytest.mark.parametrize("partition", ["1", "2"])
def test_one_partition_is_cleaned(running: LocalCluster, partition: str) -> None:
    table = made(running, f"one_{partition}")
    put(table, (1, 1, 1, True), (2, 1, 1, True))
    assert table.optimize(partition, final=True, cleanup=True).finished
    assert [row[0] for row in shown(table, running)] == [3 - int(partition)]
