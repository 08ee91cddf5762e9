from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from replitree.client.change.change_results import Merged, OptimizeResult
from replitree.client.change.command import CommandResult
from replitree.client.change.planned import published
from replitree.client.table import Table
from replitree.errors import BadInput, OutcomeUnknown, ReadOnly, ReplicaUnavailable, SchemaMismatch
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Get, Set
from replitree.storage.schema.definition import define_table
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import DROP_SERVED, DROP_UNSEEN, Failure, FakeReplica

DONE = {"id": "x", "index": 7, "applied": True, "finished": True, "removed": 2, "added": 2, "reason": ""}
NOT_YET = {"id": "x", "index": 7, "applied": None, "finished": False, "removed": None, "added": None, "reason": "busy"}
READ_ONLY = Failure(503, "ReadOnly")


@pytest.fixture
def r1(cluster: FakeCluster) -> FakeReplica:
    cluster.create("t", "k bigint not null, v int, s string", order_by="k")
    replica = cluster.add_replica("t", "r1")
    replica.answers = {"POST mutations": DONE, "POST drop": DONE, "POST alter": DONE}
    replica.snapshot = {"index": 8, "schema_version": 1, "replica": "r1", "machine": "", "parts": []}
    return replica


@pytest.fixture
def table(cluster: FakeCluster, r1: FakeReplica) -> Table:
    return cluster.connect().table("t")


def bodies(replica: FakeReplica) -> list[dict[str, Any]]:
    return [json.loads(seen.body) for seen in replica.seen if seen.method == "POST" and seen.body]


CALLS: list[tuple[Callable[[Table], CommandResult], str, dict[str, Any]]] = [
    (
        lambda t: t.delete("k < 5", "all"),
        "mutations",
        {"kind": "delete", "where": "k < 5", "assignments": [], "partition": "all"},
    ),
    (
        lambda t: t.update({"v": "v + 1"}, "k = 7"),
        "mutations",
        {"kind": "update", "where": "k = 7", "assignments": [["v", "v + 1"]], "partition": None},
    ),
    (lambda t: t.mutate("DELETE FROM t WHERE k = 1"), "mutations", {"sql": "DELETE FROM t WHERE k = 1"}),
    (lambda t: t.drop_partition("2024-01"), "drop", {"partition": "2024-01"}),
    (lambda t: t.drop_blocks(3, 9), "drop", {"blocks": [3, 9]}),
    (lambda t: t.drop_blocks(3, 9, "all"), "drop", {"blocks": [3, 9], "partition": "all"}),
    (lambda t: t.truncate(), "drop", {"all": True}),
    (lambda t: t.detach_partition("all"), "drop", {"partition": "all", "detach": True}),
    (lambda t: t.alter("DROP COLUMN v"), "alter", {"sql": "DROP COLUMN v"}),
    (lambda t: t.add_column("odd name", "int", "0"), "alter", {"sql": "ADD COLUMN `odd name` int32 DEFAULT 0"}),
    (lambda t: t.add_column("r.odd name", "int"), "alter", {"sql": "ADD COLUMN r.`odd name` int32"}),
    (lambda t: t.add_column("`a.b`.c", "int"), "alter", {"sql": "ADD COLUMN `a.b`.c int32"}),
    (lambda t: t.drop_column("v"), "alter", {"sql": "DROP COLUMN v"}),
    (lambda t: t.drop_column("l.element.x"), "alter", {"sql": "DROP COLUMN l.element.x"}),
    (lambda t: t.rename_column("r.v", "w.x"), "alter", {"sql": "RENAME COLUMN r.v TO `w.x`"}),
    (lambda t: t.rename_column("v", "w"), "alter", {"sql": "RENAME COLUMN v TO w"}),
    (lambda t: t.widen_column("v", "bigint"), "alter", {"sql": "ALTER COLUMN v TYPE int64"}),
]


