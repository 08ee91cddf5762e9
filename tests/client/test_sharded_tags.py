"""Tags of a sharded table, with real replicas in this process: a name of a cut, whose rows stay in every shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, InvalidName, OutcomeUnknown, ReplicaUnavailable, SnapshotExpired, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.sharded.moves.carry import MoverEnd
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for

PLACE = TablePlace(layout.sharded(ROOT, "d"))

cluster, connection = cluster_and_connection(old_parts_lifetime_s=0.0, lost_part_after_s=0.0)


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of two shards with the keys 0 to 39."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 40))
    return made


def keys(table: Any, **options: Any) -> list[int]:
    found: list[int] = table.to_arrow(["k"], **options)["k"].to_pylist()
    return sorted(found)


def kept_in(cluster: InProcessCluster, shard: str) -> tuple[str, ...]:
    """The names of the tags of a shard."""
    names: tuple[str, ...] | None = cluster.admin.perform(
        fx.Children(layout.tags(TablePlace(f"{ROOT}/tables/{shard}")))
    )
    return names or ()


def forget_logs(cluster: InProcessCluster, table: ShardedTable) -> None:
    """Let coordination and all replicas forget which transaction each entry had."""
    for name in table.info.names:
        cluster.wait_alike(name)
        cluster.clean(cluster.nodes[0].table(name).progress.index, name)
    # A replica that goes on remembers the transactions of the entries.
    for node in cluster.nodes:
        node.restart()
        for name in table.info.names:
            wait_for(lambda node=node, name=name: cluster.is_active(node, name), f"{node.name} hosts {name}")  # type: ignore[misc]


def test_a_tag_keeps_what_a_cut_has(table: ShardedTable, cluster: InProcessCluster) -> None:
    tag = table.tag("before-load")
    assert (tag.name, tag.parts, tag.rows, tag.version) == ("before-load", 2, 40, tag.cut)
    assert [name for name, _ in tag.shards] == ["d~0", "d~1"]
    assert table.tags() == (tag,)
    assert [kept_in(cluster, name) for name in table.info.names] == [("before-load",)] * 2
    table.truncate()
    table.insert(rows(100, 20))
    for at in ("before-load", tag.cut):
        assert keys(table, as_of=at) == list(range(40))
    assert keys(table) == list(range(100, 120))
    assert keys(table, as_of="before-load", where="k = 7") == [7]
    with table.snapshot(as_of="before-load") as snapshot:
        assert (snapshot.cut, snapshot.rows) == (tag.cut, 40)


def test_a_tag_is_read_when_the_logs_have_forgotten_its_cut(table: ShardedTable, cluster: InProcessCluster) -> None:
    tag = table.tag("old")
    table.update({"v": "0.0"}, "k >= 0")
    before = table.snapshot().cut
    table.truncate()
    forget_logs(cluster, table)
    assert keys(table, as_of="old") == list(range(40))
    assert keys(table, as_of=tag.cut, where="k < 3") == [0, 1, 2]
    with pytest.raises(SnapshotExpired):
        keys(table, as_of=before)


def test_a_tag_has_each_row_once_when_buckets_have_moved_since(
    table: ShardedTable, connection: Connection, cluster: InProcessCluster
) -> None:
    table.tag("old")
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE
    wait_for(lambda: keys(table) == list(range(40)), "the removals are executed")
    table.delete("k < 30")
    assert keys(table, as_of="old") == list(range(40))
    forget_logs(cluster, table)
    assert keys(table, as_of="old") == list(range(40))
    assert [keys(table, as_of="old", where=f"k = {key}") for key in range(8)] == [[key] for key in range(8)]


def test_a_tag_of_a_cut_of_a_time_or_of_another_tag(table: ShardedTable) -> None:
    cut = table.snapshot(level="linearizable").cut
    assert cut is not None
    table.insert(rows(40, 10))
    assert table.tag("a", cut).cut == cut
    assert (table.tag("b", "a").cut, table.tag("b2", "a").rows) == (cut, 40)
    assert keys(table, as_of="b") == list(range(40))
    assert [each.name for each in table.tags()] == ["a", "b", "b2"]


def test_a_name_is_given_once(table: ShardedTable) -> None:
    first = table.tag("a", command_id="1")
    assert table.tag("a", command_id="1") == first
    with pytest.raises(BadInput, match="there is a tag 'a' already"):
        table.tag("a")
    with pytest.raises(InvalidName):
        table.tag("7")
    for call in (lambda: table.delete_tag("b"), lambda: keys(table, as_of="b")):
        with pytest.raises(BadInput, match="has no tag 'b'; it has a"):
            call()


def test_a_tag_is_deleted_in_all_shards_at_once(table: ShardedTable, cluster: InProcessCluster) -> None:
    tag = table.tag("a")
    table.truncate()
    table.delete_tag("a")
    assert table.tags() == ()
    assert [kept_in(cluster, name) for name in table.info.names] == [(), ()]
    with pytest.raises(BadInput, match="has no tag 'a'; it has none"):
        table.delete_tag("a")
    assert table.tag("a").cut != tag.cut


def cut_off(monkeypatch: pytest.MonkeyPatch, is_wanted: Callable[[fx.Commit], bool], *, applied: bool) -> None:
    """Let one commit of a client get no answer, whether it is applied or not."""
    perform, left = MemoryCoordination.perform, [True]

    def perform_and_lose(self: MemoryCoordination, effect: Any) -> Any:
        if not (left and isinstance(effect, fx.Commit) and is_wanted(effect)):
            return perform(self, effect)
        left.clear()
        if applied:
            perform(self, effect)
        return fx.Unknown()

    monkeypatch.setattr(MemoryCoordination, "perform", perform_and_lose)


def makes_tag(commit: fx.Commit) -> bool:
    return any(
        isinstance(each, fx.Create) and each.path.startswith(f"{PLACE.path}/tags/") for each in commit.operations
    )


@pytest.mark.parametrize("applied", [True, False])
def test_a_tag_whose_answer_was_lost_is_made_again_with_its_id(
    table: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    cut_off(monkeypatch, makes_tag, applied=applied)
    with pytest.raises(OutcomeUnknown) as caught:
        table.tag("a", command_id="mine")
    assert caught.value.token == "mine"
    table.insert(rows(40, 10))
    # What was left in the shards belongs to no tag: it does not stand in the way.
    assert table.tag("a", command_id="mine").rows == (40 if applied else 50)
    assert [kept_in(cluster, name) for name in table.info.names] == [("a",)] * 2


def test_what_was_left_of_a_tag_is_deleted(
    table: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(monkeypatch, makes_tag, applied=False)
    with pytest.raises(OutcomeUnknown):
        table.tag("a")
    assert (table.tags(), kept_in(cluster, "d~0")) == ((), ("a",))
    with pytest.raises(BadInput, match="has no tag 'a'"):
        table.delete_tag("a")
    assert [kept_in(cluster, name) for name in table.info.names] == [(), ()]


def test_a_tag_that_another_client_deletes_meanwhile_is_not_made(
    table: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = cluster.connect()
    read, left = MemoryCoordination.perform, [True]

    def perform(self: MemoryCoordination, effect: Any) -> Any:
        if left and isinstance(effect, fx.Commit) and makes_tag(effect):
            left.clear()
            with pytest.raises(BadInput):
                other.table("d").delete_tag("a")
        return read(self, effect)

    monkeypatch.setattr(MemoryCoordination, "perform", perform)
    with pytest.raises(ReplicaUnavailable, match="another client has deleted it in shard d~0"):
        table.tag("a")
    assert table.tags() == ()
    assert table.tag("a").rows == 40
    other.close()


def test_tags_of_a_table_that_is_gone_are_not_found(connection: Connection, table: ShardedTable) -> None:
    table.tag("a")
    connection.drop_table("d")
    for call in (table.tags, lambda: table.tag("b"), lambda: table.delete_tag("a")):
        with pytest.raises(TableNotFound):
            call()
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert made.tags() == ()


def test_old_parts_of_a_tag_stay_and_others_go(table: ShardedTable, cluster: InProcessCluster) -> None:
    table.tag("a")
    table.insert(rows(40, 40))
    table.truncate()

    def old() -> list[int]:
        return [len(node.table(name).old_parts.names()) for node in cluster.nodes for name in table.info.names]

    wait_for(lambda: old() == [1, 1, 1, 1], "only the parts of the tag are left")
    assert keys(table, as_of="a") == list(range(40))
