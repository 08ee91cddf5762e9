"""What can be wrong with a cluster as a whole: coordination, disks, clocks, versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from replitree.client.admin.doctor_finding import DoctorFinding, Severity, count, listed, span
from replitree.client.admin.doctor_state import ClusterState, KeptTable, ServerState
from replitree.client.admin.moving import MovingTable
from replitree.protocol.sharded.places import is_shard_name, sharded_name

LATENCY_NOTICE_S = 0.1
LATENCY_WARNING_S = 1.0
"""A read of coordination that takes longer than this: every insert waits for at least one commit."""

NODES_NOTICE = 1_000_000
NODES_WARNING = 5_000_000
"""Nodes that ZooKeeper keeps in memory, about 1 KB each with everything around them."""

MOVES_IDLE_S = 300.0
"""For how long moves of buckets may make no progress: a batch of four million rows takes a minute."""

CLOCKS_NOTICE_S = 2.0
CLOCKS_WARNING_S = 60.0
"""How far clocks may be apart.  The protocol asks no clock; people who compare logs do."""

DISK_NOTICE = 0.10
DISK_WARNING = 0.05
"""Share of a disk that is free."""


def examine_cluster(state: ClusterState) -> Iterator[DoctorFinding]:
    """Judge coordination, the servers, and tables that only disks have."""
    yield from _coordination(state)
    yield from _kept_tables(state)
    if not state.coordination.problem and not state.tables:
        if not state.servers:
            text = "coordination knows neither a table nor a server"
            advice = (
                "start the servers, and see whether the path in the url is the one in their configuration; if there were "
                "tables, the doctor says what to do once it can ask the servers for what is on their disks"
            )
            yield DoctorFinding(Severity.WARNING, "no-servers", text, advice)
        elif not any(server.kept_tables for server in state.servers):
            yield DoctorFinding(Severity.NOTICE, "no-tables", "there is no table", "replitree table create makes one")
    for name in state.unfinished:
        yield DoctorFinding(
            Severity.WARNING,
            "half-made-table",
            f"the creation or the drop of the sharded table {name} was cut off, or is under way: its name is taken",
            f"replitree table drop {name} --yes removes it; creating it again as before finishes a creation",
        )
    for name, missing in state.restoring.items():
        lacks = (
            f"{listed(missing)} must be restored, too" if missing else "its shards are not known to stand at one cut"
        )
        yield DoctorFinding(
            Severity.CRITICAL,
            "restoring",
            f"the sharded table {name} is being restored, and that is not finished: {lacks}; no client can insert or read",
            f"run `replitree restore {name} --config FILE --yes` on the machine of a server that has the missing shards, with"
            " the server stopped; without missing shards the command says where the shards stand",
            name,
        )
    for moving in state.moving:
        yield from _moves(moving)
    for server in state.servers:
        yield from _disk(server)
    yield from _clocks(state.servers)
    by_version: dict[str, list[str]] = {}
    for server in state.servers:
        if server.version is not None:
            by_version.setdefault(server.version, []).append(server.name)
    if len(by_version) > 1:
        each = "; ".join(f"{version} on {listed(names)}" for version, names in sorted(by_version.items()))
        yield DoctorFinding(
            Severity.NOTICE,
            "versions",
            f"the replicas run different versions of replitree: {each}",
            "fine during an upgrade; finish it: an older one stops at entries that it does not know",
        )
    elif by_version and state.version not in by_version:
        version = next(iter(by_version))
        text = f"the replicas run replitree {version}, and this is {state.version}"
        yield DoctorFinding(Severity.NOTICE, "versions", text, "use the same version here")


def _moves(moving: MovingTable) -> Iterator[DoctorFinding]:
    """Judge moves of buckets: they are slow, or their rows do not arrive as they were."""
    resume = f"replitree shard resume {moving.name}"
    move = (
        f"{count(moving.buckets, 'bucket')} of the sharded table {moving.name} move, and {moving.rows:,} rows"
        f" ({_mib(moving.bytes)}) have arrived so far"
    )
    if moving.idle_s < MOVES_IDLE_S:
        text = f"{move}; the last progress was {span(moving.idle_s)} ago"
        advice = f"nothing to do: servers carry them on; {resume} shows what it does"
        yield DoctorFinding(Severity.NOTICE, "buckets-move", text, advice)
    else:
        text = f"{move}; there was no progress for {span(moving.idle_s)}"
        advice = (
            f"see whether all replicas of both shards are active and have room on their disks; then {resume} says why"
        )
        yield DoctorFinding(Severity.WARNING, "moves-stuck", text, advice)
    if moving.refused:
        times = count(moving.refused, "batch", "batches")
        yield DoctorFinding(
            Severity.WARNING,
            "moved-rows-differ",
            f"{times} of the moves of {moving.name} in a row had other rows at the target than at the source: {moving.reason}",
            "no such row was shown or deleted, and the batch is copied again; if it happens again, look at the memory and the"
            " disk of the replica that is named, and of the machine that carries the moves on",
        )


# --- coordination -------------------------------------------------------------------------------------------------------------


def _coordination(state: ClusterState) -> Iterator[DoctorFinding]:
    coordination = state.coordination
    if coordination.problem:
        yield DoctorFinding(
            Severity.CRITICAL,
            "coordination-unreachable",
            f"coordination can't be asked: {coordination.problem}",
            "start the ZooKeeper servers, and look at the network between them and here, or at the certificate that is named; "
            "without them replicas are read-only, and nothing that was acknowledged is lost",
        )
    latency = coordination.latency_s
    if latency is not None and latency >= LATENCY_NOTICE_S:
        yield DoctorFinding(
            Severity.WARNING if latency >= LATENCY_WARNING_S else Severity.NOTICE,
            "coordination-slow",
            f"coordination takes {span(latency)} for a read; every insert waits for it at least once",
            "look at the load of the ZooKeeper servers, at the disk with their log (it should be its own), and at the network",
        )
    servers = coordination.servers
    away = [server.address for server in servers if not server.reachable or server.mode == "not serving"]
    # When all of them are away, the first finding has reported it.
    if away and not coordination.problem:
        spare = len(servers) - len(away) - (len(servers) // 2 + 1)
        left = "one more that stops, and nothing can be written" if spare <= 0 else f"{spare} more may stop"
        yield DoctorFinding(
            Severity.WARNING,
            "coordination-servers",
            f"{len(away)} of {count(len(servers), 'ZooKeeper server')} can't be used: {listed(away)}; {left}",
            "start them again",
        )
    nodes = max((server.nodes or 0 for server in coordination.servers), default=0)
    if nodes >= NODES_NOTICE:
        yield DoctorFinding(
            Severity.WARNING if nodes >= NODES_WARNING else Severity.NOTICE,
            "coordination-full",
            f"ZooKeeper keeps {nodes:,} nodes in memory, and all of them start and recover with it",
            "see below which table has a long log or many parts; drop what is not needed, or give ZooKeeper a larger heap",
        )


# --- servers ------------------------------------------------------------------------------------------------------------------


def _disk(server: ServerState) -> Iterator[DoctorFinding]:
    free, size = server.disk_free, server.disk_size
    if free is None or not size:
        return
    reserve = server.disk_reserve or 0
    has = f"the disk of {server.name} has {_mib(free)} of {_mib(size)} free"
    room = "make room: drop partitions, remove detached and frozen parts, or give it a larger disk"
    if free < reserve:
        text = f"{has}, less than the {_mib(reserve)} that it keeps in reserve: it is read-only"
        yield DoctorFinding(Severity.CRITICAL, "disk-full", text, f"{room}; it goes on by itself", replica=server.name)
    elif free < size * DISK_WARNING or free < 2 * reserve:
        yield DoctorFinding(Severity.WARNING, "disk-nearly-full", has, room, replica=server.name)
    elif free < size * DISK_NOTICE:
        yield DoctorFinding(Severity.NOTICE, "disk-nearly-full", has, room, replica=server.name)


def _kept_tables(state: ClusterState) -> Iterator[DoctorFinding]:
    """Judge tables that are on disks and not in coordination."""
    keepers: dict[tuple[str, str], list[tuple[ServerState, KeptTable]]] = {}
    for server in state.servers:
        for kept in server.kept_tables:
            keepers.setdefault((kept.table, Path(kept.folder).name), []).append((server, kept))
    names = {table.name for table in state.tables}
    for (table, _), where in sorted(keepers.items()):
        # A drop ends after all replicas that take part have deleted their parts.  So parts on several servers mean that
        # coordination has lost the table; parts on one server may be of a drop that this server missed.
        if table not in names and (len(where) > 1 or not names):
            lost = "coordination has lost a table" if names else "coordination has lost all its tables"
            # The shards of one table stand at one cut only if their servers stop at one time.
            stopped = "all servers" if is_shard_name(table) else "the server whose disk has most"
            places = listed([f"{server.name} ({kept.folder})" for server, kept in where])
            yield DoctorFinding(
                Severity.CRITICAL,
                "table-gone",
                f"{lost}: it knows nothing of {table}, whose parts are on the disks of {places}; no client can insert or read",
                "check the path in the url; if there is a backup of ZooKeeper's data, stop all servers and put it back; "
                f"otherwise stop {stopped}, run there: replitree restore "
                f"{sharded_name(table) if names else '--all'} --config FILE --yes, and start it again; if the table was "
                "dropped, delete the folders",
                table,
            )
        else:
            for server, kept in where:
                yield DoctorFinding(
                    Severity.WARNING,
                    "kept-table",
                    f"{server.name} keeps parts of a table {kept.table} that it does not host, in {kept.folder}",
                    f"if coordination has lost that table: replitree restore {sharded_name(kept.table)}; if it was dropped "
                    "while this server was away, or the shard was placed on other replicas, delete the folder",
                    replica=server.name,
                )


def _mib(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB" if size >= 10 << 30 else f"{size >> 20:,} MiB"


def _clocks(servers: tuple[ServerState, ...]) -> Iterator[DoctorFinding]:
    """Compare the servers' clocks with the clock of this machine."""
    told = [server for server in servers if server.clock_apart_s is not None]
    off = [server for server in told if _apart(server) >= CLOCKS_NOTICE_S]
    advice = "let NTP set the clocks: rows with a ttl go by the leader's clock, and times in logs can't be compared"
    apart_s = [server.clock_apart_s or 0.0 for server in told]
    doubt_s = 2 * max((server.clock_doubt_s for server in told), default=0.0)
    # When all clocks are off and agree with each other, the clock of this machine is the wrong one.
    if len(told) > 1 and len(off) == len(told) and max(apart_s) - min(apart_s) < CLOCKS_NOTICE_S + doubt_s:
        apart = min(_apart(server) for server in told)
        text = f"the clock of this machine is at least {span(apart)} off those of all replicas"
        yield DoctorFinding(Severity.NOTICE, "clock-here", text, advice)
        return
    for server in off:
        side = "ahead of" if (server.clock_apart_s or 0.0) > 0 else "behind"
        severity = Severity.WARNING if _apart(server) >= CLOCKS_WARNING_S else Severity.NOTICE
        text = f"the clock of {server.name} is {span(_apart(server))} {side} the one here"
        yield DoctorFinding(severity, "clock", text, advice, replica=server.name)


def _apart(server: ServerState) -> float:
    """Return how far a clock is certainly off, in seconds."""
    return max(0.0, abs(server.clock_apart_s or 0.0) - server.clock_doubt_s)
