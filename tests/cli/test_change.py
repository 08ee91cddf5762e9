"""Commands that change a table, in this process and against a scripted replica: what they ask for, print, and end with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replitree.client
from replitree.client.table import Table
from replitree.errors import ReplicaUnavailable
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import DROP_SERVED, Failure, FakeReplica

DONE = {"id": "x", "index": 7, "applied": True, "finished": True, "removed": 2, "added": 2, "reason": ""}
NOT_YET = {**DONE, "applied": None, "finished": False, "removed": None, "added": None, "reason": "3 parts to go"}
NOTHING = {**DONE, "applied": False, "removed": 0, "added": 0}
ASIDE = {"name": "d", "part": "all_0_3_1", "partition": "all", "rows": 10, "bytes": 1000}
FROZEN = {"name": "before", "index": 4, "note": "n", "parts": 1, "rows": 10, "bytes": 1000, "path": "/frozen/before"}
URL = ("--url", "zk://nowhere:1/replitree")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    found = FakeCluster(tmp_path / "cluster")
    found.create("t", "k bigint not null, v int", order_by="k")
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


@pytest.fixture
def r1(cluster: FakeCluster) -> FakeReplica:
    replica = cluster.add_replica("t", "r1")
    replica.answers = {"POST mutations": DONE, "POST drop": DONE, "POST alter": {**DONE, "schema_version": 1}}
    replica.answers["POST storage"] = replica.answers["POST keep"] = replica.answers["POST feed"] = DONE
    replica.answers["POST ttl"] = replica.answers["POST bloom"] = DONE
    return replica


def sent(replica: FakeReplica) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(replica.seen[-1].body)
    body.pop("id", None)
    return body


CHANGES: list[tuple[tuple[str, ...], str, dict[str, Any], str]] = [
    (("sql", "DELETE FROM t WHERE k < 5"), "mutations", {"sql": "DELETE FROM t WHERE k < 5"}, "2 parts replaced"),
    (("sql", " update `t` set v = 1"), "mutations", {"sql": "update `t` set v = 1"}, "2 parts replaced"),
    (("sql", "ALTER TABLE t DROP COLUMN v"), "alter", {"sql": "ALTER TABLE t DROP COLUMN v"}, "now version 1"),
    (("sql", "truncate table t;"), "drop", {"all": True}, "emptied: 2 parts"),
    (("table", "alter", "t", "DROP COLUMN v"), "alter", {"sql": "DROP COLUMN v"}, "now version 1"),
    (("table", "keep", "t", "7 days"), "keep", {"keep": "7d"}, "t: keeps parts that leave it 7 days"),
    (("table", "feed", "t", "24 hours"), "feed", {"feed": "24h"}, "t: keeps its change feed for 24 hours"),
    (("table", "feed", "t", "off"), "feed", {"feed": ""}, "t: keeps no change feed"),
    (
        ("table", "ttl", "t", "at + interval 90 DAYS"),
        "ttl",
        {"ttl": "at + 90 days"},
        "t: removes rows by at + interval",
    ),
    (("table", "ttl", "t", "off"), "ttl", {"ttl": ""}, "t: keeps all rows"),
    (("table", "bloom", "t", "v, k"), "bloom", {"columns": ["v", "k"]}, "t: writes Bloom filters of v, k from now on"),
    (("table", "bloom", "t", "off"), "bloom", {"columns": []}, "t: writes no Bloom filters"),
    (("table", "keep", "t", "default"), "keep", {"keep": ""}, "t: keeps parts that leave it as each replica does"),
    (
        ("table", "storage", "t", "tiered(s3://lake/t,older=7d)"),
        "storage",
        {"storage": "tiered(s3://lake/t, older=7d)"},
        "t: storage changed",
    ),
    (("table", "drop-partition", "t", "all", "--yes"), "drop", {"partition": "all"}, "partition all dropped: 2 parts"),
    (("table", "drop-blocks", "t", "3", "5", "--yes"), "drop", {"blocks": [3, 5]}, "blocks 3 to 5 dropped: 2 parts"),
    (
        ("table", "drop-blocks", "t", "3", "3", "--partition", "all", "--yes"),
        "drop",
        {"blocks": [3, 3], "partition": "all"},
        "blocks 3 to 3 dropped",
    ),
    (("table", "truncate", "t", "--yes"), "drop", {"all": True}, "emptied: 2 parts"),
    (("table", "detach", "t", "all"), "drop", {"partition": "all", "detach": True}, "partition all detached"),
]


@pytest.mark.parametrize(("arguments", "verb", "body", "says"), CHANGES, ids=[" ".join(a) for a, _, _, _ in CHANGES])
def test_change_is_asked_for_and_told(
    run: Run, r1: FakeReplica, arguments: tuple[str, ...], verb: str, body: dict[str, Any], says: str
) -> None:
    ran = run(*arguments, *URL)
    assert (ran.status, ran.err) == (0, "")
    assert says in ran.out
    assert ran.out.count("\n") == 1
    assert r1.routes() == [f"POST {verb}"]
    assert sent(r1) == body
    as_json = run(*arguments, *URL, "--json").json
    assert {"table": "t", "index": 7, "applied": True, "finished": True}.items() <= as_json.items()


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize(("arguments", "verb", "body", "says"), CHANGES, ids=[" ".join(a) for a, _, _, _ in CHANGES])
def test_change_that_is_not_finished_ends_with_3(
    run: Run, r1: FakeReplica, arguments: tuple[str, ...], verb: str, body: dict[str, Any], says: str
) -> None:
    r1.answers[f"POST {verb}"] = NOT_YET
    ran = run(*arguments, *URL, "--wait", "2")
    assert (ran.status, ran.err) == (3, "")
    assert ran.out == "t: in the log at 7, not finished yet: 3 parts to go\n"
    assert float(r1.seen[-1].query["wait_s"]) == 2
    ran = run(*arguments, *URL, "--json")
    assert ran.status == 3
    assert (ran.json["finished"], ran.json["applied"]) == (False, None)


def test_retention_is_shown_and_a_wrong_one_refused(run: Run, r1: FakeReplica) -> None:
    assert run("table", "keep", "t", *URL, "--json").json == {"table": "t", "keep": ""}
    assert "old_parts_lifetime_s" in run("table", "keep", "t", *URL).out
    assert run("table", "feed", "t", *URL, "--json").json == {"table": "t", "feed": ""}
    assert run("table", "feed", "t", *URL).out.strip() == "off"
    ran = run("table", "keep", "t", "a while", *URL)
    assert (ran.status, "a number with a unit, as in '7 days'" in ran.err) == (2, True)
    assert run("table", "ttl", "t", *URL, "--json").json == {"table": "t", "ttl": ""}
    assert run("table", "bloom", "t", *URL, "--json").json == {"table": "t", "bloom": []}
    ran = run("table", "ttl", "t", "90 days", *URL)
    assert (ran.status, "as in 'at + 90 days'" in ran.err) == (2, True)
    assert not r1.seen


def test_what_a_ttl_would_remove_is_shown(run: Run, r1: FakeReplica) -> None:
    days = [f"2026-01-{day:02}" for day in range(1, 13)]
    plan = {
        "bound": "2026-01-13T02:00:00Z",
        "where": "at < 1",
        "partitions": days,
        "rows_dropped": 7,
        "parts_touched": 1,
    }
    r1.answers["POST ttl/plan"] = {**plan, "partitions_dropped": 12, "unread": 2}
    ran = run("table", "ttl", "t", "at + 1 day", "--dry-run", *URL)
    assert (ran.status, ran.err) == (0, "")
    assert "dropped: 12 partitions with 7 rows (2026-01-01, " in ran.out
    assert "2026-01-10, …)" in ran.out
    assert "deleted: rows of 1 part where at < 1" in ran.out
    assert "not judged: 2 parts" in ran.out
    assert sent(r1) == {"ttl": "at + 1 day"}
    assert run("table", "ttl", "t", "--dry-run", *URL, "--json").json["partitions"] == days


def test_storage_is_shown_with_what_has_still_to_move(run: Run, r1: FakeReplica) -> None:
    waiting = [{"part": "all_0_0_0", "reason": "the bucket is full", "tries": 3}]
    moving = {"storage": "s3://lake/t", "parts_left": 2, "bytes_left": 2048, "waiting": waiting}
    r1.answers["GET status"] = {"state": "active", "moving": moving}
    ran = run("table", "storage", "t", *URL)
    assert (ran.status, ran.err) == (0, "")
    for word in ("storage of t: local", "r1", "2", "2.0 KiB", "the bucket is full"):
        assert word in ran.out
    as_json = run("table", "storage", "t", *URL, "--json").json
    assert as_json["storage"] == "local"
    assert as_json["replicas"]["r1"]["waiting"] == waiting
    r1.answers["GET status"] = {"state": "active"}
    assert run("table", "storage", "t", *URL, "--json").json["replicas"] == {"r1": None}


def test_storage_that_is_no_policy_is_not_asked_for(run: Run, r1: FakeReplica) -> None:
    ran = run("table", "storage", "t", "tiered(s3://lake/t)", *URL)
    assert ran.status == 2
    assert "does not say when" in ran.err
    assert r1.routes() == []


def test_change_that_finds_nothing_says_so(run: Run, r1: FakeReplica) -> None:
    r1.answers["POST drop"] = NOTHING
    ran = run("table", "drop-partition", "t", "2024-01", "--yes", *URL)
    where = "`replitree table partitions t` shows those that have"
    nothing = f"t: nothing to change: partition 2024-01 has no parts; {where} (log index 7)\n"
    assert (ran.status, ran.out) == (0, nothing)
    assert run("table", "detach", "t", "2024-01", *URL).out == nothing


def test_range_that_drops_nothing_says_why(run: Run, r1: FakeReplica) -> None:
    r1.answers["POST drop"] = NOTHING
    ran = run("table", "drop-blocks", "t", "3", "5", "--yes", *URL)
    assert ran.status == 0
    assert "a part has rows of other inserts too" in ran.out
    assert run("table", "drop-blocks", "t", "3", "5", "--yes", *URL, "--json").json["applied"] is False


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("drop-blocks", "t", "5", "3", "--yes"), "blocks 5 to 3 are no range: the lower index comes first"),
        (("drop-blocks", "t", "3", "5"), "nothing was removed: say --yes"),
        (("drop-blocks", "t", "-3", "5", "--yes"), "No such option"),
        (("drop-blocks", "t", "three", "5", "--yes"), "whole number"),
        (("remove-detached", "t", "d", "--replica", "r1"), "nothing was removed: say --yes"),
        (("remove-detached", "t", "e", "--yes"), "there is no detached part 'e' of t: r1 has d"),
        (("remove-frozen", "t", "d", "--yes"), "there is no frozen snapshot 'd' of t: r1 has none"),
        (("remove-frozen", "t", "d", "--replica", "r9", "--yes"), "r9"),
    ],
)
def test_what_makes_no_sense_removes_nothing(
    run: Run, r1: FakeReplica, arguments: tuple[str, ...], problem: str
) -> None:
    r1.answers |= {"GET detached": {"detached": [ASIDE]}, "GET frozen": {"frozen": []}}
    ran = run("table", *arguments, *URL)
    assert ran.status in {1, 2}
    assert problem in ran.err
    assert not [route for route in r1.routes() if not route.startswith("GET")]
    as_json = run("table", *arguments, *URL, "--json")
    assert as_json.status == ran.status
    assert problem in as_json.error["message"]


def test_what_lies_aside_is_deleted_on_the_one_disk_where_it_lies(
    run: Run, r1: FakeReplica, cluster: FakeCluster
) -> None:
    r2 = cluster.add_replica("t", "r2")
    for replica, parts in ((r1, [ASIDE]), (r2, [])):
        replica.answers |= {
            "GET detached": {"detached": parts},
            "GET frozen": {"frozen": [FROZEN]},
            "DELETE detached/d": {},
            "DELETE frozen/before": {},
        }
    ran = run("table", "remove-detached", "t", "d", "--yes", *URL)
    assert (ran.status, ran.out, ran.err) == (0, "d of t deleted on r1\n", "")
    assert r1.routes() == ["GET detached", "DELETE d"]
    assert r2.routes() == ["GET detached"]
    ran = run("table", "remove-frozen", "t", "before", "--yes", *URL, "--json")
    assert (ran.status, ran.error["message"]) == (
        2,
        "r1 and r2 have a frozen snapshot 'before' of t: say --replica NAME",
    )
    ran = run("table", "remove-frozen", "t", "before", "--yes", "--replica", "r2", *URL, "--json")
    assert ran.json == {"table": "t", "removed": "before", "replica": "r2"}
    assert r2.routes()[-1] == "DELETE before"
    assert "DELETE before" not in r1.routes()


def test_replica_that_can_not_be_asked_must_be_named(
    run: Run, r1: FakeReplica, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_replica("t", "r2")
    at = Table.replica

    def silent(table: Table, name: str) -> Table:
        if name == "r2":
            raise ReplicaUnavailable("r2 does not answer")
        return at(table, name)

    monkeypatch.setattr(Table, "replica", silent)
    r1.answers |= {"GET detached": {"detached": [ASIDE]}, "DELETE detached/d": {}}
    ran = run("table", "remove-detached", "t", "d", "--yes", *URL)
    assert (ran.status, r1.routes()) == (1, ["GET detached"])
    assert "r2 can't be asked (r2 does not answer): try again, or name another one with --replica" in ran.err
    assert run("table", "remove-detached", "t", "d", "--yes", "--replica", "r1", *URL).status == 0


def test_lists_of_what_lies_aside_are_of_all_replicas_and_name_those_that_are_silent(
    run: Run, r1: FakeReplica, cluster: FakeCluster
) -> None:
    r2 = cluster.add_replica("t", "r2")
    for replica in (r1, r2):
        replica.answers |= {"GET detached": {"detached": [ASIDE]}, "GET frozen": {"frozen": [FROZEN]}}
    found = run("table", "detached", "t", *URL, "--json").json
    assert ([each["replica"] for each in found["detached"]], found["not_asked"]) == (["r1", "r2"], {})
    r2.answers["GET frozen"] = Failure(503, "ReplicaUnavailable", "r2 is recovering")
    ran = run("table", "frozen", "t", *URL)
    assert (ran.status, "before" in ran.out, "not asked: r2: r2 is recovering" in ran.out) == (0, True, True)
    found = run("table", "frozen", "t", *URL, "--json").json
    assert ([each["replica"] for each in found["frozen"]], list(found["not_asked"])) == (["r1"], ["r2"])
    named = run("table", "frozen", "t", "--replica", "r1", *URL, "--json").json
    assert ([each["replica"] for each in named["frozen"]], named["not_asked"]) == (["r1"], {})
    ran = run("table", "frozen", "t", "--replica", "r2", *URL, "--json")
    assert (ran.status, ran.error["message"]) == (1, "r2 is recovering")


def test_detached_part_is_attached_where_it_lies(run: Run, r1: FakeReplica, cluster: FakeCluster) -> None:
    r2 = cluster.add_replica("t", "r2")
    r1.answers["GET detached"] = {"detached": []}
    r2.answers |= {
        "GET detached": {"detached": [ASIDE]},
        "POST attach": {"outcome": "inserted", "index": 20, "rows": 10},
    }
    assert run("table", "attach", "t", "d", *URL).out == "10 rows of d attached to t\n"
    assert ("POST attach" in r1.routes(), r2.routes()[-1]) == (False, "POST attach")


@pytest.mark.parametrize(
    "arguments",
    [
        ("sql", "DELETE FROM t WHERE k < 5"),
        ("sql", "TRUNCATE TABLE t"),
        ("sql", "ALTER TABLE t DROP COLUMN v"),
        ("table", "alter", "t", "DROP COLUMN v"),
        ("table", "storage", "t", "local"),
        ("table", "drop-partition", "t", "all", "--yes"),
        ("table", "drop-blocks", "t", "3", "5", "--yes"),
        ("table", "truncate", "t", "--yes"),
        ("table", "detach", "t", "all"),
    ],
    ids=" ".join,
)
def test_change_is_repeated_under_the_id_of_its_error(run: Run, r1: FakeReplica, arguments: tuple[str, ...]) -> None:
    assert run(*arguments, "--id", "one-of-mine", *URL).status == 0
    assert json.loads(r1.seen[-1].body)["id"] == "one-of-mine"


def test_query_has_no_id(run: Run, r1: FakeReplica) -> None:
    ran = run("sql", "select 1", "--id", "x", *URL)
    assert (ran.status, "a query has no id" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("DELETE FROM t WHERE k < 5", "--level", "linearizable"), "--level, --as-of and --min-index are for queries"),
        (
            ("select 1", "--as-of", "1x"),
            "--as-of 1x: '1x' is no time and no tag: write a time as in '2026-11-27T03:00:00+01:00' or",
        ),
        (("select 1", "--min-index", "nope=3"), "the tables are t"),
        (("select 1", "--as-of", "3", "--min-index", "t=3"), "--as-of says exactly what is included of t"),
        (("select 1", "--final"), "--final is for DELETE FROM"),
        (("UPDATE t SET v = 1 WHERE k = 1", "--final"), "--final is for DELETE FROM"),
        (("select 1", "--level", "exact"), "'exact' is not one of: eventual, sequential, consistent, linearizable"),
    ],
)
def test_what_a_query_must_see_is_said_well(run: Run, r1: FakeReplica, arguments: tuple[str, ...], what: str) -> None:
    ran = run("sql", *arguments, *URL)
    assert (ran.status, what in ran.err) == (2, True), ran.err
    assert r1.seen == []


def test_final_delete_is_read_and_refused_where_no_version_decides(run: Run, r1: FakeReplica) -> None:
    r1.snapshot = {
        "index": 8,
        "schema_version": 1,
        "replica": "r1",
        "machine": "",
        "parts": [],
        "level": "linearizable",
    }
    ran = run("sql", "DELETE FROM t WHERE k < 5", "--final", *URL)
    assert (ran.status, "final=True needs the policy replacing(version); 'plain' keeps every row" in ran.err) == (
        2,
        True,
    )
    assert "POST mutations" not in r1.routes()


def test_refused_and_unknown_changes_are_errors(run: Run, r1: FakeReplica) -> None:
    r1.answers["POST mutations"] = Failure(400, "BadInput", "there is no column 'x'; did you mean 'k'?")
    ran = run("sql", "DELETE FROM t WHERE x = 1", *URL)
    assert (ran.status, ran.err) == (2, "replitree: there is no column 'x'; did you mean 'k'?\n")
    r1.script.append(DROP_SERVED)
    ran = run("sql", "DELETE FROM t WHERE x = 1", *URL, "--json")
    assert (ran.status, ran.error["error"]) == (1, "OutcomeUnknown")
    assert "will not be done twice" in ran.error["message"]


def test_optimize_tells_merges(run: Run, r1: FakeReplica) -> None:
    merge = {"index": 9, "partition": "all", "sources": ["a", "b", "c"], "result": "d", "applied": True}
    r1.answers["POST optimize"] = {"merges": [{**merge, "finished": True}], "finished": True, "reason": ""}
    ran = run("optimize", "t", "--partition", "all", "--final", *URL)
    assert (ran.status, ran.out) == (0, "1 merge of 3 parts of t\n")
    assert sent(r1) == {"partition": "all", "final": True}
    r1.answers["POST optimize"] = {"merges": [{**merge, "finished": False}], "finished": False, "reason": ""}
    ran = run("optimize", "t", *URL, "--json")
    assert (ran.status, ran.json["finished"], ran.json["merges"][0]["result"]) == (3, False, "d")
    r1.answers["POST optimize"] = {"merges": [], "finished": True, "reason": "one part is left"}
    assert run("optimize", "t", *URL).out == "nothing to merge in t: one part is left\n"
    late = "partition 1: its parts were dropped; say optimize again"
    r1.answers["POST optimize"] = {"merges": [], "finished": False, "reason": late}
    ran = run("optimize", "t", *URL)
    assert (ran.status, ran.out) == (3, f"nothing was merged in t: {late}\n")
    r1.answers["POST optimize"] = {"merges": [{**merge, "finished": True}], "finished": False, "reason": late}
    ran = run("optimize", "t", *URL)
    assert (ran.status, ran.out) == (3, f"1 merge of 3 parts of t, and not all that was to be merged: {late}\n")


def test_mutations_partitions_and_what_lies_aside_are_shown(run: Run, r1: FakeReplica) -> None:
    command = '{"format":1,"kind":"delete","where":"k = 7"}'
    mutation = {"index": 7, "command": command, "parts_done": 3, "parts_left": 2, "reason": "no room"}
    part = {**ASIDE, "name": "detached_all_0_3_1_0"}
    r1.answers = {
        "GET mutations": {"mutations": [mutation]},
        "DELETE mutations/7": {"index": 7, "killed": 2, "finished": True},
        "GET detached": {"detached": [part]},
        "POST attach": {"outcome": "inserted", "index": 20, "rows": 10},
        "POST freeze": FROZEN,
        "GET frozen": {"frozen": [FROZEN]},
        "POST merges/pause": {"merges_paused": True},
        "POST merges/resume": {"merges_paused": False},
    }
    r1.snapshot = {"index": 0, "schema_version": 1, "replica": "r1", "machine": "", "parts": []}
    shown = {
        ("mutations", "t"): "DELETE FROM t WHERE k = 7",
        ("kill-mutation", "t", "7"): "mutation 7 of t killed: 2 parts left as they were",
        ("partitions", "t"): "partitions of t",
        ("detached", "t", "--replica", "r1"): "detached_all_0_3_1_0",
        ("attach", "t", "detached_all_0_3_1_0"): "10 rows of detached_all_0_3_1_0 attached to t",
        ("freeze", "t", "before", "--note", "n"): "t frozen as before: 1 part, 10 rows",
        ("frozen", "t"): "before",
        ("pause-merges", "t"): "merges of t paused on r1",
        ("resume-merges", "t"): "merges of t resumed on r1",
    }
    for arguments, says in shown.items():
        ran = run("table", *arguments, *URL)
        assert (ran.status, ran.err) == (0, ""), arguments
        assert says in ran.out
        assert run("table", *arguments, *URL, "--json").json["table"] == "t"


def test_policy_is_made_and_shown(run: Run, r1: FakeReplica) -> None:
    assert run("table", "show", "t", *URL, "--json").json["policy"] == "plain"
    ran = run("table", "create", "u", "--schema", "k int, v int", "--order-by", "k", "--policy", "replacing(x)", *URL)
    assert (ran.status, "'x'" in ran.err) == (2, True)


def test_status_shows_what_a_replica_works_at(run: Run, r1: FakeReplica) -> None:
    making = {"index": 5, "kind": "merge", "result": "all_0_9_1", "rows_done": 1000, "rows_total": 8000}
    old = {"old_parts": 3, "old_bytes": 2048, "leases": 1, "packed_parts": 2, "packs": 1}
    said = {"state": "active", "index": 4, "parts": 2, "rows": 8, "bytes": 100, "running": [making]}
    r1.answers["GET status"] = {**said, **old, "merges_paused": True, "leader": "r1"}
    ran = run("status", "t", *URL)
    assert ran.status == 0
    assert "r1 makes all_0_9_1 (merge at 5): 1,000 of 8,000 rows" in ran.out
    assert "r1 merges nothing by itself" in ran.out
    assert "r1 keeps 3 parts that left the table (2.0 KiB), 2 of them in 1 pack, under 1 lease" in ran.out
    assert "lacks" not in ran.out
    (replica,) = run("status", "t", *URL, "--json").json["tables"][0]["replicas"]
    assert {"leader": "r1", "merges_paused": True, "running": [making], **old}.items() <= replica.items()


def test_status_shows_which_parts_reads_do_not_show(run: Run, r1: FakeReplica) -> None:
    said = {"state": "active", "index": 4, "parts": 2, "rows": 8, "bytes": 100}
    r1.answers["GET status"] = {**said, "lacking": ["all_0_0_0"]}
    assert "r1 lacks 1 part, broken or gone (all_0_0_0): `replitree doctor`" in run("status", "t", *URL).out
    r1.answers["GET status"] = {**said, "lacking": [f"all_{number}_{number}_0" for number in range(5)]}
    ran = run("status", "t", *URL)
    assert "r1 lacks 5 parts, broken or gone (all_0_0_0, all_1_1_0, all_2_2_0, …)" in ran.out
    assert len(run("status", "t", *URL, "--json").json["tables"][0]["replicas"][0]["lacking"]) == 5


def test_storage_is_made_and_shown(run: Run, r1: FakeReplica) -> None:
    assert run("table", "show", "t", *URL, "--json").json["storage"] == "local"
    assert "storage" in run("table", "show", "t", *URL).out
    ran = run("table", "create", "u", "--schema", "k int", "--storage", "s3://key:secret@lake/x", *URL)
    assert ran.status == 2
    assert "credentials" in ran.err
    assert "secret@" not in ran.err


def test_status_says_what_has_to_move_and_why_it_waits(run: Run, r1: FakeReplica) -> None:
    waiting = [{"part": "all_0_0_0", "reason": "r2 moves it", "tries": 1}]
    moving = {"storage": "s3://lake/t", "problem": "", "parts_left": 2, "bytes_left": 2048, "waiting": waiting}
    r1.answers["GET status"] = {"state": "active", "moving": moving}
    told = "r1 has 2 parts (2.0 KiB) to move to where s3://lake/t has them; all_0_0_0 waits: r2 moves it"
    assert told in run("status", "t", *URL).out
    r1.answers["GET status"] = {"state": "active", "moving": {**moving, "parts_left": 0, "problem": "no route to it"}}
    ran = run("status", "t", *URL)
    assert "r1 can't use the table's object store: no route to it" in ran.out
    assert "to move" not in ran.out