@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize(("call", "verb", "body"), CALLS, ids=[str(body) for _, _, body in CALLS])
def test_change_is_one_request_with_an_id(
    table: Table, r1: FakeReplica, call: Callable[[Table], CommandResult], verb: str, body: dict[str, Any]
) -> None:
    assert call(table) == CommandResult("x", 7, applied=True, finished=True, removed=2, added=2)
    (sent,) = bodies(r1)
    assert sent.pop("id")
    assert sent == body
    assert r1.routes() == [f"POST {verb}"]
    assert float(r1.seen[0].query["wait_s"]) == 60


def test_statements_that_the_helpers_write_are_understood(table: Table, r1: FakeReplica) -> None:
    inside = "r struct<v: int>, l array<struct<x: int, y: int>>, `a.b` struct<d: int>"
    nested = define_table("t", f"k bigint, v int, s string, {inside}", order_by="k")
    for call, verb, body in CALLS:
        if verb == "alter":
            call(table)
            assert parse_alter(body["sql"], nested).changes


def test_finished_change_is_in_every_later_snapshot(table: Table, r1: FakeReplica) -> None:
    assert table.delete("k = 1").finished
    table.snapshot()
    assert (r1.seen[-1].query["min_index"], r1.seen[-1].query["mutated"]) == ("0", "7")
    assert table.truncate().finished
    table.snapshot()
    assert (r1.seen[-1].query["min_index"], r1.seen[-1].query["mutated"]) == ("8", "7")
    table.snapshot(min_index=4)
    assert (r1.seen[-1].query["min_index"], r1.seen[-1].query["mutated"]) == ("5", "4")
    table.snapshot(min_index=-1)
    assert (r1.seen[-1].query["min_index"], "mutated" in r1.seen[-1].query) == ("0", False)


@pytest.mark.usefixtures("no_time_passes")
def test_unfinished_change_is_said_to_be_so_and_not_waited_for(table: Table, r1: FakeReplica) -> None:
    r1.answers["POST mutations"] = NOT_YET
    result = table.delete("k = 1", timeout_s=5)
    assert (result.finished, result.applied, result.index, result.reason) == (False, None, 7, "busy")
    assert float(r1.seen[-1].query["wait_s"]) == 5
    table.snapshot()
    assert (r1.seen[-1].query["min_index"], "mutated" in r1.seen[-1].query) == ("0", False)


def test_refused_change_goes_to_the_next_replica_with_the_same_id(cluster: FakeCluster, r1: FakeReplica) -> None:
    r2 = cluster.add_replica("t", "r2")
    r2.answers = r1.answers
    for replica in (r1, r2):
        replica.script.append(READ_ONLY)
    assert cluster.connect().table("t").delete("k = 1").index == 7
    ids = {body["id"] for body in [*bodies(r1), *bodies(r2)]}
    assert len(ids) == 1
    assert min(len(r1.seen), len(r2.seen)) == 1


@pytest.mark.parametrize("fate", [DROP_UNSEEN, DROP_SERVED, Failure(504, "OutcomeUnknown")])
def test_in_doubt_only_the_same_replica_is_asked_again(
    cluster: FakeCluster, r1: FakeReplica, fate: str | Failure
) -> None:
    r2 = cluster.add_replica("t", "r2")
    r2.answers = r1.answers
    r1.script.extend([fate, READ_ONLY])
    r2.script.extend([fate, READ_ONLY])
    assert cluster.connect().table("t").update({"v": "v + 1"}, "k = 1").index == 7
    asked, other = (r1, r2) if r1.seen else (r2, r1)
    assert len({body["id"] for body in bodies(asked)}) == 1
    assert len(asked.seen) == 3
    assert other.seen == []


@pytest.mark.parametrize("then", [READ_ONLY, Failure(400, "BadInput"), Failure(404, "TableNotFound")])
def test_error_after_a_doubt_is_an_unknown_outcome(table: Table, r1: FakeReplica, then: Failure) -> None:
    r1.script.append(DROP_SERVED)
    r1.answers["POST mutations"] = then
    with pytest.raises(OutcomeUnknown, match="it will not be done twice") as caught:
        table.delete("k = 1", command_id="mine", timeout_s=-9.5)
    assert caught.value.token == "mine"
    assert {body["id"] for body in bodies(r1)} == {"mine"}


