"""What a server does for the sharded tables of which it hosts shards: it carries moves on, and keeps what a restore needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.shard_moves import ShardMoves, process_of
from replitree.replica.shard_standings import ShardStandings

if TYPE_CHECKING:
    from replitree.replica.table.table_replica import TableReplica


class ShardThreads:
    """The threads of a server that look at its sharded tables.

    Parameters
    ----------
    config, root
        The server's configuration, and the node below which the tables lie.
    perform
        Reads coordination.
    tables
        The tables with a log that the server hosts, by name, as they come and go.
    config_file
        Where the configuration stands; None: the server begins no processes that carry moves on.
    """

    def __init__(
        self,
        config: ServerConfig,
        root: str,
        perform: Callable[[Any], Any],
        tables: Mapping[str, TableReplica],
        metrics: Metrics,
        log: Log,
        config_file: Path | None,
    ) -> None:
        begin = None if config_file is None else process_of(config_file, config)
        self.moves = ShardMoves(config, root, perform, tables, metrics, log, begin)
        self.standings = ShardStandings(root, perform, tables, log)

    def start(self) -> None:
        """Begin to look."""
        self.moves.start()
        self.standings.start()

    def stop(self) -> None:
        """End the threads; the tables and the session are still there, because one of them looks once more."""
        self.moves.stop()
        self.standings.stop()


__all__ = ["ShardThreads"]
