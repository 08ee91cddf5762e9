"""Commands over shards on running replicas: every shard has the command, by one commit, whichever replica was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import AlterEntry, DropEntry, MutateEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.stamps import GetStamped
from replitree.protocol.propose.roll_over import roll_over
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands
from replitree.storage.schema.definition import decode_definition
from tests.replica.inprocess import InProcessCluster, Node, wait_for
from tests.replica.sharded import (
    NAMES,
    PLACE,
    SHARDS,
    LosesAnswers,
    commit,
    creates,
    insert,
    keys,
    log,
    prepare,
    sharded_cluster,
    wait_shown,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas, each with both shards of `d`."""
    with sharded_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def filled(cluster: InProcessCluster) -> InProcessCluster:
    """The same with the keys 0 to 9 in the first shard and 100 to 109 in the second."""
    first, second = cluster.nodes
    assert insert(first, second, 0)[1]["outcome"] == "inserted"
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))
    return cluster


def written(answer: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Where a command is, as its answer says."""
    return [(shard, index) for shard, index in answer["shards"]]


def refused(node: Node, what: str, body: dict[str, Any], status: int = 400) -> str:
    """Send a command to the first shard that is refused; return the message."""
    found, answer = node.request("POST", f"/v1/tables/{NAMES[0]}/{what}", json.dumps(body).encode())
    assert found == status, answer
    return str(answer["message"])


def version_of_commands(cluster: InProcessCluster) -> int:
    """How many commands there were."""
    return int(cluster.admin.perform(fx.Get(commands(PLACE))).version)


# --- without trouble --------------------------------------------------------------------------------------------------------


def test_a_mutation_is_in_both_logs_by_one_transaction_and_is_counted(filled: InProcessCluster) -> None:
    first, second = filled.nodes
    answer = first.post("mutations", {"sql": "DELETE FROM d WHERE k % 2 = 0"}, table=NAMES[0])
    assert written(answer) == [("d~0", 1), ("d~1", 1)]
    assert (answer["index"], answer["applied"], answer["finished"]) == (1, True, True)
    wait_shown(filled, 0, keys(0)[1::2])
    wait_shown(filled, 1, keys(100)[1::2])
    entries = tuple(layout.log_entry(shard, 1) for shard in SHARDS)
    one, other, counter = filled.admin.perform(GetStamped((*entries, commands(PLACE)))).nodes
    assert one.created == other.created == counter.changed
    assert version_of_commands(filled) == 1
    there = second.get("commands/1", NAMES[1])
    assert (there["applied"], there["finished"], there["removed"]) == (True, True, 1)


def test_a_condition_that_names_keys_concerns_only_the_shard_that_has_them(filled: InProcessCluster) -> None:
    first = filled.nodes[0]
    # The rows lie where this test has put them, so nothing is said of which shard has the key by its hash.
    first.post("mutations", {"kind": "delete", "where": "k = 3"}, table=NAMES[0])
    entries = [log(filled, shard)[1] for shard in range(2)]
    assert sorted(entry.partitions == () for entry in entries) == [False, True]
    assert {entry.id for entry in entries} == {entries[0].id}


def test_a_change_of_columns_moves_those_of_the_table_and_of_all_shards(filled: InProcessCluster) -> None:
    first, second = filled.nodes
    answer = second.post("alter", {"sql": "ALTER TABLE d ADD COLUMN w bigint DEFAULT 7"}, table=NAMES[1])
    assert (written(answer), answer["schema_version"]) == ([("d~0", 1), ("d~1", 1)], 2)
    paths = (places.columns(PLACE), *map(layout.columns, SHARDS))
    nodes = filled.admin.perform(fx.GetMany(paths)).nodes
    assert {(node.value, node.version) for node in nodes} == {(nodes[0].value, 1)}
    assert all(isinstance(log(filled, shard)[1], AlterEntry) for shard in range(2))
    changed = first.post("mutations", {"kind": "update", "where": "w = 7", "assignments": [["w", "k"]]}, table=NAMES[0])
    assert changed["applied"] is True
    assert [log(filled, shard)[2].schema_version for shard in range(2)] == [2, 2]


def test_a_change_of_the_retention_keeps_each_shards_own_name(filled: InProcessCluster) -> None:
    filled.nodes[0].post("keep", {"keep": "2 days"}, table=NAMES[0])
    filled.nodes[1].post("keep", {"keep": "3 days"}, table=NAMES[1])
    paths = (places.metadata(PLACE), *map(layout.metadata, SHARDS))
    columns = filled.admin.perform(fx.Get(places.columns(PLACE))).value
    found = [decode_definition(node.value, columns) for node in filled.admin.perform(fx.GetMany(paths)).nodes]
    assert [(each.name, each.keep) for each in found] == [("d", "3d"), ("d~0", "3d"), ("d~1", "3d")]
    assert len({each.table_id for each in found}) == 3


def test_a_drop_empties_every_shard(filled: InProcessCluster) -> None:
    filled.nodes[1].post("drop", {"all": True}, table=NAMES[1])
    wait_shown(filled, 0, [])
    wait_shown(filled, 1, [])
    assert all(isinstance(log(filled, shard)[1], DropEntry) for shard in range(2))


def test_an_insert_that_was_prepared_before_a_change_of_columns_comes_after_it(filled: InProcessCluster) -> None:
    first, second = filled.nodes
    own, its = prepare(first, 0, 20, coordinates="true"), prepare(second, 1, 120)
    first.post("alter", {"sql": "ADD COLUMN w bigint DEFAULT 7"}, table=NAMES[0])
    first.post("mutations", {"sql": "UPDATE d SET w = 8 WHERE k >= 0"}, table=NAMES[0])
    assert commit(first, (own, its), token="late")[1]["outcome"] == "inserted"
    wait_shown(filled, 0, [*keys(0), *keys(20)])
    wait_shown(filled, 1, [*keys(100), *keys(120)])
    assert [entry.schema_version for entry in (log(filled, 0)[3], log(filled, 1)[3])] == [1, 1]


# --- what is refused --------------------------------------------------------------------------------------------------------


def test_what_would_break_the_shard_key_is_refused(filled: InProcessCluster) -> None:
    first = filled.nodes[0]
    assert refused(first, "mutations", {"kind": "update", "where": "v > 0", "assignments": [["k", "k + 1"]]})
    assert refused(first, "alter", {"sql": "DROP COLUMN k"})
    assert refused(first, "drop", {"blocks": [0, 1]})
    assert "is about" in refused(first, "mutations", {"sql": "DELETE FROM t WHERE k = 1"})
    assert [len(log(filled, shard)) for shard in range(2)] == [1, 1]
    assert version_of_commands(filled) == 0


def test_a_table_that_is_being_dropped_takes_no_command(filled: InProcessCluster) -> None:
    filled.admin.perform(fx.Commit(fx.Delete(layout.shard_map(PLACE), fx.ANY_VERSION)))
    assert "being dropped" in refused(filled.nodes[0], "drop", {"all": True}, status=503)
    assert [len(log(filled, shard)) for shard in range(2)] == [1, 1]


# --- once, whatever happens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_commit_whose_answer_is_lost_is_settled_before_the_client_hears(
    filled: InProcessCluster, is_applied: bool
) -> None:
    first, second = filled.nodes
    loses = LosesAnswers(first, creates("/tokens/command-"), is_applied=is_applied)
    body = {"sql": "UPDATE d SET v = v + 1 WHERE k >= 0", "id": "mine"}
    answer = first.post("mutations", body, table=NAMES[0])
    assert (loses.lost, written(answer)) == (1, [("d~0", 1), ("d~1", 1)])
    again = second.post("mutations", body, table=NAMES[1])
    assert written(again) == written(answer)
    assert [len(log(filled, shard)) for shard in range(2)] == [2, 2]


def test_an_alter_is_repeated_at_a_replica_of_the_other_shard(filled: InProcessCluster) -> None:
    first, second = filled.nodes
    body = {"sql": "ADD COLUMN w bigint", "id": "mine"}
    answer = first.post("alter", body, table=NAMES[0])
    again = second.post("alter", body, table=NAMES[1])
    assert (again["schema_version"], written(again)) == (2, written(answer))
    assert version_of_commands(filled) == 1


def test_a_command_goes_below_the_parent_that_a_log_has_now(filled: InProcessCluster) -> None:
    first = filled.nodes[0]
    epoch = first.table(NAMES[1]).performer.epoch.current
    assert epoch is not None
    assert filled.run(roll_over(Replica(SHARDS[1], first.name), epoch))
    answer = first.post("mutations", {"sql": "DELETE FROM d WHERE k >= 100"}, table=NAMES[0])
    assert written(answer) == [("d~0", 1), ("d~1", layout.PARENT_ENTRIES)]
    wait_shown(filled, 1, [])


def test_a_command_reaches_a_shard_that_has_come_since_its_map_was_read(filled: InProcessCluster) -> None:
    """The map changes between the read and the commit: the commit is refused, and all is read again."""
    first, moved = filled.nodes[0], list[bool]()
    real: Any = first.coordination.perform

    def changes(effect: Any) -> Any:
        if isinstance(effect, fx.Commit) and creates("/tokens/command-")(effect) and not moved:
            node = filled.admin.perform(fx.Get(layout.shard_map(PLACE)))
            moved.append(True)
            filled.admin.perform(fx.Commit(fx.Set(layout.shard_map(PLACE), node.value, node.version)))
        return real(effect)

    first.coordination.perform = changes
    answer = first.post("mutations", {"sql": "DELETE FROM d WHERE k >= 100"}, table=NAMES[0])
    assert (moved, written(answer)) == ([True], [("d~0", 1), ("d~1", 1)])
    assert all(isinstance(log(filled, shard)[1], MutateEntry) for shard in range(2))


@pytest.mark.parametrize("is_known", [True, False])
def test_a_mutation_has_a_scope_in_each_shard_that_has_told_one(filled: InProcessCluster, is_known: bool) -> None:
    first, second = filled.nodes
    for node, name in ((first, NAMES[0]), (second, NAMES[1])):
        wait_for(lambda node=node, name=name: not node.table(name).progress.queue_length(), "it has executed all")  # type: ignore[misc]
    body = {"sql": "DELETE FROM d WHERE k > 50"}
    there = second.post("shards/scope", body, table=NAMES[1])["scope"]
    assert there == {"schema_version": 1, "partitions": ["all"], "since": 1}
    # What was found with other columns does not count.
    there["schema_version"] += 0 if is_known else 1
    first.post("mutations", {**body, "scopes": {NAMES[1]: there}}, table=NAMES[0])
    own, other = (log(filled, shard)[1] for shard in range(2))
    assert (own.partitions, other.partitions) == ((), ("all",) if is_known else UNSET)
    wait_shown(filled, 0, keys(0))
    wait_shown(filled, 1, [])


def test_scopes_that_are_too_large_for_the_commit_are_left_out(
    filled: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = filled.nodes[0]
    scope = {"schema_version": 1, "partitions": [f"p{number}" for number in range(200)], "since": 0}
    monkeypatch.setattr("replitree.protocol.propose.shards.propose_to_shards.__defaults__", (2_000,))
    first.post("mutations", {"sql": "DELETE FROM d WHERE k > 50", "scopes": {NAMES[1]: scope}}, table=NAMES[0])
    assert [log(filled, shard)[1].partitions for shard in range(2)] == [UNSET, UNSET]
    columns = ", ".join(f"ADD COLUMN w{number} bigint" for number in range(40))
    assert "bytes of coordination" in refused(first, "alter", {"sql": columns}, status=503)


def test_rows_come_into_both_shards_while_commands_do(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for number in range(4):
        assert insert(first, second, number * 10, token=f"t{number}")[1]["outcome"] == "inserted"
        first.post("mutations", {"sql": f"DELETE FROM d WHERE k % 10 = {number}"}, table=NAMES[number % 2])
    kinds = [[type(entry).__name__ for entry in log(cluster, shard)] for shard in range(2)]
    assert kinds[0] == kinds[1] == ["GetEntry", "MutateEntry"] * 4
    left = [key for key in keys(0, 40) if key % 10 > 3 or key % 10 < key // 10]
    wait_shown(cluster, 0, left)
    wait_shown(cluster, 1, [key + 100 for key in left])
