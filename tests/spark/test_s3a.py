"""Spark whose JVM has a client for the store: Hadoop's S3A reads the objects of a bucket where they are."""

from __future__ import annotations

import datetime as dt
import socket
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from pyspark.core.context import SparkContext

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.read.read import session_conf
from replitree.spark.session.catalog import CATALOG
from replitree.spark.session.session import spark_session
from replitree.spark.store import located
from replitree.spark.store.copies import FRAME_BYTES_MAX, FRAME_BYTES_OPTION
from replitree.spark.store.located import S3A_OPTION, s3a_opens
from replitree.storage.objects import open_store
from tests.shared.s3_proxy import CALM, S3Proxy
from tests.shared.stores import HURT, credentials
from tests.spark.conftest import SharedSpark
from tests.spark.s3a_client import settings
from tests.spark.test_store import SCHEMA, SETTINGS, Owners, keys
from tests.storage.objects.seaweed import BUCKET, Seaweed
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0
"""How long a frame may be held up by a client that does not work, on the slowest machine."""

pytestmark = [
    pytest.mark.system,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]  # the first one may download the client


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with credentials(), Seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(seaweed: Seaweed) -> Iterator[S3Proxy]:
    """What Spark's client talks to, and so do the tables; it hurts nothing unless it is told to."""
    made = S3Proxy(seaweed.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False, settings=SETTINGS) as made:
        yield made


def end_jvm() -> None:
    """End this process's Java machine: the next session has one of its own, with the jars that it names."""
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark keeps it for ever
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


@pytest.fixture(scope="module")
def session(shared_spark: SharedSpark, proxy: S3Proxy) -> Iterator[SparkSession]:
    warnings.simplefilter("ignore", ResourceWarning)  # Spark leaves its gateway's sockets to the end of the process
    conf = {
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.memory": "1g",
        FRAME_BYTES_OPTION: 0,
        S3A_OPTION: "true",
        **settings(proxy.endpoint),
    }
    shared_spark.stop()
    end_jvm()
    made = spark_session(master="local[2,2]", conf=conf)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()
    end_jvm()


