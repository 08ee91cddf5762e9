"""What the page's process knows of a cluster, and what it asks for."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from replitree.client.insert.terms import InsertResult
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import join_table
from replitree.ui.extras import Extras
from replitree.ui.observer import Observer
from tests.replica.inprocess import ROOT, InProcessCluster, rows
from tests.ui.engine import evaluate
from tests.ui.pages import Page, page_of
from tests.waiting import wait_for

FOLDED = """(() => { const machine = new TimeMachine(log.base); machine.append(log.entries); machine.seek(machine.tail);
machine.measure(parts); return machine.parts.all().map((part) => [part.name, part.rows, part.bytes]); })()"""


@pytest.fixture(autouse=True)
def _is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request reads the log, however soon it comes after another one."""
    monkeypatch.setattr("replitree.ui.table_view.FRESH_S", 0.0)


@pytest.fixture
def filled(cluster: InProcessCluster) -> InProcessCluster:
    with cluster.connect() as connection:
        table = connection.table("t")
        for number in range(6):
            table.insert(rows(10 * number))
        table.optimize()
        table.delete("k = 3")
        table.insert(rows(1000))
    cluster.wait_alike()
    return cluster


def names_and_sizes(cluster: InProcessCluster) -> list[list[object]]:
    with cluster.connect() as connection, connection.table("t").snapshot(level="linearizable") as snapshot:
        return sorted([part.part, part.manifest.rows, part.manifest.bytes] for part in snapshot.parts)


def test_base_and_entries_fold_to_what_a_replica_shows(page: Page, filled: InProcessCluster) -> None:
    page.enter()
    log, parts = page.ask("/api/log?table=t").json, page.ask("/api/parts?table=t").json
    assert (log["base"]["index"], log["is_whole"]) == (0, True)
    assert sorted(evaluate(FOLDED, log=log, parts=parts)) == names_and_sizes(filled)


def test_a_browser_gets_only_what_it_does_not_have(page: Page, filled: InProcessCluster) -> None:
    whole = page.enter().ask("/api/log?table=t").json
    with filled.connect() as connection:
        connection.table("t").insert(rows(5000))
    more = page.ask(f"/api/log?table=t&after={whole['tail']}&base=0").json
    assert more["is_whole"] is False
    assert [each["kind"] for each in more["entries"]] == ["get"]
    assert page.ask(f"/api/log?table=t&after={whole['tail']}&base=17").json["is_whole"], "another base: everything anew"


def test_a_log_that_was_cleaned_begins_with_what_a_replica_shows(page: Page, filled: InProcessCluster) -> None:
    page.enter()
    filled.clean(4)
    log, parts = page.ask("/api/log?table=t").json, page.ask("/api/parts?table=t").json
    assert log["first"] == 4
    assert log["base"]["index"] >= 4
    assert sorted(evaluate(FOLDED, log=log, parts=parts)) == names_and_sizes(filled)


def test_a_page_that_slept_while_the_log_was_cleaned_begins_anew(page: Page, filled: InProcessCluster) -> None:
    before = page.enter().ask("/api/log?table=t").json
    with filled.connect() as connection:
        for number in range(3):
            connection.table("t").insert(rows(7000 + 10 * number))
    filled.clean(before["tail"] + 1)
    after = page.ask(f"/api/log?table=t&after={before['tail']}&base=0").json
    assert after["is_whole"] is True
    parts = page.ask("/api/parts?table=t").json
    assert sorted(evaluate(FOLDED, log=after, parts=parts)) == names_and_sizes(filled)


def test_a_stream_tells_tables_and_findings(page: Page, filled: InProcessCluster) -> None:
    page.enter()
    with page.events() as events:
        told = next(each for each in events if each["findings"] is not None)
    (table,) = told["tables"]
    assert (table["name"], table["rows"], len(table["replicas"])) == ("t", 69, 2)
    assert {each["severity"] for each in told["findings"]} <= {"ok", "notice", "warning", "critical"}
    assert page.ask("/api/looks").json[-1]["tables"]["t"]["rows"] == 69


def test_nothing_is_asked_while_nobody_looks(cluster: InProcessCluster) -> None:
    told: list[object] = []
    with cluster.connect() as connection:
        observer = Observer(connection, told.append)
        try:
            assert observer.latest["at"] is None
            observer.join()
            wait_for(lambda: len(told) >= 2, "two overviews")
            observer.leave()
            seen = len(observer.looks())
            # A look that was under way when the last viewer left may end, and no other begins.
            observer.close()
            assert len(observer.looks()) - seen <= 1
        finally:
            observer.close()


