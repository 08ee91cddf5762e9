"""One run whose history is judged: clients that write down what they see, a nemesis, closing reads, a verdict.

::

    crowd 1 (clock ahead, fast) ─┐                      ┌─ zk1  ◀── late ── leader
    crowd 2 (clock behind, slow) ┼─▶ r1, r2, r3 ────────┼─ zk2
                                 │   some know one      └─ zk3
                                 ▼   server only
                        clients-*.jsonl ─▶ history.jsonl (with positions from the log) ─▶ verdict, report.html

Everything that is drawn is drawn from the seed: faults, the replicas' settings, which of them know one server of the ensemble
only, the clients' clocks, what they do.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from replitree.client.cluster import TOKEN_FILE
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.supervise import Supervised
from replitree.wire.history_format import Operation, encode_header, encode_line
from replitree_verify.histories.judge import Verdict, check
from replitree_verify.histories.reading import read_clock, read_files
from replitree_verify.histories.report import as_dict
from replitree_verify.nemesis.overview import Struck, write_report
from replitree_verify.nemesis.run import read_closing, read_closing_with_stream
from replitree_verify.nemesis.shards import Hosted, hosted, with_transactions
from replitree_verify.nemesis.stream import CUT_LEVELS, LEVELS, DriverFault, SparkDriver
from replitree_verify.nemesis.visitors import IDS, SCHEMA
from tests.faults import checks
from tests.faults.cluster import FaultCluster
from tests.faults.harness import draw_settings
from tests.faults.nemesis import Nemesis
from tests.faults.positions import with_positions
from tests.faults.schedule import RECORDED, rounds
from tests.faults.scribe import Scribe
from tests.faults.skew import draw_skew
from tests.faults.traffic import Order
from tests.waiting import wait_for

TABLE = "t"
PYTHON = (sys.executable, "-m")
CROWDS = 2
CROWD_END_S = 60.0
QUIET_S_MAX = 4.0
"""Longest time between two rounds of faults, in seconds: a cluster that is never well has nothing to lose."""

KILL_SHARE = 0.5
"""Of the rounds before which the driver of Spark is killed, where it has begun a batch."""

SHARD_REPLICAS = 2
"""Of each shard of a sharded table."""

CLOSING_S = 10.0
HISTORY, REPORT, RESULT = "history.jsonl", "report.html", "result.json"

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """What a run does.

    Attributes
    ----------
    seconds
        How long faults may begin; the closing reads and the verdict come on top.
    clients
        How many there are.
    spark
        Whether a driver of Spark brings a stream in and takes one out; it is killed before every second round.
    shards
        How many shards the table has, each with servers of its own; 0: it is not sharded.
    """

    seed: int
    seconds: float
    clients: int = 32
    replicas: int = 3
    kinds: tuple[str, ...] = RECORDED
    spark: bool = False
    shards: int = 0

    @property
    def servers(self) -> int:
        """How many servers there are: of a sharded table `SHARD_REPLICAS` for each shard."""
        return self.shards * SHARD_REPLICAS if self.shards else self.replicas

    def pinned(self) -> dict[str, str]:
        """Return the replicas that know one server of the ensemble only, and which: nobody, one of them, or each another."""
        chance = random.Random(f"{self.seed}/pinned")
        names = [f"r{number}" for number in range(1, self.servers + 1)]
        each = {name: f"zk{1 + number % 3}" for number, name in enumerate(names)}
        one = chance.choice(names)
        return chance.choice(({}, {one: chance.choice(sorted(each.values()))}, each))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a run saw."""

    seed: int
    rounds: int
    seconds: float
    pinned: dict[str, str]
    settings: dict[str, object]
    faults: dict[str, int]
    operations: dict[str, int]
    positions: bool
    fold_compared: bool
    verdict: Verdict = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "verdict"}
        return {**found, "verdict": as_dict(self.verdict)}


