"""What a server says of itself for the operator of the cluster: version, clock, limits, disk, folders without a table."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from replitree.errors import ReplitreeError
from replitree.replica.kit.config import ServerConfig
from replitree.storage.disk.kept_definition import read_definition
from replitree.wire.version import installed_version

KEPT_MAX = 20
"""Folders without a table that are named."""


def vitals(config: ServerConfig, hosted: Collection[str]) -> dict[str, object]:
    """Return how a server is: sizes in bytes, the clock in seconds since 1970, and table folders that no table needs.

    Parameters
    ----------
    hosted
        Names of the folders of the tables that it hosts.
    """
    answer: dict[str, object] = {
        "version": installed_version(),
        "clock_s": time.time(),
        "disk_reserve_bytes": config.disk_reserve_bytes,
        "log_keep_min": config.min_replicated_logs_to_keep,
        "log_keep_max": config.max_replicated_logs_to_keep,
    }
    try:
        disk = shutil.disk_usage(config.data)
        # A folder of a table that is not hosted: coordination has lost the table, or the table was dropped.
        tables = Path(config.data) / "tables"
        folders = sorted(path for path in tables.iterdir() if path.name not in hosted) if tables.is_dir() else []
        found = ((folder, read_definition(folder)) for folder in folders)
        rows = ({"table": each.name, "folder": str(folder)} for folder, each in found if each is not None)
        kept = list(islice(rows, KEPT_MAX))
    except (OSError, ReplitreeError):
        # The states of the tables report a failing disk.
        return answer
    return answer | {"disk_free_bytes": disk.free, "disk_bytes": disk.total, "kept_tables": kept}
