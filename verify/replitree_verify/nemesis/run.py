"""A run: visitors on a table of its own, strikes, closing reads, a verdict.

Guarantees: a cluster of which a server does not say that it is one for tests is not touched; other tables are not read or
changed; the table is dropped when every promise was kept, and stays otherwise.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from replitree.client.connection import Connection, connect
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.errors import BadInput, ReplitreeError, Unavailable
from replitree.wire.history_format import Operation, encode_header, encode_line
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.judge import Verdict, check
from replitree_verify.histories.reading import read_clock, read_files
from replitree_verify.nemesis.overview import write_report
from replitree_verify.nemesis.shards import Hosted, hosted, with_transactions
from replitree_verify.nemesis.stream import CUT_LEVELS, LEVELS, DriverFault, SparkDriver, check_spark
from replitree_verify.nemesis.strikes import CommandedFault, NemesisFault, RunFailed, Strikes
from replitree_verify.nemesis.visitors import IDS, SCHEMA, Crowd

CONNECTIONS = 2
HISTORY, REPORT, SPARK = "history.jsonl", "report.html", "spark"
"""In the folder of a run: its history, its report, and the folder of the driver of Spark."""

CLOSING_S = 10.0
"""How long a closing read may take, in seconds."""

MOVING_S_MAX = 90.0
"""How long the log may move after the last client has ended, in seconds: a replica works at an insert for 60 s."""

SETTLE_LOOK_S = 0.5
LIMITS = {"parts_delay": 90_000, "parts_max": 100_000}
"""Settings of the table: inserts are small and many, and none is to be refused for that."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    Attributes
    ----------
    seed
        What visitors do, and which faults strike when, is drawn from it.
    seconds
        How long visitors act, and faults may begin.
    visitors
        How many there are.
    faults
        With what the cluster is hurt; may be empty.
    settle_s
        How long replicas may take, when all is healed, until they answer reads again, in seconds.
    spark
        Whether a driver of Spark brings a stream in and takes one out; to kill it is one of the faults.
    shards
        How many shards the table has; 0: it is not sharded.
    """

    seed: int
    seconds: float
    visitors: int
    faults: tuple[CommandedFault, ...]
    settle_s: float = 60.0
    spark: bool = False
    shards: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run found; `table` is there still unless everything was fine."""

    table: str
    replicas: tuple[str, ...]
    strikes: dict[str, int]
    verdict: Verdict


