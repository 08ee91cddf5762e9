"""Spark on damaged files: right rows or an error, whichever byte has changed, and the replica gets its part back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replitree.cli.main import main
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.read.read import read_files
from replitree.spark.read.views import sql_views
from replitree.spark.session import damage_reports
from replitree.spark.session.actions import ActionFailed
from replitree.spark.session.types import spark_schema
from replitree.spark.store.located import VERIFY_PAGES
from replitree.storage.files.durable import file_checksum
from replitree.storage.files.sums import is_summed, sums_path
from replitree.storage.parts.manifest import FileEntry
from replitree.storage.parts.sums_files import has_sums
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

SMALL, LARGE = 1000, 200_000


@pytest.fixture
def table(running: LocalCluster, name: str) -> Iterator[Table]:
    """A table of one partition, read at r1."""
    yield running.create_table(name, "k bigint not null, v double", order_by="k", policy="replacing").replica("r1")
    running.drop_table(name)


def filled(table: Table, rows: int) -> tuple[Path, FileEntry]:
    """Insert rows; return where r1 has their data file, and its entry, once both replicas have it."""
    numbers = random.Random(rows)
    values = pa.array([numbers.random() for _ in range(rows)])
    index = table.insert(pa.table({"k": pa.array(range(rows), pa.int64()), "v": values}), quorum=2).counts_at
    (part,) = table.snapshot(index).parts
    file = part.manifest.files[0]
    assert is_summed(file.bytes) == (rows == LARGE)
    return Path(part.path) / file.name, file


def readers(spark: SparkSession, cluster: LocalCluster, table: Table) -> dict[str, Callable[[], int]]:
    """Ways to count the rows and add up their keys."""
    source = spark.read.format("replitree").option("URL", str(cluster.folder)).option("replica", "r1")

    def sql() -> int:
        sql_views(spark, cluster, (table.name,))
        return int(spark.sql(f"select sum(k) + count(v) from {table.name}").first()[0])  # type: ignore[index]

    frames = {
        "to_df": lambda: table.to_df(spark),
        "condition": lambda: table.to_df(spark, where="k >= 0"),
        "final": lambda: table.to_df(spark, final=True),
        "source": lambda: source.load(table.name),
        "final source": lambda: source.option("final", "true").load(table.name),
    }

    def summed(make: Callable[[], object]) -> Callable[[], int]:
        return lambda: int(make().selectExpr("sum(k) + count(v)").first()[0])  # type: ignore[attr-defined]

    return {"sql": sql} | {name: summed(make) for name, make in frames.items()}


def damages(good: bytes) -> list[bytes]:
    """Return one damaged file of each kind: page header, page body, footer, cut off, zeros."""
    found = []
    for place in (5, len(good) // 3, len(good) - 60):
        changed = bytearray(good)
        changed[place] ^= 4
        found.append(bytes(changed))
    return [*found, good[: len(good) // 2], bytes(len(good))]


def test_every_reader_goes_on_with_another_replica_and_the_part_is_repaired(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    path, entry = filled(table, SMALL)
    good, expected = path.read_bytes(), sum(range(SMALL)) + SMALL
    for name, read in readers(spark, running, table).items():
        assert read() == expected, name
    for number, damaged in enumerate(damages(good)):
        name, read = list(readers(spark, running, table).items())[number]
        wait_until_good(table, path, entry)
        path.write_bytes(damaged)
        assert read() == expected, (name, number)
        if name != "sql":  # the connection may have asked the other replica
            wait_until_good(table, path, entry)
    wait_until_good(table, path, entry)


def wait_until_good(table: Table, path: Path, entry: FileEntry) -> None:
    """Wait until r1 has fetched the part again and shows it."""

    def is_good() -> bool:
        lacking = [part for replica in table.status().replicas for part in replica.lacking]
        return not lacking and path.exists() and file_checksum(path) == entry.checksum

    wait_for(is_good, "the part is there again")


def damage(path: Path) -> None:
    """Change a bit in a page of the second column."""
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)


def test_the_jvm_verifies_what_it_reads_of_a_large_file_and_goes_on(spark: SparkSession, table: Table) -> None:
    path, entry = filled(table, LARGE)
    good, expected = path.read_bytes(), sum(range(LARGE)) + LARGE
    frame = table.to_df(spark).selectExpr("sum(k) + count(v)")
    for damaged in damages(good):
        path.write_bytes(damaged)
        assert frame.collect()[0][0] == expected
        wait_until_good(table, path, entry)  # no operator has asked for it


def actions_of(spark: SparkSession, table: Table) -> dict[str, Callable[[], Any]]:
    """Actions that read both columns, by what runs them."""
    frame = table.to_df(spark)
    some = frame.where("v >= 0 and k % 1000 = 0").orderBy("k")
    groups = frame.selectExpr("k % 10 AS m", "v").groupBy("m").sum("v")
    frame.createOrReplaceTempView("seen")

    return {
        "collect": some.collect,
        "toArrow": lambda: some.toArrow().to_pylist(),
        "count": lambda: frame.where("v + v >= 0").count(),
        "isEmpty": lambda: frame.where("v + v > 9").isEmpty(),
        "head": lambda: frame.where("v + v > 9").head(3),
        "tail": lambda: some.tail(3),
        "show": lambda: some._show_string(3),  # type: ignore[operator]  # noqa: SLF001 - what `show` prints
        "approxQuantile": lambda: frame.approxQuantile("v", [0.0, 1.0], 0.1),
        "an aggregation": lambda: sorted((row.m, round(row[1], 6)) for row in groups.collect()),
        "toArrow of an aggregation": lambda: groups.orderBy("m").toArrow().to_pydict()["m"],
        "a join": lambda: some.join(groups, F.expr("k % 10 = m")).selectExpr("count(*)", "count(`sum(v)`)").collect(),
        "a view": lambda: spark.sql("select count(v), sum(k) from seen where v >= 0").collect(),
        "an iterator, before its first row": lambda: [row.m for row in groups.orderBy("m").toLocalIterator()],
        "an RDD of an aggregation": lambda: groups.orderBy("m").rdd.map(lambda row: row.m).collect(),
    }


def test_each_action_that_only_reads_goes_on_after_damage(spark: SparkSession, table: Table) -> None:
    path, entry = filled(table, LARGE)
    expected = {name: act() for name, act in actions_of(spark, table).items()}
    for name, act in actions_of(spark, table).items():
        damage(path)
        assert act() == expected[name], name
        assert file_checksum(path) == entry.checksum, f"{name} has not read the damaged block"
        assert act() == expected[name], f"{name}, once more with the same frame"


def test_two_threads_go_on_after_the_same_damage(spark: SparkSession, table: Table) -> None:
    path, _ = filled(table, LARGE)
    frames = [table.to_df(spark).selectExpr(f"count(v) + {n}") for n in range(2)]
    damage(path)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda frame: frame.collect()[0][0], frames))
    assert found == [LARGE, LARGE + 1]


def jobs(spark: SparkSession, act: Callable[[], object]) -> int:
    """Run an action that fails, and return how many jobs Spark has run for it."""
    context, group = spark.sparkContext, f"group-{random.random()}"
    context.setJobGroup(group, "counted")
    try:
        with pytest.raises((PySparkException, Py4JError)):
            act()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
    return len(context.statusTracker().getJobIdsForGroup(group))


def test_a_write_is_not_repeated_and_succeeds_when_it_is_run_again(
    spark: SparkSession, running: LocalCluster, table: Table, tmp_path: Path, name: str
) -> None:
    path, entry = filled(table, LARGE)
    frame = table.to_df(spark)
    target = running.create_table(f"{name[:40]}_2", "k bigint not null, v double", order_by="k")
    source = frame.write.format("replitree").mode("append").option("url", str(running.folder))
    writes: dict[str, Callable[[], object]] = {
        "files": lambda: frame.write.mode("overwrite").parquet(str(tmp_path / "copy")),
        "source": lambda: source.option("table", target.name).option("insertToken", "once").save(),
        "insert": lambda: target.insert(frame, token="another"),
    }
    for each, write in writes.items():
        damage(path)
        with pytest.raises(ActionFailed, match=r"not repeated by itself.*run it again"):
            write()
        assert file_checksum(path) == entry.checksum, f"{each}: running it again at once must succeed"
        damage(path)
        assert jobs(spark, write) == 1, each
        write()
    assert pq.read_table(tmp_path / "copy").num_rows == LARGE
    assert target.to_arrow().num_rows == 2 * LARGE
    running.drop_table(target.name)


def test_what_has_returned_rows_or_may_have_effects_is_not_repeated(spark: SparkSession, table: Table) -> None:
    path, entry = filled(table, LARGE)
    frame = table.to_df(spark)
    acts: dict[str, Callable[[], int]] = {
        "iterator": lambda: sum(1 for _ in frame.toLocalIterator()),
        "rdd": lambda: frame.rdd.map(lambda row: row.v).count(),
    }
    for name, act in acts.items():
        damage(path)
        with pytest.raises(ActionFailed, match="run it again"):
            act()
        assert act() == LARGE, name
    damage(path)
    with pytest.raises(ActionFailed, match="run it again"):
        frame.foreach(lambda _: None)
    assert file_checksum(path) == entry.checksum


def test_another_error_is_not_repeated(spark: SparkSession, table: Table) -> None:
    filled(table, LARGE)
    frame = table.to_df(spark).selectExpr("if(v >= 0, raise_error('no'), 1) AS x")
    assert jobs(spark, frame.collect) == 1
    assert jobs(spark, lambda: frame.where("x = 1").count()) == 1


def test_damage_that_no_replica_can_repair_ends_the_action(
    spark: SparkSession, running: LocalCluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage_reports, "REPAIR_S_MAX", 1.0)
    path, _ = filled(table, LARGE)
    (other,) = running.table(table.name).replica("r2").snapshot().parts
    frame = table.to_df(spark).selectExpr("count(v)")
    damage(Path(other.path) / path.name)
    damage(path)
    with pytest.raises(ActionFailed, match=r"no good copy of part .* run: replitree doctor") as failed:
        frame.collect()
    assert path in [file.path for file in failed.value.files]


def test_sql_repeats_a_query_that_met_damage_with_good_copies(
    spark: SparkSession,
    running: LocalCluster,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = []
    filled(table, LARGE)
    for name in running.names:
        (part,) = running.table(table.name).replica(name).snapshot().parts
        paths.append((Path(part.path) / "data-0.parquet", part.manifest.files[0]))
    made: list[bool] = []

    def views(*given: Any, verify: bool = False, **options: Any) -> tuple[str, ...]:
        """Make the views; after the first time a block of the replica that was asked changes."""
        found = sql_views(*given, verify=verify, **options)
        if not made:
            (file,) = spark.table(table.name).inputFiles()
            (path,) = (path for path, _ in paths if f"/{path.parts[-7]}/data/" in file)
            damage(path)
        made.append(verify)
        return found

    monkeypatch.setattr("replitree.spark.read.views.sql_views", views)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # other tests use the session
    query = f"select k from {table.name} where v + v >= 0 and k % 100000 = 0"  # rows may have been returned
    assert main(["sql", query, "--dir", str(running.folder), "--json"]) == 0
    assert made == [False, True]
    assert json.loads(capsys.readouterr().out)["rows"] == [{"k": 0}, {"k": 100_000}]
    for path, entry in paths:
        wait_until_good(table, path, entry)


def test_views_that_are_verified_first_have_good_rows(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    path, entry = filled(table, LARGE)
    damage(path)
    found = table.snapshot().whole(table.snapshot().parts)
    assert all(file.path.parent != path.parent for part in found for file in part.files)
    wait_until_good(table, path, entry)
    sql_views(spark, running, (table.name,), verify=True)
    assert spark.sql(f"select sum(k) from {table.name}").first()[0] == sum(range(LARGE))  # type: ignore[index]


def test_a_large_file_without_sums_is_read_through_a_link_that_has_them(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    path, entry = filled(table, LARGE)
    sums_path(path).unlink()
    frame = table.to_df(spark)
    assert frame.selectExpr("sum(k)").first()[0] == sum(range(LARGE))  # type: ignore[index]
    damage(path)
    assert frame.selectExpr("sum(k) + count(v)").collect()[0][0] == sum(range(LARGE)) + LARGE
    wait_until_good(table, path, entry)
    assert has_sums(path, entry)
    frame = table.to_df(spark)
    assert frame.selectExpr("sum(k) + count(v)").first()[0] == sum(range(LARGE)) + LARGE  # type: ignore[index]


def test_a_page_with_a_wrong_checksum_fails_the_query_where_nothing_else_verifies_it(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    path, _ = filled(table, SMALL)
    copy = tmp_path / "copy.parquet"
    pq.write_table(pq.read_table(path), copy, write_page_checksum=True)
    data = bytearray(copy.read_bytes())
    data[len(data) // 3] ^= 1
    copy.write_bytes(data)
    with pytest.raises((PySparkException, Py4JError), match=r"CRC|hecksum"):
        read_files(spark, spark_schema(table.definition), [str(copy)], VERIFY_PAGES).collect()
