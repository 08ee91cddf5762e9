"""What `replitree restore --all` says of several tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.replica.kit import config as config_module
from replitree.replica.rescue import restore as restore_module
from replitree.replica.rescue.restore import RestoreReport
from tests.cli.conftest import Run


class Server:
    name = "r1"
    data = "there is no such folder"


def restored(_server: object, table: str, **_options: object) -> RestoreReport:
    """Report a table as restored."""
    return RestoreReport(
        table=table, table_id="0", replica="r1", folder="d", parts=1, rows=2, bytes=3, broken={}, first=7
    )


def test_what_to_do_next_is_said_once(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config_module, "load_config", lambda _file: Server())
    monkeypatch.setattr(restore_module, "lost_tables", lambda _server: ("a", "b"))
    monkeypatch.setattr(restore_module, "restore_table", restored)
    ran = run("restore", "--all", "--config", str(tmp_path / "r1.toml"), "--yes")
    assert [line.split(": ")[0] for line in ran.out.splitlines()] == [
        "a restored from r1",
        "b restored from r1",
        "start the server of r1, then the others",
        "the ids of earlier inserts are gone",
    ]