def run(connection: Connection, plan: Plan, folder: Path, say: Callable[[str], object]) -> Ran:
    """Carry out a plan on a cluster.

    Parameters
    ----------
    connection
        To the cluster.
    folder
        An empty folder; it has history and report afterwards.
    say
        Hears what is done.

    Raises
    ------
    BadInput
        The cluster is not marked as one for tests.
    SparkMissing
        The plan wants a driver of Spark, and PySpark is not installed: nothing was touched.
    RunFailed
        A command of a fault failed: what had struck is healed, unless the error says otherwise.  Or a visitor met an error that
        should never happen, which was printed.  Or the driver of Spark ended by itself, or brought nothing into the table.
    ReplitreeError
        The table could not be made or dropped.
    """
    access = connection.access
    if plan.spark:
        check_spark()
    replicas = check_marked(connection)
    table = connection.create_table(
        f"nemesis_{secrets.token_hex(4)}", SCHEMA, order_by="id", partition_by="shelf", settings=LIMITS,
        feed="1 day" if plan.spark else None,
        # Each shard of a sharded table is where the cluster places it.
        **({"shard_by": "id", "shards": plan.shards} if plan.shards else {"wait_replicas": len(replicas)}),
    )  # fmt: skip
    tables = hosted(connection, table, replicas)
    say(f"table {table.name} on {', '.join(replicas)}; history and report: {folder}")
    files = [folder / f"clients-{number}.jsonl" for number in range(CONNECTIONS)]
    closing = folder / "closing.jsonl"
    with contextlib.ExitStack() as opened:
        driver = None
        if plan.spark:
            driver = SparkDriver(
                access, folder / SPARK, table=table.name, first=plan.visitors * IDS, seed=plan.seed,
                # A batch that goes into several shards can't have one.
                quorum=0 if plan.shards else min(2, len(replicas)), levels=CUT_LEVELS if plan.shards else LEVELS,
            )  # fmt: skip
            opened.callback(driver.close)
            driver.launch()
            files.append(driver.history)
            # The seconds of the plan are those in which it can be killed, too.
            driver.wait_begun()
        faults: tuple[NemesisFault, ...] = plan.faults
        if driver is not None:
            faults = (*faults, DriverFault(driver))
        strikes = Strikes(faults, plan.seed, say)
        crowd_files = files[:CONNECTIONS]
        if not _act(access, table, replicas, plan, crowd_files, strikes if faults else None):
            raise RunFailed(
                f"a visitor met an error that should never happen (above); table {table.name} stays as it is"
            )
        say("everything is healed; each replica is read at once more")
        wait_until_well(tables, plan.settle_s)
        if driver is None:
            read_closing(table.name, tables, closing, CLOSING_S)
        else:
            read_closing_with_stream(table.name, tables, closing, driver)
    stamped = (access.url, table.name) if plan.shards else None
    verdict, operations = judge([*files, closing], folder / HISTORY, stamped)
    write_report(folder / REPORT, f"{table.name}, seed {plan.seed}", verdict, operations, strikes.done)
    if verdict.fine:
        connection.drop_table(table.name)
    struck = [strike.kind for strike in strikes.done]
    return Ran(table.name, replicas, {kind: struck.count(kind) for kind in sorted(set(struck))}, verdict)


def _act(
    access: Access,
    table: Table,
    replicas: Sequence[str],
    plan: Plan,
    files: Sequence[Path],
    strikes: Strikes | None,
) -> bool:
    """Let visitors act, and faults strike, while there is time; return whether no visitor has failed."""
    with contextlib.ExitStack() as opened:
        recording = [
            opened.enter_context(connect(access.url, access.token, record=Recorder(file, name=file.stem)))
            for file in files
        ]
        crowd = Crowd(recording, table.name, replicas, plan.seed, range(plan.visitors))
        crowd.start()
        try:
            end = time.monotonic() + plan.seconds
            while time.monotonic() < end and not crowd.has_failed:
                if strikes is not None:
                    strikes.round()
                else:
                    time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        finally:
            crowd.stop()
            crowd.finish()
    return not crowd.has_failed


def read_closing_with_stream(name: str, tables: Sequence[Hosted], file: Path, driver: SparkDriver) -> None:
    """Read a table as `read_closing`, and record what the stream out has seen of the same versions of all shards.

    Raises
    ------
    RunFailed
        The driver has ended by itself, or has brought nothing into the table.
    """
    end = time.monotonic() + MOVING_S_MAX
    # The stream in ends first: each of its batches moves the log.
    with contextlib.suppress(Unavailable):
        driver.drain()
    if not driver.has_inserted():
        raise RunFailed(f"the Spark driver has brought no batch into {name}; its log is {driver.log}")
    while True:
        versions = read_closing(name, tables, file, CLOSING_S)
        driver.read_closing(file)
        if versions is None or time.monotonic() >= end:
            return
        with contextlib.suppress(ReplitreeError), contextlib.ExitStack() as held:
            taken = [
                held.enter_context(each.table.snapshot(level="linearizable", timeout_s=CLOSING_S)) for each in tables
            ]
            if tuple(each.index for each in taken) == versions:
                return
        # What came in between the stream may have, and no read has: all is read again.
        file.unlink()