@pytest.fixture
def table(request: pytest.FixtureRequest, cluster: LocalCluster, seaweed: Seaweed, proxy: S3Proxy) -> Iterator[Table]:
    """1,000 rows in three parts of two partitions; k from 0 to 999."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:50]
    url = seaweed.url(name, proxy.endpoint)
    made = cluster.create_table(name, SCHEMA, order_by="k", partition_by="month(d)", storage=url, wait_replicas=2)
    for some, month in ((range(400), 1), (range(400, 700), 2), (range(700, 1000), 2)):
        made.insert({"d": [dt.date(2018, month, 1)] * len(some), "k": some, "v": [k / 4 for k in some]})
    yield made
    cluster.drop_table(name)


def test_the_jvm_opens_objects_where_they_are(session: SparkSession, table: Table) -> None:
    frame = table.to_df(session, through="store")
    snapshot = table.snapshot()
    shares = {str(part.manifest.share_id) for part in snapshot.parts}
    assert {path.split("/")[-2] for path in frame.inputFiles()} == shares
    assert [path for path in frame.inputFiles() if not path.startswith(f"s3a://{BUCKET}/{table.name}/tables/")] == []
    assert sorted(frame.collect()) == sorted(table.to_df(session, through="replica").collect())
    assert keys(frame.where("k >= 990 and d > date'2018-01-15'")) == list(range(990, 1000))
    assert len(table.to_df(session, where="d < date'2018-02-01'").inputFiles()) == 1, "parts are pruned first"


def test_small_parts_are_copied_and_the_others_opened(session: SparkSession, table: Table) -> None:
    small = min(part.manifest.bytes for part in table.snapshot().parts)
    with session_conf(session, {FRAME_BYTES_OPTION: str(small)}):
        frame = table.to_df(session, through="store")
    assert sorted(urlsplit(path).scheme for path in frame.inputFiles()) == ["file", "s3a", "s3a"]
    assert keys(frame) == list(range(1000))


def test_executors_elsewhere_open_all_objects(
    session: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(located, "is_local", lambda _: False)
    with session_conf(session, {FRAME_BYTES_OPTION: str(FRAME_BYTES_MAX)}):
        frame = table.to_df(session, through="store")
    assert [urlsplit(path).scheme for path in frame.inputFiles()] == ["s3a"] * 3
    assert keys(frame) == list(range(1000))


def test_without_the_setting_large_objects_are_read_verified_or_not_at_all(
    session: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session_conf(session, {S3A_OPTION: "false"}):
        frame = table.to_df(session, through="store")
        assert [urlsplit(path).scheme for path in frame.inputFiles()] == ["webhdfs"] * 3
        assert keys(frame) == list(range(1000))
        monkeypatch.setattr(located, "is_local", lambda _: False)
        with pytest.raises(BadInput, match=r'format\("replitree"\)'):
            table.to_df(session)
    with session_conf(session, {S3A_OPTION: "yes"}), pytest.raises(BadInput, match="true or false"):
        table.to_df(session)


def test_what_a_mutation_wrote_and_what_it_left_are_read(session: SparkSession, table: Table) -> None:
    table.update({"v": "v + 1000"}, "k = 1")
    wait_for(lambda: max(table.to_arrow(columns=["v"])["v"].to_pylist()) > 1000, "the row is updated")
    table.alter("ADD COLUMN n int DEFAULT 7")
    found = table.to_df(session, through="store").selectExpr("sum(v)", "sum(n)", "count(*)").collect()
    assert list(map(tuple, found)) == [(sum(k / 4 for k in range(1000)) + 1000, 7000, 1000)]


def test_a_frame_is_read_while_its_parts_leave_everywhere(
    session: SparkSession, cluster: LocalCluster, table: Table
) -> None:
    shares = {str(part.manifest.share_id) for part in table.snapshot().parts}
    owners = Owners(cluster, table)
    with table.snapshot(lease_s=60) as snapshot:
        running = snapshot.to_df(session).select("k").toLocalIterator()
        found = [next(running)["k"]]
        table.truncate()
        wait_for(lambda: {name for share in shares for name in owners.of(share)} == {snapshot.replica}, "one owner")
        found += [row["k"] for row in running]
    assert sorted(found) == list(range(1000))
    owners.close()


def test_an_object_that_is_gone_is_an_error_not_fewer_rows(session: SparkSession, table: Table) -> None:
    frame = table.to_df(session, through="store")
    store = open_store(table.definition.storage)
    files = [found.key for found in store.list(f"tables/{table.definition.table_id}") if found.key.endswith("parquet")]
    store.delete(files[:1])
    with pytest.raises(Exception, match=r"FileNotFound|does not exist"):
        frame.select("v").collect()


def hurt(proxy: S3Proxy) -> int:
    """How many requests suffered something."""
    return sum(count for ill, count in proxy.done.items() if ill is not None)


def test_a_store_that_fails_at_times_is_asked_again(session: SparkSession, table: Table, proxy: S3Proxy) -> None:
    frame, before = table.to_df(session, through="store"), hurt(proxy)
    proxy.mix = HURT
    try:
        while hurt(proxy) < before + 3:
            assert keys(frame) == list(range(1000))
    finally:
        proxy.mix = CALM


WRONG = {
    "another server": {"endpoint": "http://127.0.0.1:1"},
    "TLS, and the server has none": {"endpoint": "{host}"},
    "keys of somebody else": {
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": "somebody-else",
        "secret.key": "wrong",
    },
    "a setting that it can't read": {"threads.keepalivetime": "60s"},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_client_that_does_not_reach_the_table_is_not_used(
    session: SparkSession, table: Table, proxy: S3Proxy, what: str
) -> None:
    conf = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way
    host = proxy.endpoint.removeprefix("http://")
    wrong = {f"fs.s3a.bucket.{BUCKET}.{name}": value.format(host=host) for name, value in WRONG[what].items()}
    wrong["fs.s3a.impl.disable.cache"] = "true"
    for name, value in wrong.items():
        conf.set(name, value)
    try:
        frame = table.to_df(session, through="store")
        assert keys(frame) == list(range(1000))
        assert [path for path in frame.inputFiles() if path.startswith("s3a:")] == []
    finally:
        for name in wrong:
            conf.unset(name)
    assert table.to_df(session).inputFiles()[0].startswith("s3a:")


def test_a_server_that_does_not_answer_is_given_up_soon(session: SparkSession) -> None:
    """With the client's own patience that takes minutes."""
    conf = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way
    name = f"fs.s3a.bucket.{BUCKET}.endpoint"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        conf.set(name, f"http://127.0.0.1:{silent.getsockname()[1]}")
        try:
            begin = time.monotonic()
            assert not s3a_opens(session, f"s3a://{BUCKET}/file", 5)
            assert time.monotonic() - begin < PATIENCE_S
        finally:
            conf.unset(name)


