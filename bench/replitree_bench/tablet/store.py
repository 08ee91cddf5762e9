"""Tablets on an object store: latency, commits per second, and what they cost.

Keys, ours beside a plain loop of one PUT and one GET on the same store in the same run::

    one_client              milliseconds of a commit of 1 KB by one client, median; the loop: of one PUT of 1 KB, then one GET
    one_client_p99_ms       the same, of a hundred the slowest
    clients_64_per_s, …     commits of 1 KB by 64 threads that each wait for the answer; p50 and p99 in milliseconds
    puts_per_batch, …       PUTs and GETs for each log entry with these clients; how many commits an entry has
    cost_per_million        US dollars that the requests of a million such commits cost, at the prices below
    recovery_s, …           until a tablet with 1,000 log entries and no snapshot is led, the opening included; its requests,
                            with all that the new leader asks for beside until nothing is left to be mended
    restart_s               until it is led again when there is nothing but a snapshot, the opening included
    restart_round_trips     how many of the requests for that wait for one another: a request that is sent before another one is
                            answered waits not for that.  Each takes a moment longer then, so that those overlap which may
    restart_first_round_trips   the same for the first opening in a process, which tries what the store can do
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from replitree.storage.objects import ObjectStore, open_store
from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.core.pace import STORE_FLIGHTS, Limits
from replitree.tablet.group.ids import TabletId
from replitree.tablet.group.openings import open_group
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.asking import performed
from replitree.tablet.members.group import BlobGroups, MemberPool
from replitree.tablet.members.store import BlobStore, make_blob_store
from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Measured, Report, medians, quantile
from replitree_bench.tablet.directories import COMMAND, GROUP, Counting

PUT_DOLLARS, GET_DOLLARS = 5.0, 0.4
"""For a million requests of S3 Standard in us-east-1, as listed: PUT and LIST, GET."""

ONE_CLIENT = 100
CLIENTS, CLIENT_COMMITS = 64, 2_000
RECOVERED = 1_000
REQUEST_S = 0.05
"""So much longer each request takes while round trips are counted, in seconds."""

SETTINGS = Settings(limits=Limits(flights=STORE_FLIGHTS), look_s=60.0, snapshot_entries=1 << 60, snapshot_bytes=1 << 60)
"""As many entries on their way as of `replitree tablet serve`, and nothing else meanwhile."""

_KINDS = {"create": "put", "replace": "put", "list": "put", "get": "get", "get_tagged": "get"}
_KINDS |= {"get_range": "get", "delete": "delete"}
"""What each call is, as a store counts it; a listing has the price of a PUT."""


class Counted:
    """An object store that counts what it is asked.

    Parameters
    ----------
    objects
        The store.

    Attributes
    ----------
    asked
        How many requests, by kind.
    trips
        Who else counts.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.asked: Counter[str] = Counter()
        self.trips: Trips | None = None
        self._objects = objects

    def __getattr__(self, name: str) -> Any:
        """Return what the store has, counted."""
        found = getattr(self._objects, name)
        kind = _KINDS.get(name)
        if kind is None:
            return found

        def request(*arguments: Any) -> Any:
            self.asked[kind] += 1
            return found(*arguments) if self.trips is None else self.trips.taken(lambda: found(*arguments))

        return request


class Trips:
    """Counts how many requests wait for one another, and makes each take a moment.

    Attributes
    ----------
    number
        The most requests so far of which each was sent after the one before was answered.
    """

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()

    def taken(self, request: Callable[[], Any]) -> Any:
        """Send a request; a listing to its end."""
        with self._lock:
            mine = self.number + 1
        time.sleep(REQUEST_S)
        try:
            found = request()
            return list(found) if isinstance(found, Iterator) else found
        finally:
            with self._lock:
                self.number = max(self.number, mine)


class OneStore:
    """A group of one member on a store, as `open` takes it.

    Parameters
    ----------
    groups, member
        What runs procedures on it; its member.
    """

    def __init__(self, groups: BlobGroups, member: BlobStore) -> None:
        self.run = groups.run
        self.missed = groups.missed
        self.fence_seen = member.fence_seen


