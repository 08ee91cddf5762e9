"""Damaged large objects of a bucket: right rows or an error by every reader, and the read goes on with a replica's copy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from replitree.client.cluster import LocalCluster
from replitree.errors import ReplitreeError
from replitree.spark.read.read import session_conf
from replitree.spark.read.views import sql_views
from replitree.spark.store.copies import FRAME_BYTES_OPTION, these_copies
from replitree.spark.store.gateway import this_gateway
from replitree.storage.files.folder_walk import below
from replitree.storage.files.sums import is_summed
from replitree.storage.parts import checked_bytes
from replitree.storage.shares.object_bytes import sums_key
from tests.spark.conftest import SharedSpark, keys_file
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

ROWS = 400_000
RIGHT = sum(range(ROWS)) + ROWS


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as environment, S3Server() as made:
        for name, value in KEYS.items():
            environment.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def stored_cluster(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(
    shared_spark: SharedSpark, server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    del server  # It runs before the tasks.
    credentials = keys_file(tmp_path_factory.mktemp("keys"))
    with (
        shared_spark.with_keys(credentials, {"spark.sql.shuffle.partitions": 2}) as made,
        session_conf(made, {FRAME_BYTES_OPTION: "0"}),  # nothing is copied: all is read at the gateway
    ):
        yield made


class Stored:
    """A table of one part in the bucket, and its data object."""

    def __init__(self, cluster: LocalCluster, server: S3Server, name: str) -> None:
        self.cluster = cluster
        self.objects = server.state.objects
        self.table = cluster.create_table(
            name,
            "k bigint not null, v double",
            order_by="k",
            policy="replacing",
            storage=server.url(name),
            wait_replicas=2,
        )
        chance = random.Random(name)
        values = pa.array([chance.random() for _ in range(ROWS)])
        self.table.insert(pa.table({"k": pa.array(range(ROWS), pa.int64()), "v": values}), quorum=2)
        (part,) = self.table.snapshot().parts
        (file,) = part.manifest.files
        assert is_summed(file.bytes)
        self.part = part.part
        self.key = next(key for key in self.objects if str(part.manifest.share_id) in key and key.endswith(file.name))
        self.good = self.objects[self.key]
        self.sums = self.objects[sums_key(self.key)]

    def read_afresh(self) -> None:
        """Let the next reader find nothing that an earlier one has kept in this process."""
        this_gateway().forget()
        these_copies().forget()
        checked_bytes._kept.clear()  # noqa: SLF001 - what sums are kept shall not matter

    def is_reported(self) -> bool:
        """Whether a replica has noticed that the object is damaged: its part has its rows elsewhere."""
        tables = [self.table.replica(name) for name in self.cluster.names]
        parts = [part for table in tables for part in table.snapshot().parts]
        return any(str(part.manifest.share_id) not in self.key for part in parts)

    def is_repaired(self) -> bool:
        """Whether no replica has its part in the object any more, and every byte that they have is right."""
        tables = [self.table.replica(name) for name in self.cluster.names]
        parts = [part for table in tables for part in table.snapshot().parts]
        if any(str(part.manifest.share_id) in self.key for part in parts):
            return False
        return all(found.is_well for found in self.cluster.check_parts(self.table.name))

    def remove_copies(self) -> None:
        """Remove the copies that replicas have on their disks."""
        for name in self.cluster.names:
            wait_for(lambda at=name: len(self.table.replica(at).snapshot().parts) == 1, "each replica has the part")  # type: ignore[misc]
            folder = self.cluster.folder / name / "data" / "tables" / self.table.definition.folder_name
            for path in below(folder):
                if path.match("data-*.parquet"):
                    path.unlink()


@pytest.fixture
def stored(stored_cluster: LocalCluster, server: S3Server, name: str) -> Iterator[Stored]:
    made = Stored(stored_cluster, server, name)
    yield made
    stored_cluster.drop_table(name)


def readers(spark: SparkSession, stored: Stored) -> dict[str, Callable[[], int]]:
    """Ways to add up what the table has."""
    table, folder = stored.table, str(stored.cluster.folder)
    source = spark.read.format("replitree").option("url", folder)

    def sql() -> int:
        sql_views(spark, stored.cluster, (table.name,))
        return int(spark.sql(f"select sum(k) + count(v) from {table.name}").first()[0])  # type: ignore[index]

    def arrow(*, final: bool) -> int:
        found = stored.cluster.table(table.name).to_arrow(final=final)
        return int(pc.sum(found["k"]).as_py() + pc.count(found["v"]).as_py())

    def summed(make: Callable[[], object]) -> Callable[[], int]:
        return lambda: int(make().selectExpr("sum(k) + count(v)").first()[0])  # type: ignore[attr-defined]

    return {
        "to_df": summed(lambda: table.to_df(spark)),
        "source": summed(lambda: source.load(table.name)),
        "sql": sql,
        "to_arrow": lambda: arrow(final=False),
        "final to_arrow": lambda: arrow(final=True),
        "final to_df": summed(lambda: table.to_df(spark, final=True)),
        "final source": summed(lambda: source.option("final", "true").load(table.name)),
    }


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def damages(good: bytes) -> dict[str, bytes]:
    middle = len(good) // 2
    return {
        "page header": flipped(good, 5),
        "page": flipped(good, middle),
        "footer": flipped(good, len(good) - 60),
        "zeros": good[:middle] + bytes(512) + good[middle + 512 :],
        "truncated": good[:middle],
        "swapped": random.Random(1).randbytes(len(good)),
    }


KINDS = ["page header", "footer", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("page", "zeros"))]
KINDS += [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("truncated", "swapped")]


@pytest.mark.parametrize("what", KINDS)
def test_no_reader_shows_a_wrong_row_where_no_good_copy_is_left(
    session: SparkSession, stored: Stored, what: str
) -> None:
    stored.remove_copies()
    ways = readers(session, stored)
    # Not by the source: the catalog's process would keep blocks that are whole, and `read_afresh` reaches only this one.
    assert ways["to_df"]() == RIGHT
    stored.objects[stored.key] = damages(stored.good)[what]
    said = {}
    for name in ways if what == "footer" else ("to_df", "source"):
        stored.read_afresh()
        try:
            assert ways[name]() == RIGHT, name
        except (ReplitreeError, PySparkException, Py4JError) as error:
            said[name] = str(error)
    # A replica that finds the rows whole in spite of a footer that has changed writes them anew, and serves them.
    assert said.keys() >= ({"to_df"} if what == "footer" else {"to_df", "source"})
    reasons = ("damaged", "not what", "its manifest says")
    assert [name for name, text in said.items() if not any(reason in text for reason in reasons)] == []
    stored.objects[stored.key] = stored.good
    stored.read_afresh()
    assert ways["to_df"]() == ways["source"]() == RIGHT, "what was damaged is not kept"


@pytest.mark.parametrize("what", KINDS)
def test_the_read_goes_on_with_the_copy_of_a_replica_and_the_part_is_repaired(
    session: SparkSession, stored: Stored, what: str
) -> None:
    ways = readers(session, stored)
    stored.objects[stored.key] = damages(stored.good)[what]
    stored.read_afresh()
    first = "source" if what == "footer" else "to_df"
    assert ways[first]() == RIGHT
    for name, read in ways.items():
        stored.read_afresh()
        assert read() == RIGHT, name
    wait_for(stored.is_reported, "a reader has reported it")
    stored.cluster.check_parts(stored.table.name)  # the other replica would notice it at its own check
    wait_for(stored.is_repaired, "no part is in the damaged object")


@pytest.mark.parametrize("kind", ["missing", "damaged", "of another file"])
def test_without_its_sums_object_an_object_is_read_right(session: SparkSession, stored: Stored, kind: str) -> None:
    stored.remove_copies()
    key = sums_key(stored.key)
    if kind == "missing":
        del stored.objects[key]
    elif kind == "damaged":
        stored.objects[key] = flipped(stored.sums, len(stored.sums) // 2)
    else:
        stored.objects[key] = stored.sums[:-40] + bytes(16) + stored.sums[-24:]
    ways = readers(session, stored)
    for name in ("to_df", "source"):
        stored.read_afresh()
        assert ways[name]() == RIGHT, name
    stored.objects[stored.key] = flipped(stored.good, 5)
    stored.read_afresh()
    with pytest.raises((ReplitreeError, PySparkException, Py4JError)):
        ways["to_df"]()
    # The source is planned in a process of its own, which may still have what it has verified.
    with suppress(ReplitreeError, PySparkException, Py4JError):
        assert ways["source"]() == RIGHT
