"""The doctor about tables that are on disks and not in coordination: lost there, or only left over here."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from replitree.client.admin.doctor import Severity, examine
from replitree.client.admin.doctor_state import KeptTable, ServerState
from tests.client.test_doctor import a_cluster, codes, the


def test_a_cluster_without_tables_is_worth_a_notice() -> None:
    state = replace(a_cluster(), tables=(), servers=(ServerState(name="r1"),))
    assert codes(state) == {"no-tables": Severity.NOTICE}


def test_where_there_is_neither_a_table_nor_a_server_something_is_wrong() -> None:
    state = replace(a_cluster(), tables=())
    assert codes(state) == {"no-servers": Severity.WARNING}
    assert "the path in the url" in the(state, "no-servers").advice


def test_a_folder_whose_table_nobody_knows_is_a_warning() -> None:
    server = ServerState(name="r1", kept_tables=(KeptTable("old", "/data/tables/old-1"),))
    finding = the(a_cluster(servers=(server, ServerState(name="r2"))), "kept-table")
    assert (finding.severity, finding.replica) == (Severity.WARNING, "r1")
    assert "/data/tables/old-1" in finding.text
    assert "replitree restore old" in finding.advice


def keeping(name: str, *folders: str, **facts: Any) -> ServerState:
    """A server with parts of tables that it does not host."""
    kept = tuple(KeptTable(folder.partition("-")[0], f"/data-of-{name}/tables/{folder}") for folder in folders)
    return ServerState(name=name, kept_tables=kept, **facts)


def test_coordination_that_was_wiped_is_said_first_with_the_command_that_helps() -> None:
    full = {"disk_free": 0, "disk_size": 100, "disk_reserve": 1}
    servers = (keeping("r1", "events-1", "prices-2", **full), keeping("r2", "events-1", **full))
    state = replace(a_cluster(), tables=(), servers=servers)
    first, second, *others = examine(state)
    assert [(each.code, each.severity, each.table) for each in (first, second)] == [
        ("table-gone", Severity.CRITICAL, "events"),
        ("table-gone", Severity.CRITICAL, "prices"),
    ]
    assert (
        "lost all its tables: it knows nothing of events, whose parts are on the disks of r1 (/data-of-r1/"
        in first.text
    )
    assert "replitree restore --all --config FILE" in first.advice
    assert {each.code for each in others} == {"disk-full"}


def test_a_table_that_several_disks_have_and_coordination_has_not_is_critical() -> None:
    both = a_cluster(servers=(keeping("r1", "old-1"), keeping("r2", "old-1")))
    assert codes(both) == {"table-gone": Severity.CRITICAL}
    assert "coordination has lost a table: it knows nothing of old" in the(both, "table-gone").text
    assert "replitree restore old --config FILE" in the(both, "table-gone").advice


@pytest.mark.parametrize("folders", [("old-1", "old-2"), ("events-1", "events-1")])
def test_what_was_left_of_different_tables_or_of_one_that_is_there_again_is_a_warning(folders: tuple[str, str]) -> None:
    r1, r2 = (keeping(name, folder) for name, folder in zip(("r1", "r2"), folders, strict=True))
    assert codes(a_cluster(servers=(r1, r2))) == {"kept-table": Severity.WARNING}
