"""One run: clients on a table on an object store, while replicas and the store are killed; then the reckoning.

The clients and what they are told, the replicas and their links are those of `tests.faults`.  Everything that is drawn is drawn
from the seed; when things happen is up to the machine.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replitree.client.table import Table
from replitree.errors import ReplitreeError
from tests.faults import checks as row_checks
from tests.faults.changer import Changer
from tests.faults.cluster import FaultCluster
from tests.faults.harness import CLEANS_LATER, CLEANS_SOON, finish, settle
from tests.faults.scribe import Scribe
from tests.faults.workload import SCHEMA, Account, Client, Reader, Writer
from tests.shared.checks import SETTLE_S, Shares, nothing_is_lacking, objects_are_what_is_needed
from tests.shared.nemesis import SharedNemesis
from tests.shared.places import StorePlace, open_place
from tests.shared.schedule import rounds
from tests.storage.objects.seaweed import KEYS
from tests.waiting import wait_for

REPLICAS = 3
WRITERS, CHANGERS = 2, 2
TABLE = "t"

SETTINGS: tuple[tuple[dict[str, object], ...], ...] = (
    ({"old_parts_lifetime_s": 0.5}, {"old_parts_lifetime_s": 5.0}),
    ({"shared_cache_bytes": 0}, {"shared_cache_bytes": 100_000}, {}),
    ({"fetch_above_bytes": 0, "fetch_wait_s": 5.0}, {}),
    ({"merge_threads": 2}, {}),
    (CLEANS_SOON, CLEANS_LATER, {}),
    ({"lost_part_after_s": 3.0}, {}),
    ({"check_interval_s": 0.5}, {}),
)
"""Of each group one alternative is drawn; nothing: as it is by default."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does: so many rounds of faults on a table on a store of a kind."""

    seed: int
    rounds: int
    store: str = "seaweed"

    def settings(self) -> dict[str, object]:
        """Return the replicas' settings."""
        chance = random.Random(f"{self.seed}/shared settings")
        return {name: value for group in SETTINGS for name, value in chance.choice(group).items()}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw.

    Attributes
    ----------
    faults, requests
        How often what was hurt; how many requests to the store suffered what.
    answers
        What clients heard.
    looks
        After how many rounds store, coordination and disks were compared.
    left_over
        What fsck found at the end and removed, by kind.
    """

    seed: int
    store: str
    rounds: int
    faults: dict[str, int]
    requests: dict[str, int]
    answers: dict[str, int]
    acknowledged_rows: int
    looks: int
    parts: int
    objects: int
    left_over: dict[str, int]
    seconds: float
    settings: dict[str, object] = field(default_factory=dict)


def run(plan: Plan, folder: Path, say: Callable[[str], object] = print) -> Report:
    """Carry out a plan; raise AssertionError when the reckoning fails."""
    began = time.monotonic()
    os.environ.update(KEYS)  # for this process and all that it starts
    place = open_place(plan.store, folder / "store", plan.seed)
    try:
        with FaultCluster(folder, REPLICAS, servers=1, settings=plan.settings()) as cluster:
            return _run(plan, cluster, place, say, began)
    finally:
        place.close()


def _run(plan: Plan, cluster: FaultCluster, place: StorePlace, say: Callable[[str], object], began: float) -> Report:
    table = cluster.connection.create_table(
        TABLE, SCHEMA, order_by="id", partition_by="writer", storage=place.url, wait_replicas=REPLICAS
    )
    account, nemesis = Account(), SharedNemesis(cluster, place, say)
    clients = make_clients(plan, table, account, cluster.names)
    scribe = Scribe(cluster.ensemble.url, TABLE)
    shares = Shares.of(cluster, table, place.open())
    try:
        scribe.start()
        for client in clients:
            client.start()
        done, looks = hurt(plan, nemesis, clients)
        say("every fault is healed; the clients finish")
        place.calm()
        finish(clients, nemesis, say)
        parts, _ = settle(cluster, table, account, scribe)
        left_over = objects_are_what_is_needed(cluster, table, shares)
        objects = sum(map(len, shares.objects().values()))
        drop(cluster, shares)
    except BaseException:
        row_checks.write_down(cluster, table)
        raise
    finally:
        for client in clients:
            client.stop()
        scribe.close()
        shares.close()
    return Report(
        seed=plan.seed,
        store=plan.store,
        rounds=done,
        faults=dict(nemesis.struck),
        requests=place.done(),
        answers=dict(sorted(account.answers.items())),
        acknowledged_rows=sum(len(ids) for ids in account.acknowledged.values()),
        looks=looks,
        parts=parts,
        objects=objects,
        left_over=left_over,
        seconds=round(time.monotonic() - began, 1),
        settings=plan.settings(),
    )


def make_clients(plan: Plan, table: Table, account: Account, names: tuple[str, ...]) -> list[Client]:
    """Return all clients of a run, none started."""
    return [
        *(Writer(number, table, names, account, plan.seed) for number in range(WRITERS)),
        *(Changer(number, table, names, account, plan.seed) for number in range(CHANGERS)),
        Reader("reader", table, names, account, plan.seed),
    ]


def hurt(plan: Plan, nemesis: SharedNemesis, clients: Sequence[Client]) -> tuple[int, int]:
    """Carry out rounds until there are enough, or a client has failed; return how many, and after how many was compared."""
    schedule, done, looks = rounds(plan.seed, nemesis.scene), 0, 0
    while done < plan.rounds and all(client.failure is None for client in clients):
        nemesis.round(next(schedule))
        looks += nothing_is_lacking(nemesis.cluster.connection, TABLE)
        done += 1
    return done, looks


def drop(cluster: FaultCluster, shares: Shares) -> None:
    """Drop the table; its objects go."""

    def is_dropped() -> bool:
        try:
            cluster.connection.drop_table(TABLE)
        except ReplitreeError:
            threading.Event().wait(0.2)
            return False
        return True

    wait_for(is_dropped, "the table is dropped", SETTLE_S)
    wait_for(lambda: not shares.objects(), lambda: f"its objects are gone: {list(shares.objects())[:5]}", SETTLE_S)
