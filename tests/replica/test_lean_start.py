"""A replica that starts is active, and answers readers, before anything heavy is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from replitree.storage.schema.definition import TableDefinition, define_table
from tests.project.source import ROOT

TABLE = define_table("t", "d date not null, k bigint, s array<string>", order_by="k", partition_by="month(d)")


def start(folder: Path, table: TableDefinition, columns: bytes | None = None) -> dict[str, Any]:
    """Start a replica with a table in a process of its own; return what it says."""
    values = (table.encode_metadata().decode(), (columns or table.encode_columns()).decode())
    command = [sys.executable, "-m", "tests.replica.lean_start", str(folder), *values]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


def test_a_replica_is_active_and_serves_snapshots_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    said = start(tmp_path, TABLE)
    assert (said["state"], said["snapshot"], said["at_start"]) == ("active", 200, [])
    assert (said["health"], said["after_health"]) == (200, [])
    assert (said["status"], said["after_status"]) == (200, ["aiohttp"])
    assert said["after_the_rest"] == ["aiohttp", "numpy", "pyarrow"]
    assert said["failure"] is None


def test_a_definition_that_is_not_understood_is_refused_when_its_types_can_be_looked_at(tmp_path: Path) -> None:
    columns = TABLE.encode_columns().replace(b'"list<string>"', b'"set<string>"')
    assert columns != TABLE.encode_columns()
    said = start(tmp_path, TABLE, columns)
    assert "not one that this replitree understands" in said["failure"]