def test_while_the_cluster_can_not_be_asked_the_last_state_stays(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("replitree.ui.observer.LOOK_S", 0.01)
    with cluster.connect() as connection:
        observer = Observer(connection, told.append)
        try:
            observer.join()
            wait_for(lambda: told and told[-1]["findings"] is not None, "a whole overview")

            def fail() -> None:
                raise CoordinationUnavailable("no server answers")

            monkeypatch.setattr(connection, "status", fail)
            wait_for(lambda: told[-1]["problem"], "the problem is told")
            assert told[-1]["problem"] == "CoordinationUnavailable: no server answers"
            assert [table["name"] for table in told[-1]["tables"]] == ["t"]
            monkeypatch.undo()
            wait_for(lambda: not told[-1]["problem"], "the problem is over")
        finally:
            observer.close()


def test_history_is_that_of_the_table(page: Page, filled: InProcessCluster) -> None:
    history = page.enter().ask("/api/history?table=t&limit=3").json
    assert [each["kind"] for each in history][:2] == ["get", "mutate"]
    assert "DELETE" in history[1]["command"].upper()


def test_alters_are_in_words_in_the_log_and_in_the_history(page: Page, filled: InProcessCluster) -> None:
    with filled.connect() as connection:
        connection.table("t").alter("ADD COLUMN note string DEFAULT 'none'")
    page.enter()
    said = "ADD COLUMN note string DEFAULT 'none'"
    assert page.ask("/api/log?table=t").json["entries"][-1]["text"] == said
    assert page.ask("/api/history?table=t&limit=1").json[0]["command"] == said


def test_who_has_the_parts_of_an_open_quorum_is_told(page: Page, cluster: InProcessCluster) -> None:
    third = Replica(TablePlace(layout.table_path(ROOT, "t")), "r3")
    cluster.run(join_table(third))
    # The third replica is active and pulls nothing, so a quorum of three stays open.
    taken = cluster.admin.perform(fx.Commit(fx.Create(layout.is_active(third), b"", ephemeral=True)))
    assert isinstance(taken, fx.Applied)
    ended: list[InsertResult] = []

    def insert() -> None:
        with cluster.connect() as connection:
            ended.append(connection.table("t").insert(rows(0), quorum=3, quorum_timeout_s=300.0, timeout_s=300.0))

    thread = threading.Thread(target=insert, daemon=True)
    thread.start()
    page.enter()

    def quorums() -> list[dict[str, Any]]:
        found = page.ask("/api/log?table=t").json["quorums"]
        assert isinstance(found, list)
        return found

    wait_for(lambda: [each["holders"] for each in quorums()] == [["r1", "r2"]], "two replicas have joined the quorum")
    assert [(each["index"], each["quorum"]) for each in quorums()] == [(0, 3)]
    gone = cluster.admin.perform(fx.Commit(fx.Delete(layout.is_active(third), fx.Version(0))))
    assert isinstance(gone, fx.Applied)
    cluster.add("r3")
    thread.join()
    assert ended[0].settled is not None
    assert quorums() == []


def test_the_selector_says_why_parts_are_not_merged(page: Page, filled: InProcessCluster) -> None:
    page.enter()
    found = page.ask("/api/waits?table=t").json
    (waits,) = found["waits"]
    # By the clock of this coordination all entries are of 1970: the parts have waited long enough.
    assert (waits["partition"], waits["parts"], waits["chosen"]) == ("all", 2, 2)
    assert 1.0 < waits["fan_in"] <= 2.0
    assert (found["fan_in_max"], found["parts_calm"]) == (16.0, 12)
    assert page.ask("/api/waits?table=no").status == 404


def test_what_is_kept_aside_is_summed_up_by_replica(page: Page, filled: InProcessCluster) -> None:
    with filled.connect() as connection:
        table = connection.table("t")
        frozen = table.freeze("before", "for a test")
        table.detach_partition("all")
    filled.wait_alike()
    page.enter()

    def aside() -> dict[str, Any]:
        found = page.ask("/api/aside?table=t").json
        assert found["silent"] == {}
        return dict(found["replicas"])

    wait_for(
        lambda: {name for name, each in aside().items() if each["detached_parts"]} == {"r1", "r2"}, "both have detached"
    )
    assert {name: each["snapshots"] for name, each in aside().items() if each["snapshots"]} == {frozen.replica: 1}
    assert aside()[frozen.replica]["frozen_bytes"] == frozen.bytes


def test_a_trace_is_read_anew_and_what_is_none_is_refused(cluster: InProcessCluster, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("{}")
    with cluster.connect() as connection, page_of(connection, Extras((), file)) as page:
        page.enter()
        assert page.ask("/api/trace").json == {"name": "trace.json", "text": "{}"}
        file.write_text('{"trace": []}')
        assert page.ask("/api/trace").json["text"] == '{"trace": []}'
        file.write_bytes(b"\xff\xfe")
        assert page.ask("/api/trace").status == 400
        file.unlink()
        assert "can't read the trace" in page.ask("/api/trace").json["error"]


def test_tablets_and_a_trace_that_no_operator_named_are_empty(page: Page) -> None:
    page.enter()
    assert page.ask("/api/tablets").json == {"candidates": [], "groups": []}
    assert page.ask("/api/trace").json == {"name": "", "text": ""}
