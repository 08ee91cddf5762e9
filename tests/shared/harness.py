"""One run: clients on a table on an object store, while replicas and the store are killed; then the reckoning.

The clients and what they are told, the replicas and their links are those of `tests.faults`; besides there are jobs whose tasks
put into the store (`tests.shared.jobs`), parts that are kept aside (`tests.shared.aside`), and moves (`tests.shared.switcher`).
Everything that is drawn is drawn from the seed; when things happen is up to the machine.  So there are up to `MORE_ROUNDS` more
than were asked for, until each of `ACTIONS` was done; what is missing then is waited for while requests to the store suffer.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replitree.client.table import Table
from replitree.errors import ReplitreeError
from tests.faults import checks as row_checks
from tests.faults.changer import Changer
from tests.faults.cluster import FaultCluster
from tests.faults.harness import CLEANS_LATER, CLEANS_SOON, finish, settle
from tests.faults.schedule import Strike
from tests.faults.scribe import Scribe
from tests.faults.workload import SCHEMA, Account, Client, Reader, Writer
from tests.shared.aside import ATTACH, DETACH, FREEZE, Keeper
from tests.shared.checks import SETTLE_S, Shares, nothing_is_lacking, objects_are_what_is_needed
from tests.shared.jobs import BORROWED, JOB, JobWriter, let_all_age
from tests.shared.nemesis import SharedNemesis
from tests.shared.places import StorePlace, open_place
from tests.shared.schedule import STORE, rounds
from tests.shared.switcher import TO_DISK, TO_STORE, Switcher, bring_all_into_the_store
from tests.storage.objects.seaweed import KEYS
from tests.waiting import wait_for

REPLICAS = 3
WRITERS, CHANGERS, JOB_WRITERS = 2, 2, 2
TABLE = "t"

ACTIONS = (JOB, BORROWED, TO_STORE, TO_DISK, DETACH, ATTACH, FREEZE)
"""What clients have to have done while things were hurt."""

FEW_PARTS = {"parts_delay": 40, "parts_max": 200}
"""Settings of the table: on a slow machine inserts wait for merges, as each change is work for every part."""

MORE_ROUNDS = 6

LENDERS = 3
"""So many parts are made to borrow before objects are compared."""

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
    killed
        How often a replica, and how often the store, was killed.
    actions
        How often each of `ACTIONS` was done while things were hurt.
    looks
        After how many rounds store, coordination and disks were compared.
    borrowed
        Files that only borrowers need, when objects were compared in the end.
    left_over
        What fsck found at the end and removed, by kind.
    """

    seed: int
    store: str
    rounds: int
    faults: dict[str, int]
    killed: dict[str, int]
    actions: dict[str, int]
    requests: dict[str, int]
    answers: dict[str, int]
    acknowledged_rows: int
    looks: int
    parts: int
    objects: int
    borrowed: int
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
    def tell(text: str) -> None:
        say(f"{time.monotonic() - began:7.2f} s  {text}")

    table = cluster.connection.create_table(
        TABLE,
        SCHEMA,
        order_by="id",
        partition_by="writer",
        storage=place.url,
        settings=FEW_PARTS,
        wait_replicas=REPLICAS,
    )
    account, nemesis = Account(), SharedNemesis(cluster, place, say)
    jobs = [JobWriter(number, table, cluster.names, account, plan.seed) for number in range(JOB_WRITERS)]
    keeper = Keeper(0, table, cluster.names, account, plan.seed)
    switcher = Switcher(cluster, place.url, table, account, plan.seed)
    clients = [*make_clients(plan, table, account, cluster.names), *jobs, keeper, switcher]
    scribe = Scribe(cluster.ensemble.url, TABLE)
    shares = Shares.of(cluster, table, place.open())
    try:
        scribe.start()
        for client in clients:
            client.start()
        done, looks = hurt(plan, nemesis, clients, account)
        actions = {action: account.answers[action] for action in ACTIONS}
        tell("every fault is healed; the clients finish")
        place.calm()
        finish(clients, nemesis, say)
        keeper.read_frozen()
        let_all_age(cluster.folder)
        tell("all rows go into the store")
        bring_all_into_the_store(cluster, table, place.url)
        tell("rows are counted")
        parts, _ = settle(cluster, table, account, scribe)
        tell("parts borrow, and objects are compared")
        lend(table, jobs[0])
        row_checks.reckon(table, cluster.names, account)
        needed, left_over = objects_are_what_is_needed(cluster, table, shares)
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
        killed=killed(strike for strike, _, _ in nemesis.done),
        actions=actions,
        requests=place.done(),
        answers=dict(sorted(account.answers.items())),
        acknowledged_rows=sum(len(ids) for ids in account.acknowledged.values()),
        looks=looks,
        parts=parts,
        objects=objects,
        borrowed=needed.borrowed,
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


def hurt(plan: Plan, nemesis: SharedNemesis, clients: Sequence[Client], account: Account) -> tuple[int, int]:
    """Carry out rounds until there are enough, or a client has failed; return how many, and after how many was compared."""
    schedule, done, looks = rounds(plan.seed, nemesis.scene), 0, 0

    def missing() -> list[str]:
        return [action for action in ACTIONS if not account.answers[action]]

    def can_go_on() -> bool:
        return all(client.failure is None for client in clients)

    while can_go_on() and done < plan.rounds + (MORE_ROUNDS if missing() else 0):
        nemesis.round(next(schedule))
        looks += nothing_is_lacking(nemesis.cluster.connection, TABLE)
        done += 1
    nemesis.calm()
    if missing():
        for client in clients:
            if type(client) in (Writer, Changer):  # the others come to what is missing when the replicas are less busy
                client.stop()
    wait_for(lambda: not (missing() and can_go_on()), lambda: f"clients come to {missing()}", SETTLE_S)
    wait_for(lambda: nothing_is_lacking(nemesis.cluster.connection, TABLE), "the store is looked at", SETTLE_S)
    return done, looks + 1


def killed(strikes: Iterable[Strike]) -> dict[str, int]:
    """Count the processes that strikes have killed: replicas, and the store."""
    found: Counter[str] = Counter()
    for strike in strikes:
        if "kill" in strike.kind:
            found[STORE if strike.targets == (STORE,) else "replicas"] += len(strike.targets)
    return dict(found)


def lend(table: Table, jobs: JobWriter) -> None:
    """Let a part borrow, and stay as it is: in the end there are objects that only borrowers need."""
    table.pause_merges()
    for _ in range(LENDERS):
        jobs.change_one(
            wait_for(lambda: several if len(several := jobs.insert()) > 1 else None, "a job of several tasks")
        )


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
