"""`replitree fsck`: words, JSON and exit statuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replitree.client.admin.fsck import FsckFinding, FsckReport
from replitree.client.connection import Connection
from replitree.client.transport.left_objects import LeftObjects
from tests.cli.conftest import Run

ORPHAN = FsckFinding(
    "orphan", "5a", "", "", 2048, ("data-0.parquet: 2048 bytes of 1",), "not asked", "5a is nobody's", "do it"
)
STORE = "file:///objects"


def report(*findings: FsckFinding, clean: bool, silent: dict[str, str] | None = None) -> FsckReport:
    return FsckReport("t", STORE, clean, False, 60.0, 2, 3, 4096, silent or {}, findings)


def fsck(run: Run, monkeypatch: pytest.MonkeyPatch, found: FsckReport, *arguments: str) -> tuple[Any, dict[str, Any]]:
    """Run the command with a report; return how it ended, and what was asked for."""
    asked: dict[str, Any] = {}

    def answer(_: Connection, table: str, **how: Any) -> FsckReport:
        asked.update(how, table=table)
        return found

    monkeypatch.setenv("REPLITREE_URL", "zk://127.0.0.1:1/replitree")
    monkeypatch.setenv("REPLITREE_TOKEN", "a-token-of-some-length")
    monkeypatch.setattr(Connection, "fsck", answer)
    return run("fsck", "t", *arguments), asked


def test_a_clean_table_ends_with_0(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, asked = fsck(run, monkeypatch, report(clean=True))
    assert (ran.status, ran.out) == (0, f"t on {STORE}: 2 shares, 3 objects, 4.0 KiB; nothing is wrong\n")
    assert asked == {"table": "t", "with_repair": False, "grace_s": 24 * 3600.0, "everybody_is_back": False}


def test_what_is_wrong_is_told_with_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, _ = fsck(run, monkeypatch, report(ORPHAN, clean=False, silent={"r2": "it is not active"}))
    assert ran.status == 1
    assert ran.out.splitlines() == [
        f"t on {STORE}: 2 shares, 3 objects, 4.0 KiB; 1 finding, 0 repaired",
        "NOT JUDGED    what only r2 knows of: it is not active",
        "ORPHAN        5a is nobody's (2.0 KiB)",
        "              -> do it",
    ]


def test_uploads_that_can_not_be_listed_are_told_and_are_not_clean(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = msgspec.structs.replace(report(clean=False), not_judged="the store does not list uploads in pieces")
    ran, _ = fsck(run, monkeypatch, found)
    assert (ran.status, ran.out.splitlines()) == (
        1,
        [
            f"t on {STORE}: 2 shares, 3 objects, 4.0 KiB; 0 findings, 0 repaired",
            "NOT JUDGED    uploads: the store does not list uploads in pieces",
        ],
    )


def test_what_was_repaired_is_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done = FsckFinding("orphan", "5a", "", "", 0, (), "done", "5a is nobody's", "")
    ran, asked = fsck(run, monkeypatch, report(done, clean=True), "--repair", "--grace", "60", "--everybody-is-back")
    assert (ran.status, ran.out.splitlines()[1:]) == (0, ["repaired      5a is nobody's"])
    assert asked == {"table": "t", "with_repair": True, "grace_s": 60.0, "everybody_is_back": True}


def test_json_has_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, _ = fsck(run, monkeypatch, report(ORPHAN, clean=False), "--json")
    assert ran.status == 1
    assert ran.json["clean"] is False
    assert ran.json["findings"][0]["kind"] == "orphan"
    assert ran.json["findings"][0]["evidence"] == ["data-0.parquet: 2048 bytes of 1"]


@pytest.mark.parametrize(
    ("found", "status", "text"),
    [
        (LeftObjects("5b", STORE, 2, 4096), 1, "2 objects, 4.0 KiB; replitree fsck --dropped --repair deletes them"),
        (
            LeftObjects("5b", STORE, uploads=1),
            1,
            "0 objects, 0 B, 1 upload not ended; replitree fsck --dropped --repair",
        ),
        (
            LeftObjects("5b", STORE, 2, 4096, gone=True, remembered_s=5400.0),
            0,
            "4.0 KiB; deleted; in 1.5 h look again for what came late",
        ),
        (LeftObjects("5b", STORE, gone=True), 0, "0 objects, 0 B"),
        (LeftObjects("5b", STORE, problem="it is away"), 1, "0 objects, 0 B; it is away"),
    ],
)
def test_what_a_dropped_table_has_left_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch, found: LeftObjects, status: int, text: str
) -> None:
    monkeypatch.setattr(Connection, "left_objects", lambda _self, **_how: (found,))
    monkeypatch.setenv("REPLITREE_URL", "zk://127.0.0.1:1/replitree")
    monkeypatch.setenv("REPLITREE_TOKEN", "a-token-of-some-length")
    ran = run("fsck", "--dropped")
    assert ran.status == status
    assert ran.out.startswith(f"dropped table 5b on {STORE}: ")
    assert text in ran.out