def check_marked(connection: Connection) -> tuple[str, ...]:
    """Return the names of the replicas, if all say that they are a test cluster's.

    Raises
    ------
    BadInput
        One says that it is not, or does not answer; or there is none.
    """
    statuses = connection.servers()
    if not statuses:
        raise BadInput(f"{connection.url} has no replica: start them first")
    for each in statuses:
        if each.answer is None:
            raise BadInput(
                f"replica {each.name} does not answer: start it, so that it says whether this is a test cluster"
            )
        if each.answer.get("test_cluster") is not True:
            raise BadInput(
                f"replica {each.name} is not marked as one of a test cluster, and a nemesis hurts what it is aimed at. If this"
                " cluster has no data that counts, set `test_cluster = true` in the configuration of each replica"
                " (`replitree up --set test_cluster=true`) and start them again"
            )
    return tuple(sorted({each.name for each in statuses}))


def wait_until_well(tables: Sequence[Hosted], settle_s: float) -> None:
    """Wait until each replica answers a linearizable read, or the time is over: then a closing read says so."""
    end = time.monotonic() + settle_s
    for table, replicas in tables:
        for name in replicas:
            while time.monotonic() < end:
                try:
                    table.replica(name).snapshot(level="linearizable", timeout_s=CLOSING_S).close()
                except ReplitreeError:
                    time.sleep(SETTLE_LOOK_S)
                else:
                    break


def read_closing(name: str, tables: Sequence[Hosted], file: Path, timeout_s: float) -> tuple[int, ...] | None:
    """Read the table at each replica, when all faults are over, and record it.

    A sharded table is read as often as a shard has replicas, at least twice, each time at other ones.  Closing reads are
    compared, so all have to show one version.  The log may still move when the last client has ended: a quorum is reached,
    a merge is proposed.  Then every replica is read again, for `MOVING_S_MAX`, and the last reads count.

    Parameters
    ----------
    name
        Of the table.
    tables
        What the table is to replicas.
    file
        The history of these reads; a new file.
    timeout_s
        How long the read of one replica may take, in seconds.

    Returns
    -------
    tuple[int, ...] | None
        The version of each shard that all reads had; None when they are not of one.
    """
    end = time.monotonic() + MOVING_S_MAX
    # Of several shards two reads that found the same versions show that no log moved between the first shard and the last.
    copies = max(min(len(tables), 2), *(len(replicas) for _, replicas in tables))
    while True:
        versions = set[tuple[int, ...]]()
        with contextlib.closing(Recorder(file, name="closing")) as recorder:
            for copy in range(copies):
                at = [replicas[copy % len(replicas)] for _, replicas in tables]
                closing = recorder.read(name, "linearizable", replica=" and ".join(at), closing=True)
                # A read that fails is recorded as failed, which is an anomaly here.
                with contextlib.suppress(ReplitreeError), closing as asked:
                    shown = [
                        table.replica(one).snapshot(level="linearizable", timeout_s=timeout_s)
                        for (table, _), one in zip(tables, at, strict=True)
                    ]
                    rows = [row for each in shown for row in each.to_arrow(["id"]).column("id").to_pylist()]
                    asked.show(rows, index=shown[0].index if len(tables) == 1 else None)
                    versions.add(tuple(each.index for each in shown))
        if len(versions) <= 1 or time.monotonic() >= end:
            return versions.pop() if len(versions) == 1 else None
        file.unlink()


def judge(files: Sequence[Path], history: Path, stamped: tuple[str, str] | None) -> tuple[Verdict, list[Operation]]:
    """Put files of one history into one, and judge that; `stamped` are the ensemble and the name of a sharded table."""
    clients = read_files(files)
    operations = [clients.operation(number) for number in range(len(clients))]
    if stamped is not None:
        operations = with_transactions(operations, *stamped)
    with history.open("wb") as file:
        file.write(encode_header(read_clock(files)))
        file.writelines(map(encode_line, operations))
    return check(read_files([history])), operations


__all__ = [
    "HISTORY",
    "REPORT",
    "SPARK",
    "Plan",
    "Ran",
    "check_marked",
    "judge",
    "read_closing",
    "read_closing_with_stream",
    "run",
    "wait_until_well",
]
