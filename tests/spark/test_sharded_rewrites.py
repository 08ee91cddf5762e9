"""Statements that change rows of a sharded table, with real replicas in this process, and without a JVM."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.sharded.union import ShardedSnapshot
from replitree.errors import BadInput, ConcurrentChange, Unavailable
from replitree.protocol.sharded.moves.carry import MoverEnd
from replitree.spark.catalog.rewriting import BegunStatement, Rewriting
from replitree.spark.catalog.shard_files import labelled
from tests.client.lost_answers import lose_answers
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for

cluster, connection = cluster_and_connection()

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of two shards with the keys 0 to 39, one part in each."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 40))
    return made


class Statement:
    """A statement, and the files of its tasks, as Spark's JVM writes them."""

    def __init__(self, table: ShardedTable, folder: Path) -> None:
        self.rewriting, self._folder = Rewriting(), folder
        self.begun: BegunStatement = self.rewriting.begin(table)
        self._written = list[tuple[str, str]]()
        self._number = 0

    def change(self, change: Change, new: pa.Table | None = None, kind: str = "MERGE", isolation: str = "") -> Any:
        """Change every part of every shard, bring new rows, and commit."""
        read, snapshot = [], self.begun.snapshot
        assert isinstance(snapshot, ShardedSnapshot)
        for number, shard in enumerate(snapshot.shards):
            (part,) = shard.parts
            read.append(labelled(number, part.part))
            changed = change(shard.to_arrow().sort_by("k"))
            if changed.num_rows:
                self._write(read[-1], changed)
        if new is not None:
            self._write("", new)
        try:
            return self.rewriting.commit(self.begun.id, kind, read, self._written, isolation)
        finally:
            self.end()

    def end(self) -> None:
        self.rewriting.end(self.begun.id)

    def _write(self, label: str, made: pa.Table) -> None:
        self._number += 1
        path = self._folder / f"rows-{id(self)}-{self._number}.parquet"
        pq.write_table(made.cast(self.begun.plan.definition.stored.arrow_schema), path)
        self._written.append((label, str(path)))


@pytest.fixture
def begin(table: ShardedTable, tmp_path: Path) -> Iterator[Callable[[], Statement]]:
    """Begins a statement on the table."""
    begun = list[Statement]()

    def make() -> Statement:
        begun.append(Statement(table, tmp_path))
        return begun[-1]

    yield make
    for each in begun:
        each.end()


def with_v(value: float, keys: range) -> Change:
    """Give rows of some keys a value."""

    def change(rows: pa.Table) -> pa.Table:
        hit = pc.is_in(rows["k"], pa.array(list(keys), pa.int64()))
        return rows.set_column(rows.schema.get_field_index("v"), "v", pc.if_else(hit, value, rows["v"]))

    return change


def keys(table: Any, where: str | None = None, **options: Any) -> list[int]:
    return sorted(table.to_arrow(["k"], where, **options)["k"].to_pylist())


def test_rows_of_all_shards_change_in_one_transaction(table: ShardedTable, begin: Callable[[], Statement]) -> None:
    before = table.snapshot().cut
    committed = begin().change(with_v(-1.0, range(10, 20)), kind="UPDATE")
    assert len(committed) == 2
    assert keys(table, "v = -1.0") == list(range(10, 20))
    assert keys(table) == list(range(40))
    first, *_ = table.history()
    assert (first.kind, len(first.shards)) == ("rewrite", 2)
    assert keys(table, "v = -1.0", as_of=before) == []
    # A part whose rows are as they were is left alone.
    assert begin().change(lambda rows: rows, kind="UPDATE") == []


def test_a_row_whose_key_has_changed_goes_to_its_shard(table: ShardedTable, begin: Callable[[], Statement]) -> None:
    def moved(rows: pa.Table) -> pa.Table:
        return rows.set_column(0, "k", pc.add(rows["k"], 1_000))

    begin().change(moved, rows(0, 5), "MERGE")
    assert keys(table) == [*range(5), *range(1_000, 1_040)]
    # Reads of one key ask only the shard that the map says.
    for k in (0, 4, *range(1_000, 1_040, 7)):
        assert keys(table, f"k = {k}") == [k]
    assert table.history()[0].rows == 45


def test_rows_are_deleted_and_inserted_by_one_statement(table: ShardedTable, begin: Callable[[], Statement]) -> None:
    begin().change(lambda rows: rows.filter(pc.field("k") >= 30), rows(100, 10), "MERGE")
    assert keys(table) == [*range(30, 40), *range(100, 110)]