@pytest.mark.parametrize("what", ["tags", "consumers"])
def test_a_name_that_may_have_been_given_is_an_unknown_outcome_with_its_id(
    table: Table, r1: FakeReplica, what: str
) -> None:
    r1.script.append(DROP_SERVED)
    r1.answers[f"POST {what}"] = READ_ONLY
    give = table.tag if what == "tags" else table.create_consumer
    with pytest.raises(OutcomeUnknown, match=r"the same token \(mine\): it will not be carried out twice") as caught:
        give("a", 0, command_id="mine", timeout_s=-9.5)
    assert caught.value.token == "mine"
    assert {body["id"] for body in bodies(r1)} == {"mine"}


def test_certain_errors_are_raised_as_they_are(table: Table, r1: FakeReplica) -> None:
    r1.answers["POST mutations"] = Failure(400, "SchemaMismatch", "no column 'x'")
    with pytest.raises(SchemaMismatch, match="no column 'x'"):
        table.delete("x = 1")
    r1.answers["POST mutations"] = READ_ONLY
    with pytest.raises(ReadOnly):
        table.delete("k = 1", timeout_s=-9.8)


def test_wrong_arguments_are_refused_here(table: Table, r1: FakeReplica) -> None:
    calls: tuple[Callable[[], CommandResult], ...] = (
        lambda: table.update({}, "k = 1"),
        lambda: table.drop_blocks(5, 4),
        lambda: table.drop_blocks(-1, 4),
        lambda: table.delete("k = 1", command_id=""),
        lambda: table.add_column("x", "nonsense"),
    )
    for call in calls:
        with pytest.raises(BadInput):
            call()
    assert r1.seen == []


def test_alter_brings_the_new_columns(cluster: FakeCluster, table: Table, r1: FakeReplica) -> None:
    definition = table.definition
    altered = apply_alter(definition, parse_alter("ADD COLUMN x int DEFAULT 3", definition))
    path = layout.columns(cluster.catalog.place("t"))
    cluster.commit(Set(path, altered.encode_columns(), cluster.session.perform(Get(path)).version))
    r1.answers["POST alter"] = {**DONE, "schema_version": 2, "removed": 0, "added": 0}
    assert table.alter("ADD COLUMN x int DEFAULT 3").schema_version == 2
    assert table.schema.names == ["k", "v", "s", "x"]


def test_insert_that_does_not_fit_old_columns_is_tried_with_new_ones(
    cluster: FakeCluster, table: Table, r1: FakeReplica
) -> None:
    with pytest.raises(SchemaMismatch):
        table.insert({"k": [1], "x": [2]})
    altered = apply_alter(table.definition, parse_alter("ADD COLUMN x int", table.definition))
    path = layout.columns(cluster.catalog.place("t"))
    cluster.commit(Set(path, altered.encode_columns(), cluster.session.perform(Get(path)).version))
    assert table.insert({"k": [1], "x": [2]}).outcome == "inserted"
    with pytest.raises(SchemaMismatch):
        table.insert({"k": [1], "y": [2]})


def test_optimize_tells_what_it_began(table: Table, r1: FakeReplica) -> None:
    merge = {
        "index": 9,
        "partition": "all",
        "sources": ["all_0_0_0", "all_1_1_0"],
        "result": "all_0_1_1",
        "applied": True,
        "finished": True,
    }
    r1.answers["POST optimize"] = {"merges": [merge], "finished": True, "reason": ""}
    result = table.optimize("all", final=True)
    assert result.merges[0].result == "all_0_1_1"
    assert bodies(r1) == [{"partition": "all", "final": True}]


