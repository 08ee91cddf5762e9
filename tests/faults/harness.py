"""One run: clients and a nemesis on a real cluster, then the reckoning (see `tests.faults.checks`).

Everything that is drawn is drawn from the seed: the schedule of faults, what the clients do, and the replicas' settings, so
that rare paths (parts that are fetched instead of made, files that leave soon) are common in some runs.  When things happen is
up to the machine: a seed repeats the faults, not the outcome.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replitree.client.table import Table
from tests.faults import checks
from tests.faults.changer import Changer
from tests.faults.cluster import FaultCluster
from tests.faults.nemesis import Nemesis
from tests.faults.schedule import USUAL, rounds
from tests.faults.scribe import Scribe
from tests.faults.workload import SCHEMA, Account, Client, Reader, Writer

SLOW_S = 15.0
"""A client that takes longer to settle what it has begun is worth a line."""

CLEANS_SOON: dict[str, object] = {
    "min_replicated_logs_to_keep": 20,
    "max_replicated_logs_to_keep": 40,
    "clean_log_delay_s": 1.0,
    "clean_log_delay_random_s": 0.5,
}
"""With these the log is short, and whoever is away for some seconds is lost and takes over the state of another."""

CLEANS_LATER = {**CLEANS_SOON, "max_replicated_logs_to_keep": 2000}

SETTINGS: tuple[tuple[dict[str, object], ...], ...] = (
    ({"old_parts_lifetime_s": 2.0}, {"old_parts_lifetime_s": 20.0}, {}),
    ({"fetch_above_bytes": 0, "fetch_wait_s": 5.0}, {}, {}),
    ({"merge_threads": 2}, {}),
    ({"fetch_threads": 1}, {}),
    ({"merges_max": 2}, {}),
    (CLEANS_SOON, CLEANS_LATER, {}),
    ({"lost_part_after_s": 3.0}, {}),
    ({"check_interval_s": 0.5}, {}),
)
"""Of each group one alternative is drawn; nothing: as it is by default."""


def draw_settings(seed: int) -> dict[str, object]:
    """Draw the replicas' settings."""
    chance = random.Random(f"{seed}/settings")
    return {name: value for group in SETTINGS for name, value in chance.choice(group).items()}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    Attributes
    ----------
    rounds, seconds
        It ends after so many rounds of faults or so many seconds, whichever comes first; the reckoning comes on top.
    changers
        How many clients delete, update, merge, alter and drop meanwhile.
    mounted
        Whether every replica's data lie on a file system of their own (needs root).
    """

    seed: int
    rounds: int
    seconds: float
    replicas: int = 3
    writers: int = 3
    changers: int = 2
    kinds: tuple[str, ...] = USUAL
    mounted: bool = False

    def settings(self) -> dict[str, object]:
        """Return the replicas' settings."""
        return draw_settings(self.seed)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw."""

    seed: int
    rounds: int
    faults: dict[str, int]
    answers: dict[str, int]
    acknowledged_rows: int
    open_attempts: int
    parts: int
    log_entries: int
    restarts: int
    fold_compared: bool
    seconds: float
    settings: dict[str, object] = field(default_factory=dict)


def run(plan: Plan, folder: Path, say: Callable[[str], object] = print) -> Report:
    """Carry out a plan; raise AssertionError when the reckoning fails."""
    began = time.monotonic()
    with FaultCluster(folder, plan.replicas, settings=plan.settings(), mounted=plan.mounted) as cluster:
        limits = {"parts_delay": 90_000, "parts_max": 100_000}
        table = cluster.connection.create_table(
            "t", SCHEMA, order_by="id", partition_by="writer", settings=limits, wait_replicas=plan.replicas
        )
        account = Account()
        clients = make_clients(plan, table, account)
        nemesis = Nemesis(cluster, lambda name, part: checks.check_part(cluster, table, name, part), say)
        scribe = Scribe(cluster.ensemble.url, "t")
        try:
            scribe.start()
            for client in clients:
                client.start()
            done = hurt(plan, nemesis, clients)
            say("every fault is healed; the clients finish")
            finish(clients, nemesis, say)
            parts, compared = settle(cluster, table, account, scribe)
        except BaseException:
            checks.write_down(cluster, table)
            raise
        finally:
            for client in clients:
                client.stop()
            scribe.close()
        return Report(
            seed=plan.seed,
            rounds=done,
            faults=dict(nemesis.struck),
            answers=dict(sorted(account.answers.items())),
            acknowledged_rows=sum(len(ids) for ids in account.acknowledged.values()),
            open_attempts=len(account.open),
            parts=parts,
            log_entries=len(scribe.log),
            restarts=nemesis.restarts,
            fold_compared=compared,
            seconds=round(time.monotonic() - began, 1),
            settings=plan.settings(),
        )


def make_clients(plan: Plan, table: Table, account: Account) -> list[Client]:
    """Return all clients of a run, none started."""
    names = tuple(f"r{number}" for number in range(1, plan.replicas + 1))
    return [
        *(Writer(number, table, names, account, plan.seed) for number in range(plan.writers)),
        *(Changer(number, table, names, account, plan.seed) for number in range(plan.changers)),
        Reader("reader", table, names, account, plan.seed),
    ]


def hurt(plan: Plan, nemesis: Nemesis, clients: Sequence[Client]) -> int:
    """Carry out rounds of faults until there are enough, or a client has failed; return how many."""
    end = time.monotonic() + plan.seconds
    schedule = rounds(plan.seed, nemesis.scene, plan.kinds)
    done = 0
    while done < plan.rounds and time.monotonic() < end and all(client.failure is None for client in clients):
        nemesis.round(next(schedule))
        done += 1
    return done


def finish(clients: Sequence[Client], nemesis: Nemesis, say: Callable[[str], object]) -> None:
    """Let the clients settle what they have begun, and raise what one of them found."""
    nemesis.calm()
    for client in clients:
        client.stop()
    for client in reversed(clients):
        began = time.monotonic()
        client.finish(checks.SETTLE_S / 2)
        if time.monotonic() - began > SLOW_S:
            say(f"{client.name} took {time.monotonic() - began:.0f} s to settle: {client.doing}")
    for client in clients:
        if client.failure is not None:
            raise client.failure


def settle(cluster: FaultCluster, table: Table, account: Account, scribe: Scribe) -> tuple[int, bool]:
    """Reckon, before and after a restart of everything; return the number of parts, and whether the fold was compared."""
    if scribe.failure is not None:
        raise scribe.failure
    checks.reckon(table, cluster.names, account)
    checks.check_health(cluster, table)
    for name in cluster.names:
        cluster.process(name).stop()
        cluster.process(name).launch()
        cluster.process(name).wait_ready()
    parts = checks.reckon(table, cluster.names, account)
    compared = checks.check_fold(table, cluster.names, scribe)
    checks.check_health(cluster, table)
    checks.check_staging(cluster)
    checks.check_log(cluster, scribe)
    checks.check_logs(cluster)
    return parts, compared
