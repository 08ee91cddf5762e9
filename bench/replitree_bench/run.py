"""The benchmarks as they are run: start what they need, measure round by round, stop everything, report.

Replicas keep the bytecode of their modules, whatever the environment says: users have it from ``pip install``.
Ours and the peer's servers use one embedded ZooKeeper; who begins changes from round to round; what counts is the median.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from replitree_bench.kit.clickhouse import ClickHouse, find_program
from replitree_bench.kit.report import Measured, Report, medians
from replitree_bench.kit.systems import REPLICAS, Ours, Peer, System
from replitree_bench.table import bulk, inserts, quorum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client import LocalCluster
    from replitree_bench.shards.torn import Limits

Say = Callable[[str], None]

ROUNDS = 3


@contextmanager
def new_cluster(
    folder: Path | None,
    settings: Mapping[str, object] | None = None,
    replicas: int = REPLICAS,
    shards: int | None = None,
) -> Iterator[tuple[LocalCluster, Path]]:
    """Give a cluster and a folder, both gone afterwards."""
    from replitree.client.cluster import LocalCluster

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    try:
        with LocalCluster(place / "replitree", replicas, shards=shards, settings=settings) as cluster:
            yield cluster, place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _spark(folder: Path, conf: Mapping[str, object] | None = None) -> Iterator[SparkSession]:
    from replitree.spark.session.quiet import quiet_children
    from replitree.spark.session.session import spark_session

    with quiet_children():
        own = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        spark = spark_session(app_name="replitree bench", conf=own | dict(conf or {}))
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        spark.stop()


@contextmanager
def _elsewhere(folder: Path | None) -> Iterator[tuple[SparkSession, LocalCluster, Path]]:
    """Give Spark on a standalone cluster, replicas whose folders its executors do not see, and a folder that they see."""
    from replitree.client.cluster import LocalCluster
    from replitree_bench.kit.standalone import StandaloneSpark, way_to_hide

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    hidden = place / "hidden"
    hidden.mkdir()
    try:
        with (
            StandaloneSpark(way_to_hide(hidden)) as standalone,
            LocalCluster(hidden / "replitree", REPLICAS) as cluster,
            _spark(
                place,
                {
                    "spark.master": standalone.master,
                    "spark.driver.host": "127.0.0.1",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.driver.memory": "1g",
                    "spark.executor.memory": "1g",
                },
            ) as spark,
        ):
            yield spark, cluster, place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run_inserts(*, peer: bool, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure small inserts: see `replitree_bench.table.inserts`."""
    if peer:
        find_program()
    with new_cluster(folder) as (cluster, place), ExitStack() as stack:
        systems: list[System] = [Ours(cluster)]
        name = _add_peer(systems, stack, cluster, place) if peer else ""
        found = inserts.in_turn(systems, rounds, inserts.measure, say)
    return Report("inserts", medians(found[0]), medians(found[1]) if peer else {}, rounds, name, _NOTES["inserts"])


def run_bulk(*, peer: bool, rounds: int, say: Say, folder: Path | None = None, spark: bool = True) -> Report:
    """Measure bulk loads: see `replitree_bench.table.bulk`."""
    if peer:
        find_program()
    if spark:
        bulk.find_generator()
    with new_cluster(folder) as (cluster, place), ExitStack() as stack:
        systems: list[System] = [Ours(cluster)]
        name = _add_peer(systems, stack, cluster, place) if peer else ""
        found = inserts.in_turn(systems, rounds, bulk.measure_arrow, say)
        ours, theirs = medians(found[0]), medians(found[1]) if peer else {}
        if spark:
            loaded, plain = _spark_loads(cluster, place, rounds, say)
            ours |= loaded
            theirs |= plain
    return Report("bulk", ours, theirs, rounds, name, _NOTES["bulk"])