def run_judged(plan: JudgedPlan, folder: Path, say: Say = print) -> Judged:
    """Carry out a plan; the folder has history, report and result afterwards.

    Raises
    ------
    AssertionError
        The cluster did not come to rest, or not at the table that its log says.
    """
    began = time.monotonic()
    with FaultCluster(folder, plan.servers, settings=draw_settings(plan.seed), pinned=plan.pinned()) as cluster:
        table, tables = create(cluster, plan)
        nemesis = Nemesis(cluster, lambda name, part: checks.check_part(cluster, table, name, part), say)
        scribes = [Scribe(cluster.ensemble.url, each.name) for each, _ in tables]
        crowds = [Crowd(number, plan, cluster) for number in range(CROWDS)]
        driver = driver_of(plan, cluster) if plan.spark else None
        try:
            for scribe in scribes:
                scribe.start()
            wait_for(lambda: all(crowd.has_begun for crowd in crowds), "the clients begin")
            done, killed = hurt(plan, nemesis, crowds, driver)
            say("every fault is healed; the clients finish")
            finish(crowds, nemesis)
            compared = close(cluster, tables, scribes, driver)
        except Exception:
            checks.write_down(cluster, table)
            raise
        finally:
            for crowd in crowds:
                crowd.kill()
            if driver is not None:
                driver.close()
            for scribe in scribes:
                scribe.close()
        # The ensemble is asked, so it runs yet.
        verdict, operations = judge(folder, scribes, [] if driver is None else [driver.history], cluster.ensemble.url)
    struck = [*killed, *(Struck(strike.kind, str(strike), begin, end) for strike, begin, end in nemesis.done)]
    write_report(folder / REPORT, f"seed {plan.seed}", verdict, operations, struck)
    faults = nemesis.struck + Counter(each.kind for each in killed)
    judged = Judged(
        plan.seed, done, round(time.monotonic() - began, 1), plan.pinned(), draw_settings(plan.seed),
        dict(sorted(faults.items())), count(operations), all(each.missed is None for each in scribes), compared, verdict,
    )  # fmt: skip
    (folder / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(judged.as_dict()), indent=1))
    return judged


