"""Tablets on directories: group commit, one client, and how quickly another process takes over.

Keys, ours beside a plain loop on the same disk in the same run::

    group_commit            commands of 1 KB per second, as many waiting as may; the loop writes the same batches to one file,
                            each with one `fdatasync`.  Ours has each byte in three directories, two of them synced before it
                            answers
    group_commit_copies     the same; this loop writes three files, and syncs them at once in three threads
    group_commit_one        in a group of one directory, beside the loop of one file
    one_client              milliseconds of a commit of 1 KB by one client, median; the loop: of a write of 1 KB and `fdatasync`
    one_client_p90_ms, …    other quantiles of these
    clients_16_per_s, …     commits of 1 KB by 16 threads that each wait for the answer
    recovery_s              until a tablet with 100,000 log entries and no snapshot is led, the group opened included
    restart_s               the same, when there is nothing but a snapshot
    restart_round_trips     how often members were asked for that, one after the other
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from replitree.bench.clients import run_clients
from replitree.bench.report import Measured, Report, medians, quantile
from replitree.storage.blob_folders import make_group, members_of, read_group
from replitree.storage.blob_group import BlobGroups, MemberThread
from replitree.storage.blob_member import BlobMember, Standing, Streams, open_members
from replitree.storage.durable import write_all
from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.bodies import encode_commands
from replitree.tablet.channels import in_one_group
from replitree.tablet.entries import LogEntry, encode
from replitree.tablet.ids import NOTHING, Generation, GroupId, Step, TabletId, log_entry
from replitree.tablet.member import Done, Failed, Look, Reply, Request, Write

COMMAND = bytes(1024)
COMMANDS = 20_000
ONE_CLIENT = 300
CLIENTS, CLIENT_COMMITS = 16, 3_000
RECOVERED = 100_000
WRITTEN_AT_ONCE = 5_000

GROUP = GroupId("bench")
NO_SNAPSHOTS = Settings(snapshot_entries=1 << 60, snapshot_bytes=1 << 60)


class Counting:
    """The machine: it counts its commands."""

    def begin(self) -> int:
        """Return nothing counted."""
        return 0

    def apply(self, state: int, command: bytes) -> tuple[int, bytes]:  # noqa: ARG002 - whatever it is
        """Count one."""
        return state + 1, b""

    def snapshot(self, state: int) -> bytes:
        """Return the count."""
        return state.to_bytes(8, "big")

    def restore(self, data: bytes) -> int:
        """Return the count."""
        return int.from_bytes(data, "big")


class Asked:
    """A member that counts how often it is asked, one time after the other, until its first blob.

    That is the zero entry of an election.  The blobs of a snapshot are read beside it, and not counted.

    Parameters
    ----------
    member
        Who answers.
    """

    def __init__(self, member: BlobMember) -> None:
        self.times = 0
        self._member = member
        self._is_counting = True

    def answer(self, request: Request) -> Reply:
        """Count, and answer."""
        self.times += self._is_counting and not isinstance(request, Look)
        self._is_counting &= not isinstance(request, Write)
        return self._member.answer(request)

    def standing(self) -> Standing | Failed:
        """Return what the member says."""
        return self._member.standing()

    def admit(self, session: int) -> Done | Failed:
        """Return what the member says."""
        return self._member.admit(session)

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Return what the member says."""
        return self._member.remember(seen)

    def streams(self) -> Streams | Failed:
        """Return what the member says."""
        return self._member.streams()