class StoreBench:
    """A tablet on a store, each round in a place of its own.

    Parameters
    ----------
    url
        The store; what is made there stays.
    commits, recovered
        How many commits by many clients, and entries of a recovery.
    """

    def __init__(self, url: str, commits: int = CLIENT_COMMITS, recovered: int = RECOVERED) -> None:
        self._url = url
        self._commits = commits
        self._recovered = recovered

    def measure(self) -> tuple[Measured, Measured]:
        """Measure one round: ours, and the plain loop."""
        objects = Counted(open_store(_below(self._url, f"bench-{secrets.token_hex(4)}")))
        make_blob_store(cast("ObjectStore", objects), str(GROUP), 0, "bench")
        with _leading(objects) as tablet:
            ours, plain = self._one_client(tablet, objects)
            ours |= self._clients(tablet, objects)
            while tablet.status().step < self._recovered:
                tablet.submit(COMMAND).result()
        before, begin = Counter(objects.asked), time.perf_counter()
        with _leading(objects) as tablet:
            ours["recovery_s"] = time.perf_counter() - begin
            while not tablet.status().is_mended:
                time.sleep(0.001)
            asked = objects.asked - before
        ours["recovery_gets"], ours["recovery_puts"] = float(asked["get"]), float(asked["put"])
        return ours | self._restarts(objects), plain

    def _restarts(self, objects: Counted) -> Measured:
        with _leading(objects) as tablet:
            tablet.snapshot()
        with _leading(objects):
            pass  # what the snapshot replaced is collected, and no tail is left
        begin = time.perf_counter()
        with _leading(objects):
            found = {"restart_s": time.perf_counter() - begin}
        for key, probes in (("restart_round_trips", False), ("restart_first_round_trips", True)):
            objects.trips = trips = Trips()
            with _leading(objects, probes=probes):
                found[key] = float(trips.number)
                objects.trips = None
        return found

    def _one_client(self, tablet: Tablet[int], objects: Counted) -> tuple[Measured, Measured]:
        """Commit, and put and get, in turn, so that whatever else the store does hits both."""
        ours, plain = list[float](), list[float]()

        def client() -> None:
            for number in range(ONE_CLIENT):
                ours.append(_timed(lambda: tablet.execute(COMMAND)))
                plain.append(_timed(partial(_put_and_get, objects, number)))

        with ThreadPoolExecutor(1) as pool:
            pool.submit(client).result()
        return _quantiles(ours), _quantiles(plain)

    def _clients(self, tablet: Tablet[int], objects: Counted) -> Measured:
        before, entries = Counter(objects.asked), tablet.status().step

        def commit(_: int) -> None:
            tablet.execute(COMMAND)

        load = run_clients(CLIENTS, self._commits, commit)
        asked, batches = objects.asked - before, tablet.status().step - entries
        dollars = asked["put"] * PUT_DOLLARS + asked["get"] * GET_DOLLARS
        return {
            f"clients_{CLIENTS}_per_s": load.per_second,
            f"clients_{CLIENTS}_p50_ms": quantile(load.latencies_s, 0.5) * 1000,
            f"clients_{CLIENTS}_p99_ms": quantile(load.latencies_s, 0.99) * 1000,
            "commits_per_batch": self._commits / batches,
            "puts_per_batch": asked["put"] / batches,
            "gets_per_batch": asked["get"] / batches,
            "cost_per_million": dollars / self._commits,
        }


@contextmanager
def _leading(objects: Counted, *, probes: bool = False) -> Iterator[Tablet[int]]:
    """Open the group and lead its tablet; `probes`: as the first in a process."""
    member = BlobStore(cast("ObjectStore", objects), probes=probes)
    quorum = Quorum(GROUP, 1, 1)
    assert performed([member], open_group(quorum, ["bench"])).obstacles == (None,)
    groups = BlobGroups({GROUP: (quorum, [MemberPool(member)])}, patience_s=30.0)
    try:
        channels = in_one_group(TabletId(1), GROUP)
        with open_tablet(OneStore(groups, member), Counting(), channels, settings=SETTINGS) as tablet:
            yield tablet
    finally:
        groups.close()
        member.close()


def _put_and_get(objects: Counted, number: int) -> None:
    objects.create(f"loop/{number}", COMMAND)
    objects.get("state")


def _below(url: str, name: str) -> str:
    """Return the URL of a place below another one.

    >>> _below("s3://bucket/a?region=x", "b")
    's3://bucket/a/b?region=x'
    """
    place, mark, query = url.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{query}"


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _quantiles(times: list[float]) -> Measured:
    return {"one_client": quantile(times, 0.5) * 1000, "one_client_p99_ms": quantile(times, 0.99) * 1000}


def run_tablet_store(
    *, rounds: int, say: Callable[[str], None], store: str | None = None, folder: Path | None = None
) -> Report:
    """Measure a tablet on an object store; the peer is a plain loop on the same store.

    Parameters
    ----------
    rounds
        How many.
    say
        Takes a line for people.
    store
        URL of the store; None: a folder.
    folder
        Where the folder is made.
    """
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    found = list[tuple[Measured, Measured]]()
    try:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            found.append(StoreBench(store or f"file://{place}/objects").measure())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    notes = {
        "cost": f"US dollars of requests for a million commits: PUT {PUT_DOLLARS}, GET {GET_DOLLARS} a million; no storage",
        "flights": f"up to {SETTINGS.limits.flights} log entries on their way, each one PUT and one GET",
    }
    ours, plain = medians([each[0] for each in found]), medians([each[1] for each in found])
    return Report("tablet-store", ours, plain, rounds, "one PUT, then one GET, in a loop", notes)