def test_statements_of_the_catalog_need_no_s3a_and_write_objects(
    session: SparkSession, cluster: LocalCluster, table: Table, seaweed: Seaweed, proxy: S3Proxy
) -> None:
    """A session that reads with S3A: the catalog does not, so that all bytes are compared, and S3A may be out of order."""
    there, made = f"replitree.default.{table.name}", f"replitree.default.{table.name}_made"

    def found(columns: str, rest: str = "", of: str = there) -> list[tuple[object, ...]]:
        return [tuple(row) for row in session.sql(f"select {columns} from {of} {rest}").collect()]

    conf = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way
    broken = f"fs.s3a.bucket.{BUCKET}.endpoint"
    conf.set(broken, "http://127.0.0.1:1")
    session.conf.set(f"{CATALOG}.url", str(cluster.folder))
    try:
        before = table.status().log_tail
        assert found("count(*), sum(k)", "where d > date'2018-01-15' and k >= 500") == [(500, sum(range(500, 1000)))]
        session.sql(f"insert into {there} values (date'2018-01-02', 1000, 1, 'new'), (date'2018-03-02', 1001, 2, null)")
        session.sql(f"update {there} set v = -v where k % 2 = 1 and s is null")
        session.sql(
            f"merge into {there} t using (select 1001L as id union all select 2000L) on t.k = id"
            " when matched then update set s = 'merged'"
            " when not matched then insert (d, k, v) values (date'2018-03-03', id, 0)"
        )
        session.sql(f"delete from {there} where k < 400")
        session.sql(f"delete from {there} where k in (select k + 1 from {there} where k = 998)")
        assert found("count(*), min(k), max(k), count(s)") == [(602, 400, 2000, 2)]
        assert found("v, s", "where k = 1001") == [(-2.0, "merged")]
        assert found("count(*)", f"version as of {before}") == [(1000,)]
        session.sql(
            f"create table {made} tblproperties (storage = '{seaweed.url('made', proxy.endpoint)}') as table {there}"
        )
        session.sql(f"insert overwrite {made} select * from {made} where k >= 2000")
        assert found("k, v", of=made) == [(2000, 0.0)]
        assert {part.manifest.share_id is None for part in cluster.table(f"{table.name}_made").snapshot().parts} == {
            False
        }
    finally:
        conf.unset(broken)
        session.sql(f"drop table if exists {made}")


def test_another_size_is_another_object(session: SparkSession, table: Table) -> None:
    url = table.to_df(session).inputFiles()[0]
    (size,) = (part.manifest.files[0].bytes for part in table.snapshot().parts if str(part.manifest.share_id) in url)
    assert s3a_opens(session, url, size)
    assert not s3a_opens(session, url, size + 1)
    assert not s3a_opens(session, url + "x", size)