class TabletBench:
    """Groups of three directories, each round in new ones.

    Parameters
    ----------
    folder
        Where to make them.
    commands, recovered
        How many commands of a group commit, and entries of a recovery.
    """

    def __init__(self, folder: Path, commands: int = COMMANDS, recovered: int = RECOVERED) -> None:
        self._folder = folder
        self._commands = commands
        self._recovered = recovered
        self.latencies_s: list[float] = []

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Measure one round: ours, and the plain loop."""
        folder = self._folder / f"round-{number}"
        make_group(folder / "load", GROUP)
        with _leading(folder / "load", 1) as (tablet, _):
            per_s, batches = self._group_commit(tablet)
            ours, plain = self._one_client(tablet, folder)
            ours |= {"group_commit": per_s} | self._clients(tablet)
        ours["group_commit_copies"] = per_s
        plain["group_commit"] = self._commands / _synced_loop([folder / "loop"], batches)
        plain["group_commit_copies"] = self._commands / _synced_loop([folder / f"loop-{n}" for n in range(3)], batches)
        make_group(folder / "alone", GROUP, count=1)
        with _leading(folder / "alone", 1) as (tablet, _):
            ours["group_commit_one"], batches = self._group_commit(tablet)
        plain["group_commit_one"] = self._commands / _synced_loop([folder / "loop-one"], batches)
        return ours | self._recovery(folder / "recovery"), plain

    def _group_commit(self, tablet: Tablet[int]) -> tuple[float, list[int]]:
        """Return commands per second, and how large the batches were, in bytes."""
        before, begin = tablet.status().step, time.perf_counter()
        futures = [tablet.submit(COMMAND) for _ in range(self._commands)]
        for future in futures:
            future.result()
        seconds = time.perf_counter() - begin
        entries = tablet.status().step - before
        return self._commands / seconds, [len(COMMAND) * self._commands // entries] * entries

    def _one_client(self, tablet: Tablet[int], folder: Path) -> tuple[Measured, Measured]:
        """Commit and write in turn, so that whatever else the disk does hits both."""
        ours, plain = list[float](), list[float]()
        descriptor = os.open(folder / "one", os.O_WRONLY | os.O_CREAT)

        def client() -> None:
            for _ in range(ONE_CLIENT):
                ours.append(_timed(lambda: tablet.execute(COMMAND)))
                plain.append(_timed(lambda: _write_synced(descriptor, COMMAND)))

        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(client).result()
        finally:
            os.close(descriptor)
        self.latencies_s += ours
        return _quantiles(ours), _quantiles(plain)

    def _clients(self, tablet: Tablet[int]) -> Measured:
        def commit(_: int) -> None:
            tablet.execute(COMMAND)

        load = run_clients(CLIENTS, CLIENT_COMMITS, commit)
        return {
            f"clients_{CLIENTS}_per_s": load.per_second,
            f"clients_{CLIENTS}_p50_ms": quantile(load.latencies_s, 0.5) * 1000,
            f"clients_{CLIENTS}_p99_ms": quantile(load.latencies_s, 0.99) * 1000,
        }

    def _recovery(self, folder: Path) -> Measured:
        file = make_group(folder, GROUP)
        with _leading(folder, 1):
            pass
        for member in members_of(folder, file):
            _fill(member, self._recovered)
        begin = time.perf_counter()
        with _leading(folder, 2) as (tablet, _):
            recovery_s = time.perf_counter() - begin
            assert tablet.read() == self._recovered, "a recovery that lost something measures nothing"
            tablet.snapshot()
        with _leading(folder, 3):
            pass  # what the snapshot replaced is collected, and no tail is left
        begin = time.perf_counter()
        with _leading(folder, 4) as (tablet, asked):
            restart_s, trips = time.perf_counter() - begin, asked
            assert tablet.read() == self._recovered
        return {"recovery_s": recovery_s, "restart_s": restart_s, "restart_round_trips": float(trips)}


@contextmanager
def _leading(folder: Path, generation: int) -> Iterator[tuple[Tablet[int], int]]:
    """Open a group and lead its tablet; give it, and how often a member was asked for that."""
    file = read_group(folder)
    members = [Asked(member) for member in members_of(folder, file)]
    obstacles = open_members(file.quorum, members, [each.incarnation for each in file.members])
    assert not any(obstacles)
    groups = BlobGroups({file.group: (file.quorum, [MemberThread(member) for member in members])})
    try:
        tablet = open_tablet(groups, Counting(), in_one_group(TabletId(1), file.group), settings=NO_SNAPSHOTS)
        asked = max(member.times for member in members)
        assert tablet.generation == generation
        with tablet:
            yield tablet, asked
    finally:
        groups.close()


def _fill(member: BlobMember, count: int) -> None:
    """Write entries of one command each, as a leader of generation 1 would have."""
    for begin in range(1, count + 1, WRITTEN_AT_ONCE):
        steps = range(begin, min(begin + WRITTEN_AT_ONCE, count + 1))
        ids = [log_entry(TabletId(1), Generation(1), Step(step)) for step in steps]
        body = encode_commands([b"command"])
        blobs = tuple((blob, encode(blob, LogEntry(NOTHING, Step(blob.step - 1), body=body))) for blob in ids)
        assert isinstance(member.answer(Write(blobs)), Done)


def _synced_loop(paths: Sequence[Path], batches: Sequence[int]) -> float:
    """Write batches of these sizes to each file, with one `fdatasync` for each; return the seconds."""
    descriptors = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) for path in paths]
    data = bytes(max(batches))
    try:
        with ThreadPoolExecutor(len(paths)) as pool:
            begin = time.perf_counter()
            for size in batches:
                if len(paths) == 1:
                    _write_synced(descriptors[0], data[:size])
                else:
                    list(pool.map(_write_synced, descriptors, [data[:size]] * len(paths)))
            return time.perf_counter() - begin
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _write_synced(descriptor: int, data: bytes) -> None:
    write_all(descriptor, data)
    os.fdatasync(descriptor)


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _quantiles(times: Sequence[float]) -> Measured:
    return {
        "one_client": quantile(times, 0.5) * 1000,
        "one_client_p90_ms": quantile(times, 0.9) * 1000,
        "one_client_p99_ms": quantile(times, 0.99) * 1000,
    }


def histogram(times: Sequence[float]) -> str:
    """Return how many times are in each doubling of a quarter of a millisecond, for people.

    >>> histogram([0.0002, 0.0003, 0.0004, 0.003])
    'up to 0.25 ms: 1, 0.5 ms: 2, 4 ms: 1'
    """
    found: Counter[float] = Counter()
    for each in times:
        bound = 0.25
        while each * 1000 > bound:
            bound *= 2
        found[bound] += 1
    return "up to " + ", ".join(f"{bound:g} ms: {found[bound]}" for bound in sorted(found))


def run_tablet(*, rounds: int, say: Callable[[str], None], folder: Path | None = None) -> Report:
    """Measure tablets on directories; the peer is a plain loop on the same disk."""
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    found = list[tuple[Measured, Measured]]()
    try:
        bench = TabletBench(place)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            found.append(bench.measure(number))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    notes = {
        "durability": "ours: three directories on one disk, two synced before a commit is acknowledged; the loop: one file",
        "batches": "the loop of group_commit writes as many batches as ours sent, with the same number of bytes of commands",
        "histogram": f"commits of one client, {histogram(bench.latencies_s)}",
    }
    ours, plain = medians([each[0] for each in found]), medians([each[1] for each in found])
    return Report("tablet", ours, plain, rounds, "write and fdatasync in a loop", notes)
