"""`replitree sql --as-of TIME`, of real replicas: entries that coordination has, and those that it has forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import replitree.client
from replitree.client.read.table_log import HistoryEntry
from replitree.client.table import Table
from tests.cli.conftest import Run
from tests.replica.inprocess import InProcessCluster
from tests.times import time_of

URL = ("--url", "zk://nowhere:1/replitree", "--engine", "duckdb", "--output", "csv")
COUNT = "select count(*) n from t"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    found = InProcessCluster(tmp_path)
    found.create_table(schema="k bigint not null")
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


@pytest.fixture
def table(cluster: InProcessCluster) -> Iterator[Table]:
    with replitree.client.connect("zk://nowhere:1/replitree") as connection:
        yield connection.table("t")


def fill(table: Table) -> list[HistoryEntry]:
    """Insert a row three times; return the entries, ascending."""
    for number in range(3):
        table.insert({"k": [number]})
    return list(reversed(table.history()))


def test_a_time_shows_the_table_with_the_last_entry_that_was_written_by_then(run: Run, table: Table) -> None:
    for rows, entry in enumerate(fill(table), start=1):
        for text in (
            time_of(entry).isoformat(),
            f"t={time_of(entry).isoformat()}",
            str(time_of(entry).replace(tzinfo=None)),
        ):
            ran = run("sql", COUNT, "--as-of", text, *URL)
            assert (ran.status, ran.out, ran.err) == (0, f"n\n{rows}\n", "")


def test_a_time_of_entries_that_coordination_has_forgotten_is_found_at_a_replica(
    run: Run, cluster: InProcessCluster, table: Table
) -> None:
    entries = fill(table)
    cluster.clean(2)
    for rows, entry in enumerate(entries, start=1):
        ran = run("sql", COUNT, "--as-of", time_of(entry).isoformat(), *URL)
        assert (ran.status, ran.out, ran.err) == (0, f"n\n{rows}\n", "")


def test_a_time_before_the_first_version_is_refused_and_one_before_the_first_entry_is_empty(
    run: Run, table: Table
) -> None:
    first, *_ = fill(table)
    ran = run("sql", COUNT, "--as-of", (time_of(first) - timedelta(milliseconds=1)).isoformat(), *URL)
    assert (ran.status, ran.out) == (0, "n\n0\n")
    ran = run("sql", COUNT, "--as-of", "1969-07-20T20:17:40Z", *URL)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "what t was at 1969-07-20T20:17:40+00:00 is not known: the table was created at 1970-01-01" in ran.err
    assert "ask for a later time" in ran.err


@pytest.mark.parametrize("text", ["2026-13-01", "t=2026-11-27T25:00", "12 o'clock"])
def test_a_malformed_time_says_how_one_is_written(run: Run, table: Table, text: str) -> None:
    assert fill(table)
    ran = run("sql", COUNT, "--as-of", text, *URL)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"--as-of {text}: {text.removeprefix('t=')!r} is no time and no tag" in ran.err
    assert "write a time as in '2026-11-27T03:00:00+01:00' or '2026-11-27 02:00' (UTC)" in ran.err


def test_a_time_that_is_not_over_is_refused(run: Run, table: Table) -> None:
    assert fill(table)
    ran = run("sql", COUNT, "--as-of", "9999-12-31", *URL)
    assert (ran.status, ran.out) == (2, "")
    assert "is not over: coordination's clock says 1970-01-01T" in ran.err
