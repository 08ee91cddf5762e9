"""Spark on a table's object store: a folder, and a bucket of a real S3 server."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.read.part_cache import place_name
from replitree.client.table import Table
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.core.layout import TablePlace
from replitree.spark.read.read import session_conf
from replitree.spark.session.catalog import CATALOG
from replitree.spark.store import located
from replitree.spark.store.copies import FRAME_BYTES_MAX, FRAME_BYTES_OPTION, Copies, these_copies
from replitree.spark.store.gateway import this_gateway
from replitree.spark.store.located import s3a_opens
from replitree.spark.store.webhdfs import _WebHdfsHandler
from replitree.storage.files.folder_walk import below
from replitree.storage.objects import open_store
from tests.coordination.waiting import patient_session
from tests.shared.stores import BUCKET, FAULTY, FOLDER, empty_store
from tests.spark.conftest import SharedSpark, keys_file
from tests.spark.event_logs import logging_to, told
from tests.spark.warm_session import end_java
from tests.storage.objects.seaweed import KEYS, Seaweed
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

NIGHTLY = pytest.mark.nightly

SETTINGS = {"old_parts_lifetime_s": 0.2, "shared_cache_bytes": 0}
SCHEMA = "d date, k bigint not null, v double, s string"


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with pytest.MonkeyPatch.context() as environment, Seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        for name, value in KEYS.items():
            environment.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def stored_cluster(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(
    shared_spark: SharedSpark, seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Spark whose tasks have the store's credentials."""
    del seaweed  # It runs before them.
    # The catalog runs with the environment of the Java machine.  That of an earlier file's has no credentials.
    shared_spark.stop()
    end_java()
    conf = {"spark.sql.shuffle.partitions": 2} | logging_to(tmp_path_factory.mktemp("events"))
    with shared_spark.with_keys(keys_file(tmp_path_factory.mktemp("keys")), conf) as made:
        yield made


COPIED, COPIED_FAULTY = "copied", "copied_with_faults"
STORES = {FOLDER: FOLDER, BUCKET: BUCKET, FAULTY: FAULTY, COPIED: BUCKET, COPIED_FAULTY: FAULTY}
"""Where a table is; of what is not copied all is read at the gateway."""


@pytest.fixture(params=[FOLDER, BUCKET, COPIED, *(pytest.param(k, marks=NIGHTLY) for k in (FAULTY, COPIED_FAULTY))])
def table(
    request: pytest.FixtureRequest,
    stored_cluster: LocalCluster,
    seaweed: Seaweed,
    session: SparkSession,
    tmp_path: Path,
) -> Iterator[Table]:
    """1,000 rows in three parts of two partitions; k from 0 to 999."""
    name = f"t_{request.param}_{len(stored_cluster.tables())}"
    size = FRAME_BYTES_MAX if COPIED in request.param else 0
    store = empty_store(STORES[request.param], tmp_path / "a [b] {c} *", lambda: seaweed)
    with session_conf(session, {FRAME_BYTES_OPTION: str(size)}), store as url:
        made = stored_cluster.create_table(
            name, SCHEMA, order_by="k", partition_by="month(d)", storage=url, wait_replicas=2
        )
        for start, count in ((0, 400), (400, 300), (700, 300)):
            keys = range(start, start + count)
            days = pa.array([17_532 + 31 * (k % 2) for k in keys], pa.int32()).cast(pa.date32())
            made.insert({"d": days, "k": keys, "v": [k / 4 for k in keys], "s": [f"s{k % 7}" for k in keys]})
        yield made
        stored_cluster.drop_table(name)


def load(session: SparkSession, cluster: LocalCluster, table: Table, **options: str) -> DataFrame:
    return session.read.format("replitree").option("url", str(cluster.folder)).options(**options).load(table.name)


def keys(frame: DataFrame) -> list[int]:
    return sorted(row["k"] for row in frame.select("k").collect())


def is_at_gateway(table: Table) -> bool:
    return table.name.startswith((f"t_{BUCKET}_", f"t_{FAULTY}_"))


def copies(cluster: LocalCluster, table: Table) -> int:
    """How many data files the replicas have of a table."""
    folders = [cluster.folder / name / "data" / "tables" / table.definition.folder_name for name in cluster.names]
    return sum(1 for folder in folders for path in below(folder) if path.match("parts/*/data-*.parquet"))


def test_both_ways_read_in_the_store(session: SparkSession, stored_cluster: LocalCluster, table: Table) -> None:
    direct, source = table.to_df(session, through="store"), load(session, stored_cluster, table, through="store")
    assert keys(direct) == keys(source) == list(range(1000))
    assert sorted(direct.collect()) == sorted(source.collect())
    begin = "webhdfs://127.0.0.1:" if is_at_gateway(table) else "file:/"
    parts = table.snapshot().parts
    names = {
        place_name(part.part, part.manifest) if COPIED in table.name else str(part.manifest.share_id) for part in parts
    }
    assert all(name.startswith(begin) for name in direct.inputFiles())
    in_path = [next(name for name in names if name in path) for path in direct.inputFiles()]
    assert set(in_path) == names