class Crowd:
    """A process of clients (`tests.faults.traffic`)."""

    def __init__(self, number: int, plan: JudgedPlan, cluster: FaultCluster) -> None:
        mine = plan.clients // CROWDS
        order = Order(
            url=cluster.ensemble.url,
            token_file=str(cluster.folder / TOKEN_FILE),
            table=TABLE,
            replicas=cluster.names,
            seed=plan.seed,
            first=number * mine,
            clients=mine,
            folder=str(cluster.folder),
            skew=draw_skew(random.Random(f"{plan.seed}/skew-{number}")),
        )
        file = cluster.folder / f"crowd-{number}.json"
        file.write_bytes(msgspec.json.encode(order))
        self._folder, self._first = cluster.folder, order.first
        self._log = cluster.folder / f"crowd-{number}.log"
        self._process = Supervised([*PYTHON, "tests.faults.traffic", str(file)], self._log)

    @property
    def has_begun(self) -> bool:
        """Whether one of its clients has asked for something, or it has ended."""
        files = self._folder.glob(f"clients-{self._first}-*.jsonl")
        return not self.is_well or any(file.read_bytes().count(b"\n") > 1 for file in files)

    @property
    def is_well(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Let every client begin nothing new."""
        self._process.terminate()

    def finish(self) -> None:
        """Wait until every client has ended what it has begun; fail when one met what should never happen."""
        code = self._process.wait(CROWD_END_S)
        assert code == 0, f"the clients ended with {code}: {self._log.read_text('utf-8', 'replace')[-3000:]}"

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self.is_well:
            self._process.kill()
            self._process.wait(CROWD_END_S)


def driver_of(plan: JudgedPlan, cluster: FaultCluster) -> SparkDriver:
    """Return a driver of Spark that has been started."""
    access = Access(cluster.ensemble.url, (cluster.folder / TOKEN_FILE).read_text("utf-8").strip())
    made = SparkDriver(
        access, cluster.folder / "spark", table=TABLE, first=plan.clients * IDS, seed=plan.seed,
        # A batch that goes into several shards can't have a quorum.
        quorum=0 if plan.shards else 2, levels=CUT_LEVELS if plan.shards else LEVELS,
    )  # fmt: skip
    made.launch()
    return made


def hurt(
    plan: JudgedPlan, nemesis: Nemesis, crowds: list[Crowd], driver: SparkDriver | None
) -> tuple[int, list[Struck]]:
    """Carry out rounds of faults while there is time; return how many, and when the driver was killed."""
    end, done, chance = time.monotonic() + plan.seconds, 0, random.Random(f"{plan.seed}/quiet")
    fault = None if driver is None else DriverFault(driver)
    killed: list[Struck] = []
    for each in rounds(plan.seed, nemesis.scene, plan.kinds):
        if time.monotonic() >= end or not all(crowd.is_well for crowd in crowds):
            break
        quiet = replace(each, quiet_s=chance.uniform(0.0, QUIET_S_MAX))
        if fault is not None and fault.can_hurt() and chance.random() < KILL_SHARE:
            begin = time.monotonic_ns()
            fault.hurt()
            # The next driver starts Java while replicas are hurt.
            fault.mend()
            killed.append(Struck(fault.name, fault.text, begin, time.monotonic_ns()))
        nemesis.round(quiet)
        done += 1
    return done, killed


def finish(crowds: list[Crowd], nemesis: Nemesis) -> None:
    """Let everything be well, and the clients end."""
    nemesis.calm()
    for crowd in crowds:
        crowd.stop()
    for crowd in crowds:
        crowd.finish()


def create(cluster: FaultCluster, plan: JudgedPlan) -> tuple[Table, list[Hosted]]:
    """Create the table; return it, and what it is to replicas."""
    sharding: dict[str, Any] = {"shard_by": "id", "shards": plan.shards, "replicas": SHARD_REPLICAS, "buckets": 64}
    table = cluster.connection.create_table(
        TABLE, SCHEMA, order_by="id", partition_by="shelf", settings={"parts_delay": 90_000, "parts_max": 100_000},
        feed="1 day" if plan.spark else None, wait_replicas=SHARD_REPLICAS if plan.shards else plan.replicas,
        **(sharding if plan.shards else {}),
    )  # fmt: skip
    return table, hosted(cluster.connection, table, cluster.names)


def close(
    cluster: FaultCluster,
    tables: list[Hosted],
    scribes: list[Scribe],
    driver: SparkDriver | None,
) -> bool:
    """Wait until all replicas are equal and well, and read at each of them; return whether the fold was compared."""
    for scribe in scribes:
        if scribe.failure is not None:
            raise scribe.failure
    closing = cluster.folder / "closing.jsonl"
    if driver is not None:
        # Before replicas are compared: the stream in ends here.
        read_closing_with_stream(TABLE, tables, closing, driver)
    for table, names in tables:
        checks.wait_until_equal(table, names)
        checks.check_health(cluster, table, names)
    if driver is None:
        read_closing(TABLE, tables, closing, CLOSING_S)
    compared = [checks.check_fold(table, names, scribe) for (table, names), scribe in zip(tables, scribes, strict=True)]
    for scribe in scribes:
        checks.check_log(cluster, scribe)
    checks.check_logs(cluster)
    return all(compared)


def judge(folder: Path, scribes: list[Scribe], more: list[Path], url: str) -> tuple[Verdict, list[Operation]]:
    """Put what all clients, and Spark, have recorded into one history, with positions if the log is known; judge that."""
    files = sorted([*folder.glob("clients-*.jsonl"), folder / "closing.jsonl", *more])
    clients = read_files(files)
    operations = [clients.operation(number) for number in range(len(clients))]
    if len(scribes) > 1:
        operations = with_transactions(operations, url, TABLE)
    elif scribes[0].missed is None:
        operations = with_positions(operations, scribes[0].log)
    history = folder / HISTORY
    with history.open("wb") as file:
        file.write(encode_header(read_clock(files)))
        file.writelines(map(encode_line, operations))
    return check(read_files([history])), operations


def count(operations: list[Operation]) -> dict[str, int]:
    """Count operations by what was asked and what was heard."""
    kinds = Counter(
        f"{each.level or ('quorum' if each.quorum > 1 else 'insert')} {each.outcome}" for each in operations
    )
    return {"all": len(operations), **dict(sorted(kinds.items()))}
