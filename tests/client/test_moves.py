"""Moves of buckets from a client's point of view, with real replicas in this process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from replitree.client.admin.doctor import examine
from replitree.client.connection import Connection
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier, MoveTerms
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.sharded.moves.batch import Laid
from replitree.protocol.sharded.moves.carry import AwaitHolders, MoverEnd
from replitree.protocol.sharded.moves.progress import Batch
from replitree.protocol.sharded.shard_map import Shard
from replitree.protocol.state.counted import QuorumValue
from replitree.storage.rewrite.slices import cut
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import SCHEMA, rows
from tests.waiting import wait_for

cluster, connection = cluster_and_connection()


def create(connection: Connection, **options: Any) -> ShardedTable:
    made = connection.create_table("d", SCHEMA, order_by="k", **{"shard_by": "k", "buckets": 16, **options})
    assert isinstance(made, ShardedTable)
    return made


def shown(table: ShardedTable) -> Counter[tuple[Any, ...]]:
    found = table.scan().to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))


def counted(connection: Connection) -> list[int]:
    """How many rows each shard has."""
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    with table.snapshot() as snapshot:
        return [each.rows for each in snapshot.shards]


def mover(connection: Connection) -> MoveCarrier:
    return MoveCarrier(connection.catalog, connection.table("d").http, "d")


def test_rows_of_buckets_move_and_each_is_shown_once(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 400))
    before = shown(table)
    wanted = resharding.begin_buckets(connection.catalog, "d", range(4), 1)
    assert [(move.source, move.target, move.buckets) for move in wanted.moves] == [(0, 1, (0, 1, 2, 3))]
    table.insert(rows(400, 100))
    assert resharding.status_of(connection.catalog, "d").moves == wanted.moves
    (finding,) = [each for each in examine(connection.look_over()) if each.code == "buckets-move"]
    assert "4 buckets of the sharded table d move" in finding.text
    assert mover(connection).run() is MoverEnd.DONE
    status = resharding.status_of(connection.catalog, "d")
    assert (status.moves, status.owned) == ((), {0: 4, 1: 12})
    wait_for(lambda: sum(shown(table).values()) == 500, "the removals are executed")
    assert shown(table) >= before
    assert counted(connection)[0] < 200
    assert table.to_arrow(where="k = 7").num_rows == 1


def test_a_table_gets_a_shard_and_the_shard_is_emptied_again(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 300))
    before = shown(table)
    shard, wanted = resharding.add_shard(connection.catalog, "d", weight=2)
    assert (shard, Counter(wanted.owners)) == (2, {0: 4, 1: 4, 2: 8})
    table.insert(rows(300, 60))
    assert mover(connection).run() is MoverEnd.DONE
    wait_for(lambda: sum(shown(table).values()) == 360, "the removals are executed")
    assert all(counted(connection))
    plan = resharding.plan_weights(connection.catalog, "d", {2: 0})
    assert {move.source for move in plan.moves} == {2}
    assert resharding.status_of(connection.catalog, "d").moves == ()
    assert resharding.begin_weights(connection.catalog, "d", {2: 0}) == plan
    assert mover(connection).run() is MoverEnd.DONE
    wait_for(lambda: counted(connection)[2] == 0, "the shard is empty")
    assert shown(table) >= before
    assert sum(shown(table).values()) == 360


def test_a_delete_by_key_reaches_rows_that_have_not_moved_yet(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 100))
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    for k in range(0, 100, 7):
        assert table.delete(f"k = {k}").finished
    assert mover(connection).run() is MoverEnd.DONE
    wait_for(lambda: sum(shown(table).values()) == 85, "the removals are executed")
    assert not {k for k, *_ in shown(table)} & set(range(0, 100, 7))


def test_moves_that_turn_back_bring_what_came_meanwhile(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 200))
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    table.insert(rows(200, 200))
    resharding.turn_back(connection.catalog, "d")
    assert mover(connection).run() is MoverEnd.DONE
    assert resharding.status_of(connection.catalog, "d").owned == {0: 8, 1: 8}
    wait_for(lambda: sum(shown(table).values()) == 400, "the removals are executed")
    with pytest.raises(BadInput, match="nothing moves"):
        resharding.turn_back(connection.catalog, "d")


def test_a_mover_that_stops_after_any_step_is_followed_by_another_one(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 100))
    steps, ended = 0, False
    back = 0
    while not ended:
        # The buckets go to and fro; each time the first mover gets one step further.
        steps += 1
        resharding.begin_buckets(connection.catalog, "d", range(8), 1 - back)
        first = mover(connection).steps()
        ended = sum(1 for _ in zip(range(steps), first, strict=False)) < steps
        first.close()
        assert mover(connection).run() is MoverEnd.DONE
        back = 1 - back
    assert steps > 10
    wait_for(lambda: sum(shown(table).values()) == 100, "the removals are executed")


def test_two_movers_that_take_turns_step_by_step_show_each_row_once(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 200))
    before, chance = shown(table), random.Random(1)
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    movers = [mover(connection).steps() for _ in range(2)]
    while movers:
        turn = chance.choice(movers)
        if next(turn, "ended") == "ended":
            movers.remove(turn)
        assert shown(table) == before
    assert resharding.status_of(connection.catalog, "d").owned == {0: 0, 1: 16}


def test_a_batch_is_waited_for_while_a_replica_that_has_it_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(Shard(0), Shard(1), ("p",), "r1", fx.StagingId("s"), 0, 2, 10)
    laid, looks, turns = Laid(batch, fx.LogIndex(3), QuorumValue(2, ("r1",)), fx.Version(0)), [0], [0]

    def procedure(_place: str, _commands: str) -> fx.Procedure[MoverEnd]:
        while (yield AwaitHolders(laid)):
            turns[0] += 1
        return MoverEnd.DONE

    def replicas(name: str) -> list[Any]:
        assert name == "d~1"
        looks[0] += 1
        # Another replica is active all the time, but it does not have the batch.
        return [SimpleNamespace(name="r1", active=looks[0] < 50), SimpleNamespace(name="r2", active=True)]

    for name, value in {"carry_moves": procedure, "LOOK_S": 0.001, "HOLDERS_S": 0.0}.items():
        monkeypatch.setattr(f"replitree.client.sharded.moving.moves.{name}", value)
    told, catalog = list[str](), SimpleNamespace(root="/c", replicas=replicas)
    carrier = MoveCarrier(cast(Any, catalog), cast(Any, None), "d", MoveTerms(timeout_s=0.02, tell=told.append))
    assert carrier.run() is MoverEnd.DONE
    assert turns[0] >= 50
    assert told[-1] == "no replica of shard 1 that has the rows is active: the batch is taken back"


def damaged_once(monkeypatch: pytest.MonkeyPatch, how: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    """Damage the first batch of rows on its way from the source to the target, behind the reader's checks."""
    is_next = [True]

    def damaged(reader: pa.RecordBatchReader, definition: Any) -> Any:
        batches = [how(batch) if is_next and is_next.pop() else batch for batch in reader]
        return cut(pa.Table.from_batches(batches, reader.schema), definition)

    monkeypatch.setattr("replitree.client.sharded.moving.moves.cut", damaged)


