"""Rewrites against real replica processes and a real ZooKeeper: all of a rewrite is in the table, or nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from replitree.client.change.command import CommandResult
from replitree.client.change.rewrite import RewritePlan, begun_rewrite, rewrite
from replitree.client.cluster import LocalCluster
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.table import Table
from replitree.errors import BadInput, ConcurrentChange, CorruptPart
from tests.waiting import wait_for

pytestmark = pytest.mark.system

JANUARY, FEBRUARY = "2024-01", "2024-02"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, durable=False) as cluster:
        yield cluster


@pytest.fixture
def table(running: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Table]:
    name = "t_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50]
    made = running.create_table(name, "d date, k bigint not null, v int", order_by="k", partition_by="month(d)")
    # What is merged is what a test asks for.
    for replica in running.names:
        made.replica(replica).pause_merges()
    yield made
    running.drop_table(name)


def rows(start: int, count: int, v: int = 0) -> dict[str, list[Any]]:
    """Even keys in January, odd ones in February."""
    keys = range(start, start + count)
    return {"d": [dt.date(2024, 1 + k % 2, 3) for k in keys], "k": list(keys), "v": [v] * count}


def seen(table: Table, running: LocalCluster) -> list[tuple[int, int, int]]:
    """Read at each replica everything that is in the log; they must agree.  Month, key and value of each row."""
    tail = table.status().log_tail - 1
    found = []
    for name in running.names:
        read = table.replica(name).to_arrow(("d", "k", "v"), None, tail).to_pylist()
        found.append(sorted((row["d"].month, row["k"], row["v"]) for row in read))
    assert all(each == found[0] for each in found)
    return found[0]


def rows_of(source: SnapshotPart) -> pa.Table:
    return pa.concat_tables(pq.read_table(Path(source.path) / file.name) for file in source.manifest.files)


def raised(by: int, *partitions: str) -> Callable[[RewritePlan], None]:
    """Makes results in which every value is higher; by default in all partitions."""

    def make(plan: RewritePlan) -> None:
        for source in plan.sources:
            if source.manifest.partition not in (partitions or (JANUARY, FEBRUARY)):
                continue
            read = rows_of(source)
            higher = pc.add(read["v"], pa.scalar(by, pa.int32()))
            plan.put_result(source.part, read.set_column(read.schema.get_field_index("v"), "v", higher))

    return make


def commit(plan: RewritePlan, **more: Any) -> CommandResult:
    return plan.commit(timeout_s=TIMEOUT_S, **more)


def test_a_rewrite_changes_moves_and_deletes_rows_at_once(table: Table, running: LocalCluster) -> None:
    table.insert(rows(0, 6))
    with begun_rewrite(table, timeout_s=TIMEOUT_S) as plan:
        january, february = sorted(plan.sources, key=lambda source: source.part)
        read = rows_of(february)
        raised(10, JANUARY)(plan)
        plan.put_result(february.part, read.slice(0, 0))
        moved = read.set_column(read.schema.get_field_index("d"), "d", pa.array([dt.date(2024, 1, 9)] * len(read)))
        plan.put_inserts(pa.concat_tables([moved.cast(read.schema), rows_of(january).slice(0, 1)]))
        result = commit(plan)
    assert (result.applied, result.finished, result.removed, result.added) == (True, True, 2, 3)
    assert table.inserter.written.index == result.index, "whichever replica answers, a later read waits for it"
    want = [(1, 0, 0), *((1, k, 10) for k in (0, 2, 4)), *((1, k, 0) for k in (1, 3, 5))]
    assert seen(table, running) == sorted(want)
    assert {part.part.rsplit("_", 1)[1] for part in table.snapshot().parts} == {str(result.index), "0"}


def test_an_insert_is_not_overwritten_and_a_serializable_rewrite_notices_it(
    table: Table, running: LocalCluster
) -> None:
    table.insert(rows(0, 2))
    with ExitStack() as plans:
        plan, careful, other = (plans.enter_context(begun_rewrite(table, timeout_s=TIMEOUT_S)) for _ in range(3))
        for each in (plan, careful, other):
            raised(1)(each)
        table.insert(rows(2, 1, v=5))
        with pytest.raises(ConcurrentChange):
            commit(careful, isolation="serializable")
        # The insert is in January only.
        assert commit(other, isolation="serializable", partitions=(FEBRUARY,)).applied
        # The sources have other names by now.
        with pytest.raises(ConcurrentChange):
            commit(plan)
    assert seen(table, running) == [(1, 0, 1), (1, 2, 5), (2, 1, 1)]


def test_a_mutation_or_another_rewrite_in_between_makes_it_begin_again(table: Table, running: LocalCluster) -> None:
    table.insert(rows(0, 4))
    tries: list[int] = []

    def make(plan: RewritePlan) -> None:
        raised(1)(plan)
        tries.append(plan.index)
        if len(tries) == 1:
            table.update({"v": "v + 10"}, "k = 0")
        if len(tries) == 2:
            rewrite(table, raised(100), timeout_s=TIMEOUT_S)

    assert rewrite(table, make, timeout_s=TIMEOUT_S).applied
    assert len(tries) == 3
    assert seen(table, running) == [(1, 0, 111), (1, 2, 101), (2, 1, 101), (2, 3, 101)]


def test_it_reports_a_conflict_that_does_not_end(table: Table, running: LocalCluster) -> None:
    table.insert(rows(0, 2))
    tries: list[int] = []

    def make(plan: RewritePlan) -> None:
        raised(1)(plan)
        tries.append(plan.index)
        table.update({"v": "v + 10"}, "true")

    with pytest.raises(ConcurrentChange):
        rewrite(table, make, timeout_s=TIMEOUT_S)
    assert len(tries) == 3
    assert seen(table, running) == [(1, 0, 30), (2, 1, 30)]
    names = [part.part for part in table.snapshot().parts]
    with pytest.raises(ConcurrentChange), begun_rewrite(table, ["2024-01_0_0_0"], timeout_s=TIMEOUT_S):
        pass
    with begun_rewrite(table, names, timeout_s=TIMEOUT_S) as plan:
        assert sorted(source.part for source in plan.sources) == sorted(names)


def test_its_parts_are_not_merged_meanwhile(table: Table, running: LocalCluster) -> None:
    for k in (0, 2, 4):
        table.insert(rows(k, 1))
    with begun_rewrite(table, partitions=[JANUARY], timeout_s=TIMEOUT_S) as plan:
        table.insert(rows(6, 1))
        plan.table.resume_merges()
        assert plan.table.optimize(final=True, timeout_s=3.0).merges == ()
        raised(1)(plan)
        assert commit(plan).applied
    wait_for(lambda: len(plan.table.optimize(final=True, timeout_s=TIMEOUT_S).merges) == 1)
    assert seen(table, running) == [(1, 0, 1), (1, 2, 1), (1, 4, 1), (1, 6, 0)]


def test_the_same_rewrite_is_done_once(table: Table, running: LocalCluster) -> None:
    table.insert(rows(0, 2))
    with begun_rewrite(table, timeout_s=TIMEOUT_S) as plan:
        raised(1)(plan)
        once, again = (commit(plan, command_id="merge 7") for _ in range(2))
    assert (once.index, once.applied) == (again.index, again.applied)
    assert seen(table, running) == [(1, 0, 1), (2, 1, 1)]


def test_what_can_be_no_rewrite_is_refused(table: Table, running: LocalCluster) -> None:
    table.insert(rows(0, 2))
    with begun_rewrite(table, timeout_s=TIMEOUT_S) as plan:
        january, february = sorted(plan.sources, key=lambda source: source.part)
        with pytest.raises(BadInput, match="do not belong into the result"):
            plan.put_result(january.part, rows_of(february))
        plan.put_result(january.part, rows_of(january).slice(0, 0))
        with pytest.raises(BadInput, match="has its result"):
            plan.put_result(january.part, rows_of(january))
        with pytest.raises(BadInput, match="not among the parts"):
            plan.put_result("2024-01_7_7_0", rows_of(january))
        with pytest.raises(BadInput, match="1 to 1000 parts"):
            commit(plan, results={})
        with pytest.raises(BadInput, match="is of partition 2024-02"):
            commit(plan, results={january.part: february.manifest})
        # What it says of files that it has not brought.
        with pytest.raises(CorruptPart, match="is missing"):
            commit(plan, results={january.part: january.manifest})
    assert seen(table, running) == [(1, 0, 0), (2, 1, 0)]


def test_a_replica_that_was_away_and_a_killed_one_agree_afterwards(table: Table, running: LocalCluster) -> None:
    table.insert(rows(0, 4))
    with begun_rewrite(table, timeout_s=TIMEOUT_S) as plan:
        taker = plan.upload.replica.name
        away = next(name for name in running.names if name != taker)
        running.stop(away)
        raised(1)(plan)
        result = commit(plan)
        running.kill(taker)
    running.start(away)
    running.start(taker)
    assert result.applied
    assert seen(table, running) == [(1, 0, 1), (1, 2, 1), (2, 1, 1), (2, 3, 1)]
    assert rewrite(table, raised(1), timeout_s=TIMEOUT_S).applied
    assert seen(table, running) == [(1, 0, 2), (1, 2, 2), (2, 1, 2), (2, 3, 2)]