def test_a_published_merge_that_came_too_late_is_not_told_as_made() -> None:
    made = Merged(7, "0", ("0_0_0_0", "0_1_1_0"), "0_0_1_1", applied=True, finished=True)
    late = Merged(8, "1", ("1_0_0_0", "1_1_1_0"), "1_0_1_1", applied=False, finished=True)
    assert published([made], []) == OptimizeResult((made,), finished=True)
    result = published([made, late], ["partition 2: no room"])
    assert (result.merges, result.finished) == ((made,), False)
    assert result.reason.startswith("partition 1: its parts were dropped")
    assert result.reason.endswith("say optimize again")
    assert published([made], ["partition 2: no room"]) == OptimizeResult(
        (made,), finished=False, reason="partition 2: no room"
    )


def test_mutations_are_listed_and_killed(table: Table, r1: FakeReplica) -> None:
    found = {"index": 7, "id": "x", "replica": "r1", "partition": "*", "command": "{}", "parts_done": 3}
    r1.answers["GET mutations"] = {"mutations": [{**found, "parts_left": 2, "reason": "all_0_0_0: bad", "tries": 2}]}
    r1.answers["DELETE mutations/7"] = {"index": 7, "killed": 2, "finished": True}
    (mutation,) = table.mutations()
    assert (mutation.parts_done, mutation.parts_left, mutation.tries, mutation.finished) == (3, 2, 2, False)
    assert table.kill_mutation(7).killed == 2


def test_merges_are_paused_on_every_replica(cluster: FakeCluster, table: Table, r1: FakeReplica) -> None:
    r2 = cluster.add_replica("t", "r2")
    for replica in (r1, r2):
        replica.answers = {"POST merges/pause": {"merges_paused": True}, "POST merges/resume": {"merges_paused": False}}
    assert table.pause_merges() == ("r1", "r2")
    assert table.resume_merges() == ("r1", "r2")
    r2.script.append(DROP_SERVED)
    with pytest.raises(ReplicaUnavailable, match="are paused on r1; r2 did not answer and may not have paused them"):
        table.pause_merges()


def test_merges_of_a_table_without_an_active_replica_are_not_called_paused(cluster: FakeCluster) -> None:
    cluster.create("u", "k bigint")
    cluster.add_replica("u", "r1", active=False).close()
    with pytest.raises(ReplicaUnavailable, match="no replica of u is active"):
        cluster.connect().table("u").pause_merges()
    cluster.replicas.clear()


FROZEN = {"name": "before", "index": 4, "note": "n", "parts": 1, "rows": 10, "bytes": 1000, "path": "/frozen/before"}


def test_what_lies_aside_is_named_with_its_replica(table: Table, r1: FakeReplica) -> None:
    part = {"name": "detached_all_0_3_1_0", "part": "all_0_3_1", "partition": "all", "rows": 10, "bytes": 1000}
    r1.answers = {
        "GET detached": {"detached": [part]},
        "POST attach": {"outcome": "inserted", "index": 20, "rows": 10},
        "DELETE detached/detached_all_0_3_1_0": {},
        "POST freeze": FROZEN,
        "GET frozen": {"frozen": [FROZEN]},
        "DELETE frozen/before": {},
    }
    (found,) = table.detached()
    assert (found.name, found.rows, found.replica) == ("detached_all_0_3_1_0", 10, "r1")
    assert table.attach(found.name).index == 20
    assert table.freeze("before", "n").replica == "r1"
    assert r1.seen[-1].query["min_index"] == "21"
    assert [(each.name, each.replica) for each in table.frozen()] == [("before", "r1")]
    table.remove_detached(found.name)
    table.remove_frozen("before")


def freezing(cluster: FakeCluster, name: str, *frozen: dict[str, object]) -> FakeReplica:
    """A replica that freezes, and what it has frozen."""
    replica = cluster.replicas.get(name) or cluster.add_replica("t", name)
    replica.answers = {"POST freeze": FROZEN, "GET frozen": {"frozen": frozen}}
    return replica