@pytest.mark.parametrize(
    "how",
    [
        lambda batch: batch.slice(1),
        lambda batch: batch.take(pa.array([*range(1, len(batch)), 1])),
        lambda batch: batch.set_column(1, batch.schema.field(1), pa.array([0.5] * len(batch))),
    ],
    ids=["a row is lost", "a row is doubled in place of another one", "values are changed"],
)
def test_rows_that_are_damaged_on_their_way_are_never_shown(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, how: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> None:
    table = create(connection)
    table.insert(rows(0, 200))
    before = shown(table)
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    damaged_once(monkeypatch, how)
    monkeypatch.setattr("replitree.client.sharded.moving.moves.RETRY_S", 0.0)
    told = list[str]()
    carrier = MoveCarrier(connection.catalog, table.http, "d", MoveTerms(tell=told.append))
    steps, refused = carrier.steps(), None
    while refused is None:
        next(steps)
        refused = resharding.status_of(connection.catalog, "d").refused
    assert refused.times == 1
    assert "r1 has prepared" in refused.reason or "r2 has prepared" in refused.reason
    (finding,) = [each for each in examine(connection.look_over()) if each.code == "moved-rows-differ"]
    assert refused.reason in finding.text
    assert shown(table) == before
    for _ in steps:
        pass
    assert [each for each in told if "is tried again" in each and "with the content" in each]
    assert resharding.status_of(connection.catalog, "d").moves == ()
    assert shown(table) == before


def test_what_can_not_move_is_refused(connection: Connection) -> None:
    create(connection)
    catalog = connection.catalog
    with pytest.raises(BadInput, match="the shards 0, 1, not 5"):
        resharding.begin_weights(catalog, "d", {5: 1})
    resharding.begin_buckets(catalog, "d", [0], 1)
    for call in (lambda: resharding.begin_buckets(catalog, "d", [1], 1), lambda: resharding.add_shard(catalog, "d")):
        with pytest.raises(BadInput, match="move already"):
            call()
    assert mover(connection).run() is MoverEnd.DONE
    connection.drop_table("d")
    create(connection, policy="replacing")
    with pytest.raises(BadInput, match="only those with a version"):
        resharding.begin_buckets(catalog, "d", [0], 1)


def test_commands_between_any_two_steps_of_a_move_change_each_row_once(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 60))
    table.update({"v": "0.0"}, "true")
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    updates = 0
    for number, _ in enumerate(mover(connection).steps()):
        # Not after each step: a batch that a command overtakes is read again, and the move would never end.
        if number % 4 == 3 and updates < 8:
            table.update({"v": "v + 1"}, "true")
            updates += 1
    assert updates > 4
    assert resharding.status_of(connection.catalog, "d").moves == ()
    found = table.to_arrow(["k", "v"], level="linearizable")
    assert sorted(found["k"].to_pylist()) == list(range(60))
    assert set(found["v"].to_pylist()) == {float(updates)}


def test_a_shard_that_is_added_has_the_columns_that_the_others_have_by_then(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 60))
    table.add_column("w", "int", default="7")
    shard, _ = resharding.add_shard(connection.catalog, "d")
    assert mover(connection).run() is MoverEnd.DONE
    table.update({"w": "w + 1"}, "k >= 30")
    table.drop_column("s")
    found = table.to_arrow(level="linearizable")
    assert found.schema.names == ["k", "v", "w"]
    assert sorted(found["w"].to_pylist()) == [7] * 30 + [8] * 30
    with table.snapshot(level="linearizable") as snapshot:
        assert snapshot.shards[shard].rows > 0
