"""Moves of buckets at one server: it says how far they are, and carries them on when no other process does.

The server looks at the nodes ``map`` and ``moves`` of every sharded table of which it hosts a shard, again and again.  Every
step of a move writes the node ``moves``.  When it has not changed for `carry_moves_after_s` seconds (this machine's clock only
measures the time between two looks), the process that carried the moves on has died, or is very slow.  Then a server begins a
process that carries them on:

==================================================================  =====================================================
which server                                                        after how many seconds without progress
==================================================================  =====================================================
the one whose replica leads the first shard that gets rows          `carry_moves_after_s`
each other one that hosts a shard of the table, if none leads       `OTHERS_TIMES` as many
==================================================================  =====================================================

Two such processes do no harm: the versions of the nodes decide (`replitree.protocol.sharded.moves`).  It is a process of its
own, because a batch takes memory and time that inserts would lack; it ends with the server
(`replitree.coordination.supervise`).  It is begun again after a pause, which grows, until the moves have ended.

Absent on purpose: how moves are carried on (`replitree.client.sharded.moving.moves`, which a server does not import).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from replitree.coordination.supervise import Supervised
from replitree.errors import ReplitreeError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import GetMany, Many, Version
from replitree.protocol.sharded.moves.progress import MovesProgress, decode_progress, moves
from replitree.protocol.sharded.places import is_shard_name, shard_name, sharded_name
from replitree.protocol.sharded.shard_map import ShardMap, decode_map
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics

if TYPE_CHECKING:
    from replitree.replica.table.table_replica import TableReplica

LOOK_S_MAX = 5.0
"""How often the moves are looked at, in seconds; more often when `carry_moves_after_s` is short."""

OTHERS_TIMES = 4
"""How many times longer a server waits that does not lead the first shard that gets rows."""

PAUSE_S_MIN, PAUSE_S_MAX = 5.0, 300.0
"""Between two processes of one table, in seconds: the first pause and the longest; each is twice the one before."""

STOP_S = 5.0
"""How long a process may take to end, in seconds."""

LOG_FILE = "moves.log"
"""What these processes say, in the data folder."""


class MoverProcess(Protocol):
    """A process that carries moves on."""

    def poll(self) -> int | None:
        """Return None while it runs, then its exit code."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout_s: float, /) -> int | None:
        """Wait until it has ended."""


@dataclass(slots=True)
class _SeenMoves:
    """The moves of one table as they were seen last; times are seconds of the clock.

    Attributes
    ----------
    since
        When `versions` were seen for the first time.
    process, failures, pause_until
        The process that carries them on, how many have failed in a row, and when the next one may begin.
    """

    shard_map: ShardMap
    progress: MovesProgress
    versions: tuple[Version, Version]
    since: float
    process: MoverProcess | None = None
    failures: int = 0
    pause_until: float = field(default=float("-inf"))


