"""Spark on a cluster of its own: executors that can't open the replicas' folders, as on other machines, read and write."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.read.part_cache import PartCache, ReplicaAccess
from replitree.client.read.replica_file import replica_files
from replitree.client.table import Table
from replitree.spark.merge import optimize
from replitree.spark.merge.optimize import RangeFile, RangeTask, optimize_df
from replitree.spark.session.tasks import run_tasks
from replitree.storage.files.sums import BLOCK_BYTES
from replitree_bench.kit.standalone import StandaloneSpark
from replitree_bench.table.elsewhere import sent
from tests.spark.conftest import uploads_left
from tests.spark.deaths import DRIVER, dying, with_a_death
from tests.spark.drivers import kill_driver_when
from tests.spark.event_logs import told
from tests.spark.passing import CUT, DAMAGE, REFUSE, Passing
from tests.spark.standalone import RESULT_BYTES_MAX, made_rows
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.system,
    # PySpark says so when a function in Python is made.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Cannot infer the eval type from type hints:UserWarning"),
]

ROWS = 180_000
MONTHS = 3
CUT_ROWS = 40_000
RANGES = 8
NAME = "replitree.default.filled"


@pytest.fixture(scope="module")
def filled(replicas: LocalCluster) -> Table:
    """A table of three months; the file of each is too large to be asked for as a whole."""
    table = replicas.create_table(
        "filled",
        "k bigint not null, m date, g int, s string, v double",
        order_by="k",
        partition_by="month(m)",
        settings={"row_group_rows": 20_000},
        timeout_s=120,
    )
    for month in range(MONTHS):
        table.insert(rows(month * ROWS // MONTHS, ROWS // MONTHS), quorum=2)
    files = [file for part in table.snapshot().parts for file in part.manifest.files]
    assert [file.bytes > 8 * BLOCK_BYTES for file in files] == [True] * MONTHS
    return table


def rows(first: int, count: int) -> pa.Table:
    """Rows whose text does not compress well."""
    keys = range(first, first + count)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "m": pa.array([17_532 + 31 * (k * MONTHS // ROWS) for k in keys], pa.int32()).cast(pa.date32()),
            "g": pa.array([k % 7 for k in keys], pa.int32()),
            "s": pa.array([hashlib.sha256(b"%d" % k).hexdigest()[:24] for k in keys]),
            "v": pa.array([k / 8 for k in keys]),
        }
    )


@pytest.fixture
def passing(
    filled: Table, replicas: LocalCluster, elsewhere: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Passing]]:
    """Servers in front of both replicas; executors ask the first one first.  Both have the same files."""
    del elsewhere
    access = PartCache.access

    with ExitStack() as stack:
        found = [stack.enter_context(Passing(each.address)) for each in filled.replicas()]

        def through(cache: PartCache) -> ReplicaAccess:
            return access(cache)._replace(addresses=tuple(each.address for each in found))

        monkeypatch.setattr(PartCache, "access", through)
        yield found


def collected(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_queries_give_the_rows_of_the_table(elsewhere: SparkSession, filled: Table) -> None:
    filled.to_df(elsewhere).createOrReplaceTempView("frame")
    everything = filled.to_arrow()
    few = everything.filter(pc.less(everything["k"], 20))
    by_group = everything.group_by("g").aggregate([("v", "sum"), ("k", "count")])
    expected = {
        "select * from frame where k < 20": list(zip(*few.to_pydict().values(), strict=True)),
        f"select g, sum(v), count(*) from {NAME} group by g": list(zip(*by_group.to_pydict().values(), strict=True)),
        "select count(*), max(a.s) from frame a join frame b on a.k = b.k + 1 where a.g = 0 and b.m < '2018-02-01'": [
            _joined(everything)
        ],
        f"select count(*) from {NAME} where m = '2018-03-04'": [(ROWS // MONTHS,)],
    }
    for query, wanted in expected.items():
        assert collected(elsewhere.sql(query)) == sorted(wanted), query


def _joined(table: pa.Table) -> tuple[int, str]:
    texts = [
        after["s"]
        for before, after in pairwise(table.sort_by("k").to_pylist())
        if after["g"] == 0 and before["k"] < ROWS // MONTHS
    ]
    return len(texts), max(texts)


def test_no_request_is_sent_for_what_a_query_does_not_need(
    elsewhere: SparkSession, replicas: LocalCluster, filled: Table, passing: list[Passing]
) -> None:
    size, (asked_before, sent_before) = filled.snapshot().bytes, sent(replicas)
    first, second = passing
    filled.to_df(elsewhere).selectExpr("max(s)", "sum(v)", "sum(k)", "sum(g)").collect()
    asked, sent_bytes = (now - then for now, then in zip(sent(replicas), (asked_before, sent_before), strict=True))
    assert (asked, sent_bytes) == (len(first.seen), sum(each.bytes for each in first.seen)), (
        "the replica counts as we do"
    )
    whole = first.ranges()
    filled.to_df(elsewhere, where="m < date'2018-02-01'").where("k < 20000").selectExpr("sum(v)").collect()
    few = first.ranges()
    bytes_whole, bytes_few = (sum(each.bytes for each in some) for some in (whole, few))
    assert size * 0.5 < bytes_whole < size * 1.5, "blocks at the ends of ranges, and footers"
    # Two columns of one row group of one file, and its footer.
    assert len({each.path for each in few}) == 1
    assert bytes_few < size / 4
    assert second.seen == [], "the second replica is asked when the first one does not answer"


def test_a_task_goes_on_at_another_replica_where_the_first_one_stopped(
    elsewhere: SparkSession, filled: Table, passing: list[Passing]
) -> None:
    first, second = passing
    first.script.extend([CUT, REFUSE])
    frame = filled.to_df(elsewhere).selectExpr("count(s)", "sum(k)")
    assert collected(frame) == [(ROWS, ROWS * (ROWS - 1) // 2)]
    cut = next(each for each in first.ranges() if each.bytes)
    begin, end = map(int, cut.range.removeprefix("bytes=").split("-"))
    assert f"bytes={begin + cut.bytes}-{end}" in [each.range for each in second.ranges()]


def test_damaged_bytes_are_read_from_another_replica_and_reported(
    elsewhere: SparkSession, filled: Table, passing: list[Passing]
) -> None:
    first, second = passing
    first.script.append(DAMAGE)
    assert collected(filled.to_df(elsewhere).selectExpr("count(s)", "sum(k)")) == [(ROWS, ROWS * (ROWS - 1) // 2)]
    assert [each.path.endswith("/check") for each in first.seen if each.method == "POST"] == [True]
    assert len(second.ranges()) == 1


def test_ranges_that_a_task_in_python_reads_are_verified_and_come_from_any_replica(
    filled: Table, passing: list[Passing], tmp_path: Path
) -> None:
    first, second = passing
    part = filled.snapshot().parts[0]
    cache = PartCache(filled.http, filled.name, [each.address for each in passing], tmp_path)
    (file,) = replica_files(cache, filled.http, filled.name, part)
    wanted = list(range(ROWS // MONTHS))
    first.script.append(REFUSE)
    assert pq.read_table(file.open(), columns=["k"])["k"].to_pylist() == wanted
    assert sum(each.bytes for each in first.ranges()) < file.entry.bytes / 2, "one column"
    assert len(second.ranges()) == 1
    assert list(tmp_path.rglob("data-*")) == []
    # Once may be the network's fault.
    first.script.append(DAMAGE)
    assert pq.read_table(file.open(), columns=["k"])["k"].to_pylist() == wanted
    assert [each.path for each in (*first.seen, *second.seen) if each.method == "POST"] == []
    first.script.extend([DAMAGE, DAMAGE])
    assert pq.read_table(file.open(), columns=["k"])["k"].to_pylist() == wanted
    assert "/check" in [each.path.removeprefix(f"/v1/tables/{filled.name}/parts/{part.part}") for each in first.seen]
    assert [path.stat().st_size for path in tmp_path.rglob("data-*")] == [file.entry.bytes], "a good copy was brought"


def test_a_final_read_is_merged_by_executors_that_do_not_see_the_folder(
    elsewhere: SparkSession, replicas: LocalCluster
) -> None:
    columns = "k bigint not null, version int, s string"
    table = replicas.create_table("versions", columns, order_by="k", policy="replacing(version)", timeout_s=120)
    for version in range(2):
        keys = list(range(100 * version, 200 + 100 * version))
        table.insert({"k": keys, "version": [version] * 200, "s": [f"{version}"] * 200})
    frame = table.to_df(elsewhere, ["k", "s"], final=True)
    assert collected(frame) == [(k, "0" if k < 100 else "1") for k in range(300)]
    assert collected(frame) == collected(frame.unionByName(table.to_df(elsewhere, ["k", "s"], "k < 0", final=True)))
    few = table.to_df(elsewhere, ["k"], "s = '0' and k >= 95", final=True)
    assert collected(few) == [(k,) for k in range(95, 100)]
    assert collected(table.to_df(elsewhere, ["k"], "rpad(s, 3, 'x') = '1xx' and k < 102", final=True)) == [
        (100,),
        (101,),
    ]
    assert "ticket.versions." not in frame._jdf.queryExecution().toString()  # noqa: SLF001 - as Spark's page shows it
    replicas.drop_table("versions")


def test_the_token_is_in_no_plan_and_no_log(
    elsewhere: SparkSession, standalone: StandaloneSpark, filled: Table
) -> None:
    token, ticket = filled.http._token, "ticket.filled."  # noqa: SLF001 - nothing else has it
    for frame in (filled.to_df(elsewhere), elsewhere.table("replitree.default.filled")):
        frame.groupBy("g").count().collect()
        shown = frame._jdf.queryExecution().toString()  # noqa: SLF001 - as Spark's page shows it
        assert "Scan" in shown
        assert token not in shown
        assert ticket not in shown
    assert told(elsewhere, [token, ticket], standalone.folder) == []


# --- writing ----------------------------------------------------------------------------------------------------------


def total(table: Table) -> tuple[int, int]:
    # Another process may have written: the catalog's, or the source's.
    found = table.to_arrow(columns=["k"], level="linearizable")["k"]
    return len(found), pc.sum(found).as_py() or 0


def test_rows_travel_from_tasks_to_a_replica_and_not_through_the_driver(
    elsewhere: SparkSession, replicas: LocalCluster, target: Table
) -> None:
    count = 80_000
    result = target.insert(made_rows(elsewhere, count), token="first")
    assert (result.outcome, result.rows) == ("inserted", count)
    assert target.snapshot().bytes > 2 * RESULT_BYTES_MAX
    assert {len(part.manifest.files) for part in target.snapshot().parts} == {4}
    assert target.insert(made_rows(elsewhere, count), token="first").outcome == "duplicate"
    options = {"table": "target", "url": str(replicas.folder)}
    made_rows(elsewhere, count).write.format("replitree").options(**options).mode("append").save()
    made_rows(elsewhere, count).createOrReplaceTempView("made")
    elsewhere.sql("insert into replitree.default.target select * from made")
    assert total(target) == (3 * count, 3 * count * (count - 1) // 2)
    # Small parts are decoded as a whole by the replica, piece by piece.
    assert target.insert(made_rows(elsewhere, 9)).rows == 9
    elsewhere.sql("insert overwrite replitree.default.target select * from made where k < 5")
    assert total(target) == (5, 10)
    assert uploads_left(replicas, target) == []


def test_merges_are_made_by_executors_that_do_not_see_the_folder(elsewhere: SparkSession, target: Table) -> None:
    for first in (0, 30):
        target.insert(made_rows(elsewhere, 30 + first))
    before = total(target)
    result = target.optimize(spark=elsewhere, final=True)
    assert [each.applied for each in result.merges] == [True] * 3
    assert total(target) == before
    # A linearizable read waits for the rows, and merges change none: the other replica may be making the last one.
    wait_for(lambda: len(target.snapshot().parts) == 3, "the replica that is asked has merged")


@pytest.fixture
def cut(replicas: LocalCluster) -> Iterator[Table]:
    """A table of two parts of many row groups, for merges that are cut into `RANGES` ranges."""
    columns = "k bigint not null, g int, s string"
    made = replicas.create_table("cut", columns, order_by="k", settings={"row_group_rows": 2_000}, timeout_s=120)
    for first in range(2):
        keys = range(first, 2 * CUT_ROWS, 2)
        texts = [hashlib.sha256(b"%d" % k).hexdigest() for k in keys]
        made.insert({"k": list(keys), "g": [first] * CUT_ROWS, "s": texts}, quorum=2)
    yield made
    replicas.drop_table("cut")


def test_a_merge_is_cut_into_ranges_that_executors_read_at_the_replicas(
    elsewhere: SparkSession, replicas: LocalCluster, cut: Table
) -> None:
    size, before = cut.snapshot().bytes, sent(replicas)[1]
    result = optimize_df(cut, elsewhere, final=True, range_bytes=-(-size // RANGES))
    assert [each.applied for each in result.merges] == [True]
    read = sent(replicas)[1] - before
    # The first task reads all, to verify it; each reads its range, footers, and whole blocks.
    assert size < read < RANGES * size / 2
    both = [cut.replica(name) for name in replicas.names]
    wait_for(lambda: [len(each.snapshot().parts) for each in both] == [1, 1], "both replicas have merged")
    # The one that took the tasks' files has these; the other one has made the same rows for itself.
    (one,), (other,) = (each.snapshot().parts for each in both)
    assert RANGES in (len(one.manifest.files), len(other.manifest.files))
    assert one.manifest.content_hash == other.manifest.content_hash
    assert_cut_is_whole(cut)
    assert uploads_left(replicas, cut) == []


def assert_cut_is_whole(cut: Table) -> None:
    found = cut.to_arrow(level="linearizable")
    # A replica that has not executed the merge yet shows the same rows in the order of its parts.
    rows = sorted(zip(found["k"].to_pylist(), found["g"].to_pylist(), strict=True))
    assert rows == [(k, k % 2) for k in range(2 * CUT_ROWS)]


def test_a_task_of_a_merge_reports_a_damaged_range_and_the_replica_fetches_the_part_again(
    elsewhere: SparkSession, replicas: LocalCluster, cut: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = cut.replicas()[0]
    (part, _) = cut.replica(damaged.name).snapshot().parts
    path = Path(part.path) / part.manifest.files[0].name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    context = elsewhere.sparkContext
    context.setJobGroup("damaged", "a merge of a damaged part")
    with ExitStack() as stack:
        passing = [stack.enter_context(Passing(each.address)) for each in cut.replicas()]
        addresses = tuple(each.address for each in passing)
        monkeypatch.setattr(optimize, "RangeTask", lambda *given: replace(RangeTask(*given), addresses=addresses))
        result = optimize_df(cut, elsewhere, final=True, range_bytes=-(-cut.snapshot().bytes // RANGES))
        reports = [{each.path for each in some.seen if each.method == "POST"} for some in passing]
    context.setLocalProperty("spark.jobGroup.id", "")
    assert reports == [{f"/v1/tables/cut/parts/{part.part}/check"}, set()]
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup("damaged"))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    assert [(stage.numCompletedTasks, stage.numFailedTasks) for stage in stages if stage is not None] == [
        (1, 0),
        (RANGES, 0),
    ], "it was cut, and no task was tried again"
    wait_for(lambda: counted_by(cut, damaged.address, "refetched_parts") == 1, "the replica has a whole part again")
    assert [each.applied for each in result.merges] == [True]
    assert_cut_is_whole(cut)


def counted_by(table: Table, address: str, what: str) -> float:
    """Return a counter of a replica for a table."""
    lines = table.http.request(address, "GET", "/metrics", timeout_s=20).content().decode().splitlines()
    begin = f'replitree_{what}_total{{table="{table.name}"'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(begin))


# --- faults -----------------------------------------------------------------------------------------------------------


def test_an_executor_is_killed_while_it_reads(
    elsewhere: SparkSession, standalone: StandaloneSpark, filled: Table
) -> None:
    frame = with_a_death(filled.to_df(elsewhere).select("k", "g"), standalone.folder / "read")
    assert collected(frame.selectExpr("count(*)", "sum(k)")) == [(ROWS, ROWS * (ROWS - 1) // 2)]
    assert (standalone.folder / "read").exists()


def test_an_executor_is_killed_while_it_writes(
    elsewhere: SparkSession, standalone: StandaloneSpark, replicas: LocalCluster, target: Table
) -> None:
    count = 6000
    result = target.insert(with_a_death(made_rows(elsewhere, count), standalone.folder / "write"))
    assert (standalone.folder / "write").exists()
    assert (result.rows, total(target)) == (count, (count, count * (count - 1) // 2))
    assert uploads_left(replicas, target) == []


def test_a_worker_is_killed_while_it_reads(elsewhere: SparkSession, standalone: StandaloneSpark, filled: Table) -> None:
    frame = with_a_death(filled.to_df(elsewhere).select("k"), standalone.folder / "read-worker", of_worker=True)
    shown = frame.selectExpr("count(*)", "count(distinct k)", "sum(k)")
    assert collected(shown) == [(ROWS, ROWS, ROWS * (ROWS - 1) // 2)]
    assert standalone.replace_the_killed() == 1


def test_a_worker_is_killed_while_it_writes(
    elsewhere: SparkSession, standalone: StandaloneSpark, replicas: LocalCluster, target: Table
) -> None:
    count = 6000
    result = target.insert(
        with_a_death(made_rows(elsewhere, count), standalone.folder / "write-worker", of_worker=True)
    )
    assert standalone.replace_the_killed() == 1
    assert (result.rows, sorted(target.to_arrow(columns=["k"])["k"].to_pylist())) == (count, list(range(count)))
    assert uploads_left(replicas, target) == []


def merge_with_a_death(
    spark: SparkSession, target: Table, monkeypatch: pytest.MonkeyPatch, die: Callable[[], None]
) -> None:
    """Merge three partitions; the task that first has sent its result dies."""

    def run(session: SparkSession, work: Sequence[RangeTask], do: Callable[[RangeTask], RangeFile]) -> list[RangeFile]:
        def made(each: RangeTask) -> RangeFile:
            result = do(each)
            die()
            return result

        return run_tasks(session, work, made)

    for first in (0, 30):
        target.insert(made_rows(spark, 30 + first))
    before = total(target)
    monkeypatch.setattr(optimize, "run_tasks", run)
    assert [each.applied for each in target.optimize(spark=spark, final=True).merges] == [True] * 3
    assert total(target) == before


def test_an_executor_is_killed_while_it_merges(
    elsewhere: SparkSession,
    standalone: StandaloneSpark,
    replicas: LocalCluster,
    target: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merge_with_a_death(elsewhere, target, monkeypatch, dying(standalone.folder / "merge"))
    assert (standalone.folder / "merge").exists()
    assert uploads_left(replicas, target) == []


def test_a_worker_is_killed_while_it_merges(
    elsewhere: SparkSession,
    standalone: StandaloneSpark,
    replicas: LocalCluster,
    target: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merge_with_a_death(elsewhere, target, monkeypatch, dying(standalone.folder / "merge-worker", of_worker=True))
    assert standalone.replace_the_killed() == 1
    assert uploads_left(replicas, target) == []


def test_a_driver_is_killed_while_it_writes(
    elsewhere: SparkSession, standalone: StandaloneSpark, replicas: LocalCluster, target: Table
) -> None:
    marker, gate = standalone.folder / "waits", standalone.folder / "gate"
    os.mkfifo(gate)
    standalone.add_worker(9)
    kill_driver_when(marker.exists, "a task waits", DRIVER, standalone.master, replicas.folder, marker, gate)
    assert uploads_left(replicas, target), "the first task has sent its files"
    assert total(target) == (0, 0)
    rows = made_rows(elsewhere, 6000)
    assert target.insert(rows, token="job").outcome == "inserted", "the token is free: nothing was committed"
    assert target.insert(rows, token="job").outcome == "duplicate"
    assert sorted(target.to_arrow(columns=["k"])["k"].to_pylist()) == list(range(6000))