def test_a_shard_may_lose_all_its_rows(table: ShardedTable, begin: Callable[[], Statement]) -> None:
    begin().change(lambda rows: rows.slice(0, 0), kind="DELETE")
    assert keys(table) == []
    table.insert(rows(0, 3))
    assert keys(table) == [0, 1, 2]


@pytest.mark.parametrize("what", ["delete", "overwrite", "statement", "columns"])
def test_a_statement_whose_rows_have_changed_changes_nothing(
    table: ShardedTable, begin: Callable[[], Statement], what: str
) -> None:
    late = begin()
    if what == "delete":
        # Of one shard only: the other one must not change either.
        table.delete("k = 7")
    elif what == "overwrite":
        table.insert(rows(0, 40), overwrite="all")
    elif what == "statement":
        begin().change(with_v(-2.0, range(40)), kind="UPDATE")
    else:
        table.add_column("w", "bigint")
    before = table.to_arrow().sort_by("k")
    with pytest.raises(ConcurrentChange, match="has changed nothing, run it again"):
        late.change(with_v(-1.0, range(40)))
    assert table.to_arrow().sort_by("k") == before
    begin().change(with_v(-3.0, range(40)))
    assert keys(table, "v = -3.0") == keys(table)


def test_an_insert_beside_a_statement_stays(table: ShardedTable, begin: Callable[[], Statement]) -> None:
    late = begin()
    table.insert(rows(100, 20))
    late.change(with_v(-1.0, range(200)), kind="UPDATE")
    assert keys(table) == [*range(40), *range(100, 120)]
    assert keys(table, "v = -1.0") == list(range(40))


def test_a_statement_and_a_move_of_buckets_wait_for_each_other(
    table: ShardedTable, connection: Connection, begin: Callable[[], Statement]
) -> None:
    late = begin()
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    before = table.to_arrow().sort_by("k")
    with pytest.raises(ConcurrentChange, match="run it again"):
        late.change(with_v(-1.0, range(40)))
    with pytest.raises(Unavailable, match="run it when they are there"):
        begin()
    assert table.to_arrow().sort_by("k") == before
    assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE
    assert keys(table) == list(range(40))


def test_a_statement_whose_answer_is_lost_takes_place_once(
    table: ShardedTable, begin: Callable[[], Statement], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = begin()
    lost = lose_answers(monkeypatch, "/joint/rewrite?")
    late.change(with_v(-1.0, range(40)), rows(100, 10))
    assert len(lost) == 1
    assert keys(table) == [*range(40), *range(100, 110)]
    assert [each.kind for each in table.history()] == ["rewrite", "get"]


def test_replicas_put_what_a_statement_has_made_into_the_store(connection: Connection, tmp_path: Path) -> None:
    made = connection.create_table(
        "d", SCHEMA, order_by="k", shard_by="k", buckets=16, storage=f"file://{tmp_path}/objects"
    )
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 40))
    Statement(made, tmp_path).change(with_v(-1.0, range(10, 20)), rows(100, 10))
    assert keys(made) == [*range(40), *range(100, 110)]
    assert keys(made, "v = -1.0") == list(range(10, 20))
    wait_for(lambda: connection.fsck("d", grace_s=0.0).clean, "all objects are owned", 60.0)


def test_a_statement_on_a_sharded_table_relies_on_no_other_rows(
    table: ShardedTable, begin: Callable[[], Statement]
) -> None:
    with pytest.raises(BadInput, match="leave the catalog's setting isolation out"):
        begin().change(with_v(-1.0, range(40)), isolation="serializable")
    assert keys(table, "v = -1.0") == []


def test_the_feed_has_the_images_of_a_statement_under_one_version(tmp_path: Path) -> None:
    made = InProcessCluster(tmp_path, old_parts_lifetime_s=0.0)
    made.shared.now_ms = int(1_000 * time.time())
    try:
        with made.connect() as connection:
            table = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16, feed="24h")
            assert isinstance(table, ShardedTable)
            table.insert(rows(0, 40))
            start = table.snapshot().cut
            assert start is not None
            folder = tmp_path / "tasks"
            folder.mkdir()
            Statement(table, folder).change(with_v(-1.0, range(10, 20)), rows(100, 2))
            with table.changes(start) as changes:
                found = changes.to_arrow().to_pylist()
    finally:
        made.close()
    assert len({row["_commit_version"] for row in found}) == 1
    # Rows that a part has as before are in no change.
    kinds = Counter((row["_change_type"], row["k"]) for row in found)
    changed = [(kind, k) for kind in ("delete", "insert") for k in range(10, 20)]
    assert kinds == Counter([*changed, ("insert", 100), ("insert", 101)])