def run_read(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure reading: see `replitree_bench.table.read`."""
    from replitree_bench.table.read import ReadBench

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        say("filling the table")
        bench = ReadBench(spark, cluster)
        ours, plain = _both_sides(bench.measure, rounds, say)
        version = spark.version
    return Report("read", ours, plain, rounds, f"spark.read.parquet {version} on the same files", _NOTES["read"])


def run_engines(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure DuckDB, Polars and pandas: see `replitree_bench.table.engines`."""
    from importlib.metadata import version

    from replitree_bench.table.engines import EngineBench

    with new_cluster(folder) as (cluster, _):
        say("filling the table")
        ours, theirs = _both_sides(EngineBench(cluster).measure, rounds, say)
    name = ", ".join(f"{engine} {version(engine)}" for engine in ("duckdb", "polars", "pandas"))
    return Report("engines", ours, theirs, rounds, f"{name} on the same files", _NOTES["engines"])


def run_streams(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure triggers of streams: see `replitree_bench.table.streams`."""
    from replitree_bench.table.streams import StreamBench

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        say("filling the tables")
        (place / "streams").mkdir()
        ours, theirs = _both_sides(StreamBench(cluster, spark, place / "streams").measure, rounds, say)
        name = f"Spark {spark.version}: files of the same rows, and its Parquet sink"
    return Report("streams", ours, theirs, rounds, name, _NOTES["streams"])


def run_packing(*, say: Say, folder: Path | None = None) -> Report:
    """Measure packed old parts: see `replitree_bench.table.packing`."""
    from replitree.client.cluster import LocalCluster
    from replitree_bench.table.packing import measure_packing

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    try:
        ours, theirs = measure_packing(lambda settings: LocalCluster(place / "replitree", 1, settings=settings), say)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Report("packing", ours, theirs, 1, "the same parts in folders", _NOTES["packing"])


def run_read_store(*, rounds: int, say: Say, store: str | None = None, folder: Path | None = None) -> Report:
    """Measure reading in an object store, a folder by default: see `replitree_bench.store.read`."""
    from replitree_bench.store.read import StoreReadBench

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        say("filling two tables")
        bench = StoreReadBench(spark, cluster, store or f"file://{place}/objects")
        ours, local = _both_sides(bench.measure, rounds, say)
        version, opened = spark.version, bench.opened()
    notes = {"store": store or "a folder", "opened": opened, **_NOTES["read_store"]}
    return Report("read_store", ours, local, rounds, f"the same rows on a local disk, Spark {version}", notes)


def run_write_store(*, rounds: int, say: Say, store: str | None = None, folder: Path | None = None) -> Report:
    """Measure writing into an object store, a folder by default: see `replitree_bench.store.write`."""
    from replitree_bench.store.write import StoreWriteBench

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        say("making the rows")
        bench = StoreWriteBench(spark, cluster, store or f"file://{place}/objects")
        ours, theirs = _both_sides(bench.measure, rounds, say)
        version = spark.version
    notes = {"store": store or "a folder", **_NOTES["write_store"]}
    return Report("write_store", ours, theirs, rounds, f"through a replica, Spark {version}", notes)


def run_levels(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure read levels: see `replitree_bench.table.levels`."""
    from replitree_bench.table.levels import LevelBench

    with new_cluster(folder) as (cluster, _), closing(LevelBench(cluster)) as bench:
        say(f"{rounds} rounds")
        found = list(map(bench.measure, range(rounds)))
    return Report("levels", medians(found), {}, rounds, "", _NOTES["levels"])


def run_quorum(*, peer: bool, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure inserts with a quorum: see `replitree_bench.table.quorum`."""
    if peer:
        find_program()
    with new_cluster(folder) as (cluster, place), ExitStack() as stack:
        systems: list[Ours | Peer] = [Ours(cluster)]
        name = ""
        if peer:
            theirs, name = _peer(stack, cluster, place)
            systems.append(theirs)

        def measure(system: Ours | Peer, number: int) -> dict[str, float]:
            many = quorum.INSERTS_MANY if isinstance(system, Ours) else quorum.INSERTS_MANY_PEER
            return quorum.measure(system, number, many=many)

        found = inserts.in_turn(systems, rounds, measure, say)
    return Report("quorum", medians(found[0]), medians(found[1]) if peer else {}, rounds, name, _NOTES["quorum"])


def run_growth(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure how inserts into sharded tables grow with the shards: see `replitree_bench.shards.growth`."""
    from replitree_bench.shards.sharded import growth_report

    with new_cluster(folder) as (cluster, _):
        return growth_report(cluster, rounds, say)


def run_sharded(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure inserts into sharded tables, and reads of them: see `replitree_bench.shards.sharded`."""
    from replitree_bench.shards.sharded import CutBench, ShardedBench

    with new_cluster(folder) as (cluster, _):
        # Reads first: after inserts into many shards the replicas merge for a while.
        say("reads at cuts")
        read = list(map(CutBench(cluster).measure, range(rounds)))
        say("inserts into tables of 1 to 64 shards")
        bench = ShardedBench(cluster)
        found = [each | bench.measure(number) for number, each in enumerate(read)]
    return Report("sharded", medians(found), {}, rounds, "", _NOTES["sharded"])


def run_joins(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure joins of sharded tables without a shuffle: see `replitree_bench.shards.joins`."""
    from replitree_bench.shards.joins import JoinBench

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        say("filling the tables")
        ours, shuffled = _both_sides(JoinBench(cluster, spark).measure, rounds, say)
    return Report("joins", ours, shuffled, rounds, f"Spark {spark.version} with a shuffle", _NOTES["joins"])


def run_moves(*, rounds: int, rate: float, say: Say, folder: Path | None = None) -> Report:
    """Measure moves of buckets under inserts and reads: see `replitree_bench.shards.moves`."""
    from replitree_bench.shards.moves import SETTINGS, MoveBench

    with new_cluster(folder, SETTINGS) as (cluster, _):
        found = [MoveBench(cluster, f"moved_{number}", rate, say).measure() for number in range(rounds)]
    return Report("moves", medians(found), {}, rounds, "", _NOTES["moves"])


def run_torn(*, peer: bool, limits: Limits, seed: int, say: Say, folder: Path | None = None) -> Report:
    """Count what kills leave of inserts over shards: see `replitree_bench.shards.torn`."""
    from replitree_bench.shards import torn

    if peer:
        find_program()
    theirs, name = Measured(), ""
    with new_cluster(folder, replicas=torn.REPLICAS, shards=torn.SHARDS) as (cluster, place):
        ours = torn.measure(torn.OurShards(cluster), seed, limits, say=say)
        if peer:
            address = inserts.zookeeper_address(cluster.url)
            with ClickHouse(place / "clickhouse", address, torn.SERVERS, torn.SHARDS) as clickhouse:
                name = f"ClickHouse {clickhouse.version}, Distributed"
                say(name)
                theirs = torn.measure(torn.TheirShards(clickhouse), seed, limits, say=say)
    return Report("torn", medians([ours]), medians([theirs]), 1, name, _NOTES["torn"])


def run_merges(*, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure merging: see `replitree_bench.table.merges`."""
    from replitree_bench.selector.year import measure_amplification
    from replitree_bench.table.merges import measure_kernel

    kernel = measure_kernel(rounds, folder=folder, say=say)
    say("simulating a year of inserts and merges")
    simulated = measure_amplification()
    ours = kernel | simulated["ours"]
    return Report("merges", ours, simulated["peer"], rounds, "ClickHouse's selector, by its formula", _NOTES["merges"])


def run_steady(*, seconds: float, rate: float, clients: int, say: Say, folder: Path | None = None) -> Report:
    """Measure a steady stream of inserts: see `replitree_bench.table.steady`."""
    from replitree_bench.table import steady

    with new_cluster(folder) as (cluster, _):
        measured = steady.measure(cluster, seconds=seconds, rate=rate, clients=clients, say=say)
    return Report("steady", medians([measured]), {}, 1, "", _NOTES["steady"])


def _tpch(place: Path, scale: float, say: Say) -> Path:
    """Generate TPC-H's tables, say that they are loaded next, and return their folder."""
    from replitree_bench.table import sql

    say(f"generating TPC-H at scale {scale:g}")
    generated = inserts.folder_for(place, "tpch")
    sql.generate(generated, scale)
    say("loading the tables")
    return generated


def run_sql(*, scale: float, rounds: int, say: Say, folder: Path | None = None, by_format: bool = False) -> Report:
    """Measure TPC-H by SQL: see `replitree_bench.table.sql`."""
    from replitree_bench.table import sql

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        bench = sql.SqlBench(spark, cluster, _tpch(place, scale, say), by_format=by_format)
        ours, plain = _both_sides(bench.measure, rounds, say)
    return Report("sql-format" if by_format else "sql", ours, plain, rounds, "plain Parquet", _NOTES["sql"])


def run_sql_elsewhere(*, scale: float, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure TPC-H by SQL on executors that do not see the replicas' disks: see `replitree_bench.table.elsewhere`."""
    from replitree_bench.table import elsewhere

    with _elsewhere(folder) as (spark, cluster, place):
        bench = elsewhere.ElsewhereSql(spark, cluster, _tpch(place, scale, say))
        ours, plain = _both_sides(bench.measure, rounds, say)
    return Report("sql-cluster", ours, plain, rounds, "plain Parquet, same executors", _NOTES["sql-cluster"])


def run_write_elsewhere(*, scale: float, rounds: int, say: Say, folder: Path | None = None) -> Report:
    """Measure loads by executors that do not see the replicas' disks: see `replitree_bench.table.elsewhere`."""
    from replitree_bench.table import elsewhere

    with _elsewhere(folder) as (spark, cluster, place):
        say(f"generating TPC-H lineitem at scale {scale:g}")
        lineitem = bulk.generate_lineitem(inserts.folder_for(place, "tpch"), scale)
        bench = elsewhere.ElsewhereLoads(spark, cluster, lineitem)
        ours, plain = _both_sides(bench.measure, rounds, say)
    name = "Spark's sorted Parquet write, same executors"
    return Report("write-cluster", ours, plain, rounds, name, _NOTES["write-cluster"])


def run_merge_into(*, rows: int, say: Say, folder: Path | None = None) -> Report:
    """Measure MERGE INTO beside inserts: see `replitree_bench.table.merge_into`."""
    from replitree_bench.table import merge_into

    with new_cluster(folder) as (cluster, place), _spark(place) as spark:
        say(f"merging into {rows:,} rows")
        measured = merge_into.measure(spark, cluster, rows)
    return Report("merge-into", medians([measured]), {}, 1, "", _NOTES["merge-into"])


def run_parts(*, partitions: int, with_all: bool, say: Say, folder: Path | None = None) -> Report:
    """Measure a table of many parts: see `replitree_bench.table.parts`."""
    from replitree_bench.table import parts

    with new_cluster(folder, replicas=parts.REPLICAS) as (cluster, _):
        measured = parts.measure_parts(cluster, say, partitions, with_all=with_all)
    return Report("parts", medians([measured]), {}, 1, "", _NOTES["parts"])


def run_longlife(
    *, peer: bool, rounds: int, say: Say, folder: Path | None = None, recovery_only: bool = False
) -> Report:
    """Measure long logs and recoveries: see `replitree_bench.table.longlife`."""
    from replitree_bench.table.restarts import SETTINGS

    if peer:
        find_program()
    with new_cluster(folder, SETTINGS) as (cluster, place):
        first = {} if recovery_only else _logs_and_copies(cluster, place, rounds, say)
        ours, theirs, name = _recoveries(cluster, place, rounds, say, peer=peer)
    return Report("longlife", first | ours, theirs, rounds, name, _NOTES["longlife"])


def _both_sides(
    measure: Callable[[int], tuple[Measured, Measured]], rounds: int, say: Say
) -> tuple[Measured, Measured]:
    """Measure round by round; return the medians of ours, and of what it is compared with."""
    found = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        found.append(measure(number))
    return medians([ours for ours, _ in found]), medians([other for _, other in found])


def _logs_and_copies(cluster: LocalCluster, place: Path, rounds: int, say: Say) -> Measured:
    """Measure what no peer has anything beside."""
    from replitree.coordination.url import parse_url
    from replitree.coordination.zookeeper import ZooKeeperCoordination
    from replitree_bench.table.copying import measure_copy
    from replitree_bench.table.longlife import measure_log

    session = ZooKeeperCoordination(cluster.access.url)
    try:
        logs = [measure_log(session, parse_url(cluster.url).root, say) for _ in range(rounds)]
    finally:
        session.close()
    copies: list[Measured] = []
    for number in range(rounds):
        say(f"fetching a gigabyte, round {number + 1} of {rounds}")
        copies.append(measure_copy(cluster, place, number))
    return medians(logs) | medians(copies)


def _recoveries(
    cluster: LocalCluster, place: Path, rounds: int, say: Say, *, peer: bool
) -> tuple[Measured, Measured, str]:
    """Measure recoveries, ours and the peer's in turn; return both, and the peer's name."""
    from replitree_bench.table.longlife import Recovering, measure_recovery
    from replitree_bench.table.restarts import OurRestarts, PeerRestarts

    systems: list[Recovering] = [OurRestarts(cluster)]
    name = ""
    with ExitStack() as stack:
        if peer:
            address = inserts.zookeeper_address(cluster.url)
            clickhouse = stack.enter_context(ClickHouse(place / "clickhouse", address, REPLICAS))
            systems.append(PeerRestarts(clickhouse))
            name = f"ClickHouse {clickhouse.version}"
        found: list[list[Measured]] = [[] for _ in systems]
        for number in range(rounds):
            say(f"recovery, round {number + 1} of {rounds}")
            pairs = list(zip(systems, found, strict=True))
            for system, measured in pairs if number % 2 == 0 else pairs[::-1]:
                measured.append(measure_recovery(system, number))
                say(f"{type(system).__name__}: {measured[-1]}")
    return medians(found[0]), medians(found[1]) if peer else {}, name


def _add_peer(systems: list[System], stack: ExitStack, cluster: LocalCluster, place: Path) -> str:
    """Start ClickHouse on our ZooKeeper; return its name."""
    peer, name = _peer(stack, cluster, place)
    systems.append(peer)
    return name


def _peer(stack: ExitStack, cluster: LocalCluster, place: Path) -> tuple[Peer, str]:
    """Start ClickHouse on our ZooKeeper; return it and its name."""
    address = inserts.zookeeper_address(cluster.url)
    clickhouse = stack.enter_context(ClickHouse(place / "clickhouse", address, REPLICAS))
    return Peer(clickhouse), f"ClickHouse {clickhouse.version}"


def _spark_loads(cluster: LocalCluster, place: Path, rounds: int, say: Say) -> tuple[Measured, Measured]:
    """Load lineitem into a table and into plain files, in turn."""
    say("generating TPC-H lineitem")
    lineitem = bulk.generate_lineitem(inserts.folder_for(place, "tpch"))
    loaded: list[Measured] = []
    plain: list[Measured] = []
    with _spark(place) as spark:
        load = bulk.SparkLoad(spark, cluster, lineitem, inserts.folder_for(place, "plain"))
        load.into_parquet(rounds)  # warms Spark up
        load.into_table(rounds)
        for number in range(rounds):
            say(f"Spark, round {number + 1} of {rounds}")
            steps = [(loaded, load.into_table), (plain, load.into_parquet)]
            for target, step in steps if number % 2 == 0 else steps[::-1]:
                target.append(step(number))
    return medians(loaded), medians(plain)


_NOTES: Mapping[str, Mapping[str, str]] = {
    "parts": {"client": "client and replicas share this machine; three replicas, one after the other is waited for"},
    "inserts": {
        "durability": "ours syncs parts to disk before it acknowledges, the peer does not",
        "rows": "ours sends 100 rows as Arrow with each insert, the peer's server makes them from numbers()",
    },
    "bulk": {
        "durability": "ours syncs parts to disk before it acknowledges; ClickHouse and plain Spark do not",
        "spark": "plain Spark: sortWithinPartitions and zstd Parquet of the same rows",
    },
    "steady": {
        "durability": "parts and merges are synced to disk",
        "parts": "looked at twice a second on each replica; what was there for a shorter time may have been missed",
    },
    "read_store": {"kept": "nothing between two reads", "source": 'format("replitree"): tasks read with Arrow'},
    "write_store": {
        "peer": "tasks leave the files on a replica's disk, and the replica puts them",
        "read": "replica_read_bytes are of files; of each file in the store a replica reads at most 64 KB besides",
    },
    "merge-into": {"rows": "after the ten statements they are those of DuckDB, and the writers' rows are there once"},
    "sql-cluster": {
        "peer": "the same executors on copies of the table's own files, in a folder that they see",
        "bytes": "what Spark reads of the copies is what its pruning leaves; the peer has no requests",
    },
    "write-cluster": {
        "durability": "ours syncs parts to disk before it acknowledges; plain Spark does not",
        "machine": "executors, replicas and driver share the cores",
    },
    "sql": {"peer": "plain Spark on copies of the table's own files"},
    "read": {"peer": "plain Spark on the table's own files"},
    "engines": {
        "dataset": "Arrow reads, and every byte is compared; for the other keys the engine reads verified files by itself",
        "peer": "each engine's own Parquet reader on the table's files, which compares nothing",
    },
    "streams": {
        "durability": "ours syncs parts to disk on the replica before Spark goes on; the Parquet sink syncs nothing",
        "machine": "Spark and two replicas share the cores; each batch has its place in a table's log, in ZooKeeper",
    },
    "joins": {"shards": "two, so that Spark joins in two tasks; with a shuffle it has as many as it likes"},
    "moves": {"written": "the source writes what stays anew, without the rows that moved: deleted_times"},
    "packing": {"read": "the client is on the replica's machine, and opens the files of parts itself"},
    "quorum": {
        "durability": "both replicas of ours have synced the part before it counts; the peer syncs nothing",
        "in flight": "the peer lets one insert be open at a time and refuses the others; its clients say them again",
        "rows": "ours sends 100 rows as Arrow with each insert, the peer's server makes them from numbers()",
    },
    "sharded": {"machine": "clients, replicas and ZooKeeper share the cores; every insert is synced before it counts"},
    "torn": {
        "kills": "the same servers in the same order, each when the last one serves again; some writers give up at an error",
        "reads": "ours stand at one cut of both shards; the peer's Distributed table asks a replica of each shard",
    },
    "levels": {"reader": "one client at replica 2; inserts go to replica 1"},
    "longlife": {
        "copy": "what the lost replica fetches over loopback, beside a synced copy of the same files; see table/copying.py",
        "durability": "ours syncs fetched parts to disk, the peer does not",
        "log": "pulling and cleaning are the protocol's procedures in one process, on the same ZooKeeper",
    },
    "merges": {
        "durability": "every merge is synced to disk, and is a process of its own",
        "simulation": "write_amplification and part counts are simulated, both selectors on one stream",
    },
}