class ShardMoves:
    """The moves of the sharded tables of which a server hosts shards.

    Parameters
    ----------
    config, root
        The server's configuration, and the node below which the tables lie.
    perform
        Reads coordination.
    tables
        The tables with a log that the server hosts, by name, as they come and go.
    begin
        Begins the process that carries on the moves of a table; None: this server begins none.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        config: ServerConfig,
        root: str,
        perform: Callable[[GetMany], Many],
        tables: Mapping[str, TableReplica],
        metrics: Metrics,
        log: Log,
        begin: Callable[[str], MoverProcess] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._after_s = config.carry_moves_after_s
        self._root = root
        self._perform = perform
        self._tables = tables
        self._metrics = metrics
        self._log = log
        self._begin = begin if self._after_s else None
        self._clock = clock
        self._seen: dict[str, _SeenMoves] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moves", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the processes and the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        for seen in list(self._seen.values()):
            if seen.process is not None:
                seen.process.kill()
                seen.process.wait(STOP_S)

    def status(self) -> list[dict[str, object]]:
        """Return how far the moves are, by table."""
        now = self._clock()
        return [
            {
                "table": name,
                "buckets": _buckets(seen),
                "rows": seen.progress.rows,
                "bytes": seen.progress.arrived_bytes,
                "idle_s": round(now - seen.since, 1),
                "refused": seen.progress.refused.times if seen.progress.refused else 0,
                "carried_on_here": seen.process is not None,
            }
            for name, seen in sorted(self._seen.copy().items())
        ]

    def look(self) -> None:
        """Look at the moves once; begin processes that are due.

        Raises
        ------
        CoordinationUnavailable
            Coordination can't be asked.
        UnsupportedFormat
            A node has a newer format.
        OSError
            A process could not be begun.
        """
        hosted = {name: table.leader.is_leading for name, table in list(self._tables.items())}
        names = sorted({sharded_name(name) for name in hosted if is_shard_name(name)})
        for name in names:
            self._look_at(name, hosted)
        for name in [name for name in self._seen if name not in names]:
            self._forget(name)

    def _run(self) -> None:
        pause_s = min(LOOK_S_MAX, self._after_s / 4) if self._after_s else LOOK_S_MAX
        while not self._stopped.wait(pause_s):
            try:
                self.look()
            except (ReplitreeError, OSError) as error:
                self._log.warning("moves of buckets", problem=str(error))
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and look again
                self._log.defect("looking at moves of buckets failed")

    def _look_at(self, name: str, hosted: Mapping[str, bool]) -> None:
        place = layout.sharded(self._root, name)
        paths = (layout.shard_map(place), moves(place))
        # Two reads are no snapshot, and need not be one: nothing relies on what is found here.
        map_node, node = self._perform(GetMany(paths)).nodes
        shard_map = None if map_node is None else decode_map(map_node.value, paths[0])
        if map_node is None or node is None or shard_map is None or not shard_map.moves:
            self._forget(name)
            return
        now, versions = self._clock(), (map_node.version, node.version)
        seen = self._seen.get(name)
        progress = decode_progress(node.value, paths[1])
        if seen is None:
            seen = self._seen[name] = _SeenMoves(shard_map, progress, versions, now)
        elif seen.versions != versions:
            # A process that gets on may fail later as often as one that has just begun.
            seen.shard_map, seen.progress, seen.versions, seen.since = shard_map, progress, versions, now
            seen.failures = 0
        self._metrics.moves.show(name, _buckets(seen), progress, now - seen.since)
        if seen.process is not None and (code := seen.process.poll()) is not None:
            seen.process = None
            if code:
                pause_s = min(PAUSE_S_MAX, PAUSE_S_MIN * 2**seen.failures)
                seen.failures, seen.pause_until = min(seen.failures + 1, 16), now + pause_s
                self._log.warning("moves of buckets were not carried on", table=name, exit=code, log=LOG_FILE)
        first = shard_name(name, min(move.target for move in shard_map.moves))
        after_s = self._after_s if hosted.get(first) else self._after_s * OTHERS_TIMES
        if self._begin is None or seen.process is not None or now < max(seen.since + after_s, seen.pause_until):
            return
        self._log.info("moves of buckets are carried on", table=name, idle_s=round(now - seen.since, 1))
        seen.process = self._begin(name)

    def _forget(self, name: str) -> None:
        """Forget moves that have ended; their process ends by itself."""
        if self._seen.pop(name, None) is not None:
            self._metrics.moves.ended(name)


def process_of(config_file: Path, config: ServerConfig) -> Callable[[str], MoverProcess]:
    """Return what begins a process that carries on the moves of a table, with the access that a server has."""

    def begin(name: str) -> MoverProcess:
        command = [sys.executable, "-m", "replitree.cli.main", "shard", "resume", name, "--config", str(config_file)]
        log = Path(config.data) / LOG_FILE
        return Supervised(command, log, log_bytes_max=config.log_bytes_max, log_files=2)

    return begin


def _buckets(seen: _SeenMoves) -> int:
    return sum(len(move.buckets) for move in seen.shard_map.moves)


__all__ = ["MoverProcess", "ShardMoves", "process_of"]
