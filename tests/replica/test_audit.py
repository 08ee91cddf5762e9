"""Audit records: who has changed what, and what became of it; never a secret or a row."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from replitree.replica.audit import FILE, Audit
from replitree.replica.kit.logs import Log
from replitree.replica.kit.tokens import create_token
from replitree.wire.named_token import Role
from tests.replica.inprocess import TOKEN, InProcessCluster, as_stream, rows
from tests.waiting import wait_for


def records_of(folder: Path) -> list[dict[str, Any]]:
    file = folder / FILE
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_changes_and_what_was_not_permitted_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    reader = create_token(file, "reader", Role.READ, None).text
    cluster = InProcessCluster(tmp_path, 1, tokens_file=str(file))
    try:
        cluster.create_table()
        (node,) = cluster.nodes
        table, data = "/v1/tables/t", tmp_path / "r1"
        assert node.insert(rows(0), "load-1")[0] == 200
        assert node.request("POST", f"{table}/insert?token=two&quorum=1", as_stream(rows(50)))[0] == 200
        assert node.request("POST", f"{table}/insert", as_stream(rows(0)), reader)[0] == 403
        assert node.request("POST", f"{table}/insert", b"no rows")[0] == 400
        body = json.dumps({"kind": "delete", "where": "k = 4242", "id": "d1"}).encode()
        assert node.request("POST", f"{table}/mutations", body, reader)[0] == 403
        mutated = node.request(
            "POST", f"{table}/mutations", json.dumps({"sql": "DELETE FROM t WHERE k = 4242"}).encode()
        )
        assert node.request("GET", f"{table}/snapshot", token=reader)[0] == 200
        assert node.request("GET", "/v1/status", token=reader)[0] == 200
        assert node.request("POST", f"{table}/insert", b"", "wrong")[0] == 401
        wait_for(lambda: len(records_of(data)) >= 6, "all is written")
        told = [
            (each["token"], each["what"], each.get("table"), each.get("id", ""), each["status"])
            for each in records_of(data)
        ]
        assert told[:5] == [
            ("cluster", "POST insert", "t", "load-1", 200),
            ("cluster", "POST insert", "t", "two", 200),
            ("reader", "POST insert", "t", "", 403),
            ("cluster", "POST insert", "t", "", 400),
            ("reader", "POST mutations", "t", "", 403),
        ]
        assert told[5][:3] == ("cluster", "POST mutations", "t")
        assert told[5][4] == mutated[0]
        assert len(told) == 6
        text = (data / FILE).read_text()
        assert not any(secret in text for secret in (TOKEN, reader, "4242"))
        assert stat.S_IMODE((data / FILE).stat().st_mode) == 0o600
    finally:
        cluster.close()


@pytest.mark.parametrize("files", [1, 3])
def test_file_is_rotated_by_its_size(tmp_path: Path, files: int) -> None:
    for number in range(10):
        audit = Audit(tmp_path, 1, files, Log)
        audit.note("etl", "POST insert", "t", f"{number}" * 500, 200)
        audit.close()
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [f"{FILE}.{number}" for number in range(1, files)]
    if files > 1:
        (newest,) = (json.loads(line) for line in (tmp_path / f"{FILE}.1").read_text().splitlines())
        assert newest["id"] == "9" * 200


def test_records_that_find_no_room_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.replica.audit.WAITING_MAX", 2)
    audit = Audit(tmp_path, 1 << 20, 2, Log)
    monkeypatch.setattr(audit, "_thread", object())  # the disk hangs
    for number in range(5):
        audit.note("etl", "POST insert", "t", str(number), 200)
    monkeypatch.setattr(audit, "_thread", None)
    waiting = audit._waiting  # noqa: SLF001 - what the thread would write
    assert [waiting.get_nowait().id for _ in range(2)] == ["0", "1"]  # type: ignore[union-attr]
    audit.note("etl", "POST insert", "t", "5", 200)
    audit.close()
    (record,) = records_of(tmp_path)
    assert (record["id"], record["left_out"]) == ("5", 3)


def test_nothing_is_written_when_it_is_off(tmp_path: Path) -> None:
    audit = Audit(None, 1, 1, Log)
    audit.note("etl", "POST insert", "t", "", 200)
    audit.close()
    assert list(tmp_path.iterdir()) == []