def test_catalog_reads_in_the_store(session: SparkSession, stored_cluster: LocalCluster, table: Table) -> None:
    session.conf.set(f"{CATALOG}.url", str(stored_cluster.folder))
    frame = session.table(f"replitree.default.{table.name}")
    assert keys(frame) == list(range(1000))
    assert sorted(frame.collect()) == sorted(table.to_df(session).collect())
    where = "k >= 690 and d < date'2018-02-01' and s like 's1%'"
    assert keys(frame.where(where)) == keys(table.to_df(session, where=where)) != []
    paths = {row[0] for row in frame.selectExpr("input_file_name()").distinct().collect()}
    begin = "file:/" if table.name.startswith(f"t_{FOLDER}_") else "webhdfs://127.0.0.1:"
    assert {path[: len(begin)] for path in paths} == {begin}


def test_nobody_asks_the_gateway_for_hosts_of_files(
    session: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = _WebHdfsHandler.do_GET

    def do_get(handler: _WebHdfsHandler) -> None:
        asked.append(handler.path)
        answer(handler)

    monkeypatch.setattr(_WebHdfsHandler, "do_GET", do_get)
    assert keys(table.to_df(session)) == list(range(1000))
    assert bool(asked) == is_at_gateway(table)
    assert [path for path in asked if "GETFILEBLOCKLOCATIONS" in path] == []


def test_a_part_that_borrows_is_read_in_the_store(
    session: SparkSession, stored_cluster: LocalCluster, table: Table
) -> None:
    """Four tasks have put a file each, of one part; a mutation has written one of them anew."""
    rows = session.range(1000, 1400, 1, 4).selectExpr("date'2018-01-01' AS d", "id AS k", "id / 4 AS v", "'x' AS s")
    given = {"url": str(stored_cluster.folder), "table": table.name, "through": "store"}
    rows.write.format("replitree").options(**given).mode("append").save()
    table.delete("k = 1000")
    expected = [*range(1000), *range(1001, 1400)]
    wait_for(lambda: sorted(table.to_arrow(columns=["k"])["k"].to_pylist()) == expected, "the row is gone")
    (part,) = (part for part in table.snapshot().parts if part.manifest.borrowed)
    assert [len(files) for files in (part.manifest.own_files, *part.manifest.borrowed.values())] == [1, 3]
    direct, source = table.to_df(session, through="store"), load(session, stored_cluster, table, through="store")
    assert keys(direct) == keys(source) == expected
    assert sorted(direct.collect()) == sorted(source.collect())
    assert keys(table.to_df(session, through="replica")) == expected


def test_conditions_and_columns_are_pushed_down_to_objects(
    session: SparkSession, stored_cluster: LocalCluster, table: Table
) -> None:
    where = "k >= 690 and d < date'2018-02-01' and s like 's1%'"
    expected = keys(table.to_df(session, through="replica").where(where))
    assert expected
    direct = table.to_df(session, columns=["s", "k"], where=where)
    assert direct.columns == ["s", "k"]
    assert keys(direct) == keys(load(session, stored_cluster, table, columns="k, s", where=where)) == expected
    assert len(direct.inputFiles()) == 2, "one for each insert that can have such keys"


def test_parts_of_older_columns_are_read_in_the_store(
    session: SparkSession, stored_cluster: LocalCluster, table: Table
) -> None:
    table.alter("ADD COLUMN n int DEFAULT 7")
    table.insert({"k": [1000], "n": [8]})
    for frame in (table.to_df(session), load(session, stored_cluster, table)):
        assert {row["n"]: row["count"] for row in frame.groupBy("n").count().collect()} == {7: 1000, 8: 1}


def test_copies_stay_as_long_as_spark_has_a_plan_that_reads_them(
    session: SparkSession,
    stored_cluster: LocalCluster,
    seaweed: Seaweed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = [
        stored_cluster.create_table(name, "k bigint not null", storage=seaweed.url(name), wait_replicas=2)
        for name in ("plans", "other")
    ]
    for table in tables:
        table.insert({"k": range(100)})
    first, other = (table.snapshot() for table in tables)
    made = Copies(tmp_path / "copies", bytes_max=max(first.bytes, other.bytes))
    monkeypatch.setattr(located, "these_copies", lambda: made)
    frame = first.to_df(session).where("k >= 10")

    def has_room() -> bool:
        gc.collect()
        session.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]  # noqa: SLF001 - it is as it is
        return other.parts[0] in made.claim(other.parts, other.bytes)

    assert not has_room()
    assert other.to_df(session).inputFiles()[0].startswith("webhdfs:"), "it is read all the same"
    assert keys(frame) == list(range(10, 100))
    del frame
    wait_for(has_room, "nobody has the frame any more")
    for table in tables:
        stored_cluster.drop_table(table.name)


def test_a_final_read_merges_what_is_in_the_store(
    session: SparkSession, stored_cluster: LocalCluster, seaweed: Seaweed, tmp_path: Path
) -> None:
    for name, url in (("final_folder", f"file://{tmp_path}/objects"), ("final_bucket", seaweed.url("final"))):
        table = stored_cluster.create_table(
            name, "k bigint not null, v int", order_by="k", policy="replacing", storage=url, wait_replicas=2
        )
        for number in range(3):
            table.insert({"k": range(10), "v": [number] * 10})
        for frame in (table.to_df(session, final=True), load(session, stored_cluster, table, final="true")):
            assert sorted(map(tuple, frame.collect())) == [(k, 2) for k in range(10)]
        stored_cluster.drop_table(name)


def test_no_plan_and_no_log_has_a_secret(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    direct, source = table.to_df(session), load(session, stored_cluster, table)
    for frame in (direct, source):
        assert frame.count() == 1000
        frame.explain("extended")
        frame.explain("formatted")
        frame.createOrReplaceTempView("shown")
        session.sql("explain extended select * from shown where k > 5").show(truncate=False)
    captured = capfd.readouterr()
    printed = captured.out + captured.err
    place = table.to_df(session).inputFiles()[0].split("/")[2]
    assert place in printed, "what is looked through has the frame's files"
    secrets = [
        *KEYS.values(),
        stored_cluster.access.token,
        this_gateway().options["dfs.webhdfs.rest-csrf.custom-header"],
    ]
    assert [secret for secret in secrets if secret in printed] == []
    assert told(session, secrets) == []


def test_jvm_without_s3a_is_noticed(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert s3a_opens(session, f"file://{tmp_path}/file", 5)
    assert not s3a_opens(session, f"file://{tmp_path}/file", 6)
    assert not s3a_opens(session, "s3a://lake/file", 5)
    assert not s3a_opens(session, "", 5), "what PySpark raises as an exception of its own"


def test_a_part_that_is_gone_from_the_store_is_an_error_or_read_from_a_copy_never_fewer_rows(
    session: SparkSession, stored_cluster: LocalCluster, table: Table
) -> None:
    frames = (table.to_df(session), load(session, stored_cluster, table))
    for frame in frames:
        assert frame.count() == 1000
    store = open_store(table.definition.storage)
    files = [found.key for found in store.list(f"tables/{table.definition.table_id}") if found.key.endswith("parquet")]
    store.delete(files[:1])
    this_gateway().forget()
    if COPIED in table.name:
        assert keys(frames[0]) == list(range(1000)), "its parts are not read in the store again"
        these_copies().forget()
    for frame in frames:  # a replica that has a copy serves it, and creates the object again
        outcome = ""
        try:
            rows = len(frame.select("v").collect())
        except Exception as error:  # noqa: BLE001 - whatever the JVM raises
            rows, outcome = 0, str(error)
        assert rows == 1000 or re.search(r"FileNotFound|does not exist|is gone|is missing", outcome)


class Owners:
    """Who owns the shares of a table."""

    def __init__(self, cluster: LocalCluster, table: Table) -> None:
        self._session = patient_session(cluster.access.url)
        self._place = TablePlace(layout.table_path(self._session.url.root, table.name))

    def of(self, share: str) -> set[str]:
        """The replicas that own a share."""
        marks: tuple[str, ...] = self._session.perform(Children(layout.share(self._place, share))) or ()
        return {mark.split("~")[0] for mark in marks}

    def close(self) -> None:
        self._session.close()


def test_a_running_query_reads_on_while_its_parts_leave_everywhere(
    session: SparkSession, stored_cluster: LocalCluster, table: Table
) -> None:
    shares = {str(part.manifest.share_id) for part in table.snapshot().parts}
    owners = Owners(stored_cluster, table)
    with table.snapshot(lease_s=60) as snapshot:
        frame = snapshot.to_df(session)
        assert frame.rdd.getNumPartitions() > 1, "the first row does not need all files"
        source = load(session, stored_cluster, table, partitions="3", lease="120", replica=snapshot.replica)
        running = [each.select("k").toLocalIterator() for each in (source, frame)]
        found = [[next(rows)["k"]] for rows in running]
        table.truncate()
        wait_for(lambda: {name for share in shares for name in owners.of(share)} == {snapshot.replica}, "one owner")
        for rows, some in zip(running, found, strict=True):
            some += [row["k"] for row in rows]
            assert sorted(some) == list(range(1000))
        assert table.to_df(session).count() == 0
        assert keys(snapshot.to_df(session)) == list(range(1000))
    owners.close()


def test_nothing_is_left_when_the_last_reader_lets_go(stored_cluster: LocalCluster, table: Table) -> None:
    store = open_store(table.definition.storage)
    with table.snapshot(lease_s=60) as snapshot:
        table.truncate()
        assert sorted(snapshot.to_arrow()["k"].to_pylist()) == list(range(1000))
    wait_for(lambda: not list(store.list(f"tables/{table.definition.table_id}")), "the objects are gone")


def test_frames_read_on_without_any_replica(session: SparkSession, stored_cluster: LocalCluster, table: Table) -> None:
    frame, source = table.to_df(session), load(session, stored_cluster, table)
    assert source.count() == 1000
    for name in stored_cluster.names:
        stored_cluster.kill(name)
    try:
        assert keys(frame) == list(range(1000))
        assert keys(source) == list(range(1000))
    finally:
        for name in stored_cluster.names:
            stored_cluster.start(name)