@pytest.mark.parametrize("holder", ["r1", "r2"])
def test_freeze_is_repeated_where_the_name_is_and_nowhere_else(cluster: FakeCluster, table: Table, holder: str) -> None:
    replicas = [freezing(cluster, name, *([FROZEN] if name == holder else [])) for name in ("r1", "r2")]
    assert table.freeze("before", "n").replica == holder
    assert [each.name for each in replicas if "POST freeze" in each.routes()] == [holder]
    taken = Failure(400, "BadInput", "there is a frozen snapshot 'before' already")
    for each in replicas:
        if each.name == holder:
            each.answers["POST freeze"] = taken
    with pytest.raises(BadInput, match="already"):
        table.freeze("before", "another note")


def test_freeze_goes_on_when_a_replica_can_not_say_what_it_has(cluster: FakeCluster, table: Table) -> None:
    r1, r2 = freezing(cluster, "r1"), freezing(cluster, "r2", FROZEN)
    r2.close()
    assert table.freeze("before").replica == "r1"
    r1.answers["GET frozen"] = READ_ONLY
    assert table.freeze("before").replica == "r1"


def test_freeze_at_a_named_replica_asks_no_other_one(cluster: FakeCluster, table: Table) -> None:
    r1, r2 = freezing(cluster, "r1"), freezing(cluster, "r2", FROZEN)
    assert table.replica("r1").freeze("before").replica == "r1"
    assert (r1.routes(), r2.routes()) == (["GET frozen", "POST freeze"], [])


def test_attach_in_doubt_is_not_repeated(cluster: FakeCluster, table: Table, r1: FakeReplica) -> None:
    r1.answers["POST attach"] = {"outcome": "inserted", "index": 20, "rows": 10}
    r1.script.append(DROP_SERVED)
    with pytest.raises(OutcomeUnknown, match="look at the table"):
        table.attach("detached_all_0_3_1_0")
    assert len(r1.seen) == 1


# --- overwrite ------------------------------------------------------------------------------------------------------------


def test_overwriting_insert_says_so_and_has_a_token_of_its_own(table: Table, r1: FakeReplica) -> None:
    one, two = (table.insert({"k": [1]}, overwrite="all") for _ in range(2))
    assert one.outcome == two.outcome == "inserted"
    assert one.token != two.token
    assert table.insert({"k": [1]}, token="a b", overwrite="partitions").token == "a b"
    asked = [(seen.query["overwrite"], seen.query["token"]) for seen in r1.seen]
    assert asked == [("all", one.token), ("all", two.token), ("partitions", "a b")]
    with pytest.raises(BadInput, match="overwrite"):
        table.insert({"k": [1]}, overwrite="everything")  # type: ignore[arg-type]


def test_upload_that_overwrites_says_so_in_its_commit(table: Table, r1: FakeReplica) -> None:
    table.insert({"k": list(range(70_000))}, overwrite="partitions", token="big")
    (commit,) = [seen for seen in r1.seen if seen.path.endswith("/commit")]
    assert commit.query == {"token": "big", "overwrite": "partitions"}


def test_overwriting_with_nothing_empties_the_table(table: Table, r1: FakeReplica) -> None:
    result = table.insert({"k": []}, overwrite="all", token="load 7")
    assert (result.outcome, result.rows, result.index) == ("empty", 0, 7)
    assert bodies(r1) == [{"all": True, "id": "empty-load 7"}]
    r1.seen.clear()
    assert table.insert({"k": []}, overwrite="partitions").index is None
    assert r1.seen == []


@pytest.mark.parametrize("where", [5, None, b"k = 1"])
def test_condition_that_is_no_text_is_refused(table: Table, r1: FakeReplica, where: Any) -> None:
    with pytest.raises(BadInput, match="a condition is text"):
        table.delete(where)
    with pytest.raises(BadInput, match="a condition is text"):
        table.update({"v": "0"}, where)
    if where is not None:
        with pytest.raises(BadInput, match="a condition is text"):
            table.to_arrow(where=where)
    assert r1.seen == []
