"""Tablets on directories: group commit, one client, and how quickly another process takes over.

Keys, ours beside a plain loop on the same disk in the same run::

    group_commit            commands of 1 KB per second of one client that gives 64 at a time (`submit_together`), as many as
                            may wait, and waits once.  Ours has each byte in three directories, two of them synced before it
                            answers.  The loop does the same work and nothing else: for each write of a member a write of as
                            many bytes and an `fdatasync`, three files in three threads that do not wait for each other, until
                            two are done
    group_commit_one_file   the same of ours; the loop writes one file, as the first member was written
    group_commit_each       given one by one, with a future for each (`submit`), beside one file
    group_commit_one        64 at a time in a group of one directory, beside one file
    one_client              milliseconds of a commit of 1 KB by one client, median; the loop: of a write of 1 KB and an
                            `fdatasync`, in turn with ours, when the third directory has been synced, too
    one_client_copies       the same of ours; the loop writes and syncs three files at once, in three threads, until two are
                            done
    one_client_steady       of a client that begins the next commit at once, while the third directory may still be synced
    one_client_p90_ms, …    other quantiles of `one_client`
    clients_16_per_s, …     commits of 1 KB by 16 threads that each wait for the answer
    recovery_s              until a tablet with 100,000 log entries and no snapshot is led, the group opened included
    restart_s               the same, when there is nothing but a snapshot
    restart_round_trips     how often members were asked for that, one after the other, when the group is open
    restart_all_round_trips the same with the opening of the group
histogram                   of `one_client`, over all rounds
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core.bodies import encode_commands
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.core.entries import LogEntry, encode
from replitree.tablet.group.ids import NOTHING, Generation, GroupId, Step, TabletId, log_entry
from replitree.tablet.group.member import Done, Failed, Look, Reply, Request, Write
from replitree.tablet.group.openings import open_group
from replitree.tablet.members.asking import performed
from replitree.tablet.members.folders import make_group, members_of, read_group
from replitree.tablet.members.frames import bytes_of
from replitree.tablet.members.group import BlobGroups, MemberThread
from replitree.tablet.members.member import Admission, BlobMember, Rules, Standing, Streams
from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Measured, Report, medians, quantile
from replitree_bench.tablet.loops import SmallWrites, synced_loops

COMMAND = bytes(1024)
COMMANDS = 50_000
TOGETHER = 64
WARM = 2_000
ONE_CLIENT, PAUSE_S = 300, 0.0001
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

    Attributes
    ----------
    times, openings
        How often; how often for the opening of the group.
    writes
        The bytes of each write that it did: what was sent to it meanwhile is written together, and synced once.
    written
        How many blobs it has written.
    """

    def __init__(self, member: BlobMember) -> None:
        self.times = self.openings = 0
        self.writes: list[int] = []
        self.written = 0
        self._member = member
        self._is_counting = True

    def answer(self, request: Request) -> Reply:
        """Answer, and count."""
        reply = self._member.answer(request)
        self._count(request)
        return reply

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Answer, and count."""
        reply = self._member.answer_as(admission, request)
        self._count(request)
        return reply

    def _count(self, request: Request) -> None:
        self.times += self._is_counting and not isinstance(request, Look)
        if isinstance(request, Write):
            self._is_counting = False
            self.writes.append(bytes_of(request))
            self.written += len(request.blobs)

    def standing(self) -> Standing | Failed:
        """Count, and return what the member says."""
        self.openings += 1
        return self._member.standing()

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Count, and return what the member says."""
        self.openings += 1
        return self._member.admit(session, stood)

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Count, and return what the member says."""
        self.openings += 1
        return self._member.remember(seen)

    def streams(self) -> Streams | Failed:
        """Return what the member says."""
        return self._member.streams()

    def rules(self) -> Rules | Failed:
        """Return what the member says."""
        return self._member.rules()


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
        ours, plain = Measured(), Measured()
        make_group(folder / "load", GROUP)
        with _leading(folder / "load", 1) as (tablet, members):
            per_s, writes = self._group_commit(tablet, members, TOGETHER)
            ours["group_commit"] = ours["group_commit_one_file"] = per_s
            plain["group_commit"] = self._commands / synced_loops(folder / "loop", writes, 2)
            plain["group_commit_one_file"] = self._commands / synced_loops(folder / "loop-file", writes[:1], 1)
            ours["group_commit_each"], writes = self._group_commit(tablet, members, 1)
            plain["group_commit_each"] = self._commands / synced_loops(folder / "loop-each", writes[:1], 1)
            one, loop = self._one_client(tablet, members, folder)
            ours |= one | self._clients(tablet)
            plain |= loop
        make_group(folder / "alone", GROUP, count=1)
        with _leading(folder / "alone", 1) as (tablet, members):
            ours["group_commit_one"], writes = self._group_commit(tablet, members, TOGETHER)
        plain["group_commit_one"] = self._commands / synced_loops(folder / "loop-one", writes, 1)
        return ours | self._recovery(folder / "recovery"), plain

    def _group_commit(
        self, tablet: Tablet[int], members: Sequence[Asked], together: int
    ) -> tuple[float, list[list[int]]]:
        """Return commands per second, and the bytes of each write, for each member."""
        _submitted(tablet, WARM, together)
        _wait_for_all(members)
        for member in members:
            member.writes.clear()
        begin = time.perf_counter()
        _submitted(tablet, self._commands, together)
        seconds = time.perf_counter() - begin
        _wait_for_all(members)
        return self._commands / seconds, [list(member.writes) for member in members]

    def _one_client(self, tablet: Tablet[int], members: Sequence[Asked], folder: Path) -> tuple[Measured, Measured]:
        """Commit and write in turn, so that whatever else the disk does hits all."""
        ours, one, three, steady = list[float](), list[float](), list[float](), list[float]()

        def client() -> None:
            for _ in range(ONE_CLIENT):
                ours.append(_timed(lambda: tablet.execute(COMMAND)))
                _wait_for_all(members)
                one.append(_timed(loop.write_one))
                three.append(_timed(loop.write_two_of_three))
                loop.wait()
            steady.extend(_timed(lambda: tablet.execute(COMMAND)) for _ in range(ONE_CLIENT))

        with ExitStack() as stack:
            loop = stack.enter_context(SmallWrites(folder, COMMAND))
            stack.enter_context(ThreadPoolExecutor(1)).submit(client).result()
        self.latencies_s += ours
        copies = {"one_client_copies": quantile(three, 0.5) * 1000}
        found, plain = _quantiles(ours), _quantiles(one)
        found |= {"one_client_copies": found["one_client"], "one_client_steady": quantile(steady, 0.5) * 1000}
        return found, plain | copies | {"one_client_steady": plain["one_client"]}

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
        with _leading(folder, 4) as (tablet, members):
            restart_s, trips = time.perf_counter() - begin, max(member.times for member in members)
            openings = max(member.openings for member in members)
            assert tablet.read() == self._recovered
        restart = {"restart_round_trips": float(trips), "restart_all_round_trips": float(trips + openings)}
        return {"recovery_s": recovery_s, "restart_s": restart_s} | restart


@contextmanager
def _leading(folder: Path, generation: int) -> Iterator[tuple[Tablet[int], list[Asked]]]:
    """Open a group and lead its tablet; give it, and its members."""
    file = read_group(folder)
    members = [Asked(member) for member in members_of(folder, file)]
    obstacles = performed(members, open_group(file.quorum, [each.incarnation for each in file.members])).obstacles
    assert not any(obstacles)
    groups = BlobGroups({file.group: (file.quorum, [MemberThread(member) for member in members])})
    try:
        tablet = open_tablet(groups, Counting(), in_one_group(TabletId(1), file.group), settings=NO_SNAPSHOTS)
        assert tablet.generation == generation
        with tablet:
            yield tablet, members
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


def _submitted(tablet: Tablet[int], commands: int, together: int) -> None:
    """Give commands, so many at a time, and wait until all are committed."""
    futures: list[Future[bytes] | Future[list[bytes]]]
    if together == 1:
        futures = [tablet.submit(COMMAND) for _ in range(commands)]
    else:
        sizes = (min(together, commands - begin) for begin in range(0, commands, together))
        futures = [tablet.submit_together([COMMAND] * size) for size in sizes]
    for future in futures:
        future.result()


def _wait_for_all(members: Sequence[Asked]) -> None:
    """Wait until every member has written what the others have."""
    while len({member.written for member in members}) > 1:
        time.sleep(PAUSE_S)


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


def histogram(times: Sequence[float]) -> dict[str, int]:
    """Return how many times are in each doubling of a quarter of a millisecond.

    >>> histogram([0.0002, 0.0003, 0.0004, 0.003])
    {'0.25': 1, '0.5': 2, '4': 1}
    """
    found: Counter[float] = Counter()
    for each in times:
        bound = 0.25
        while each * 1000 > bound:
            bound *= 2
        found[bound] += 1
    return {f"{bound:g}": found[bound] for bound in sorted(found)}


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
        "third copy": "the loops of one client begin when the third directory has been synced, too",
        "durability": "ours: three directories on one disk, two synced before a commit is acknowledged",
        "loops": "group_commit: three files; others: one; as many writes and syncs as a member did, with as many bytes each",
    }
    ours, plain = medians([each[0] for each in found]), medians([each[1] for each in found])
    return Report("tablet", ours, plain, rounds, "write and fdatasync in a loop", notes, histogram(bench.latencies_s))
