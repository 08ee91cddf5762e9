"""Commands of a sharded table on real processes: the replica that a command is given to is killed, and rows go on coming in."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import OutcomeUnknown, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands

pytestmark = pytest.mark.system

ROUNDS = 4
BEFORE_KILL_S = 0.05


def give(table: ShardedTable, number: int, deadline_s: float = 120.0) -> None:
    """Add a column, and set it in all rows: each command is given until its client has heard that it is in the logs."""
    deadline = time.monotonic() + deadline_s
    for sql, given in (
        (f"ADD COLUMN c{number} bigint DEFAULT 0", table.alter),
        (f"UPDATE d SET c{number} = c{number} + 1 WHERE k >= 0", table.mutate),
    ):
        while True:
            try:
                given(sql, command_id=f"{given.__name__}-{number}")
                break
            except (OutcomeUnknown, Unavailable):
                assert time.monotonic() < deadline


def columns_of(connection: Connection, table: ShardedTable) -> set[tuple[bytes, int]]:
    """The columns of the table and of its shards, with their versions."""
    place = layout.sharded(connection.catalog.root, "d")
    shards = [places.shard_place(connection.catalog.root, "d", each) for each in table.info.map.shards]
    nodes = connection.catalog.perform(fx.GetMany((places.columns(place), *map(layout.columns, shards)))).nodes
    return {(node.value, node.version) for node in nodes if node is not None}


def test_commands_are_in_all_shards_once_whatever_is_killed(tmp_path: Path) -> None:
    draw, stop, inserted, problems = random.Random(26), threading.Event(), list[int](), list[Exception]()
    with LocalCluster(tmp_path / "cluster", 3) as cluster:
        cluster.create_table("d", "k bigint not null, v string", order_by="k", shard_by="k", shards=2)
        with replitree.connect(cluster.folder) as connection, replitree.connect(cluster.folder) as writing:
            table = connection.table("d")
            assert isinstance(table, ShardedTable)
            table.insert({"k": list(range(100)), "v": ["a"] * 100}, token="first")

            def insert() -> None:
                try:
                    while not stop.is_set():
                        first = 1_000 + 20 * len(inserted)
                        rows = {"k": list(range(first, first + 20)), "v": ["b"] * 20}
                        writing.table("d").insert(rows, token=f"rows {first}", timeout_s=90.0)
                        inserted.append(first)
                except Exception as error:  # noqa: BLE001 - the test fails below
                    problems.append(error)

            writer = threading.Thread(target=insert)
            writer.start()
            for number in range(ROUNDS):
                giving = threading.Thread(target=give, args=(table, number))
                giving.start()
                # A part of the commands is over by then, a part has just begun, and some are in their commit.
                giving.join(draw.uniform(0.0, BEFORE_KILL_S))
                victim = f"r{number % 3 + 1}"
                cluster.kill(victim)
                cluster.start(victim)
                giving.join(150)
                assert not giving.is_alive()
            stop.set()
            writer.join(120)
            assert problems == []
            assert len(columns_of(connection, table)) == 1
            place = layout.sharded(connection.catalog.root, "d")
            counter = connection.catalog.perform(fx.Get(commands(place)))
            assert counter is not None
            assert counter.version == 2 * ROUNDS
            found = table.to_arrow(level="linearizable", timeout_s=90.0)
            assert sorted(found["k"].to_pylist()) == [*range(100), *range(1_000, 1_000 + 20 * len(inserted))]
            for row in found.to_pylist():
                counts = [row[f"c{number}"] for number in range(ROUNDS)]
                # A row is changed by each command that came after it, once.
                assert counts == sorted(counts)
                assert set(counts) <= {0, 1}
                assert row["k"] >= 100 or counts == [1] * ROUNDS
            by_insert: dict[int, tuple[int, ...]] = {}
            for row in found.to_pylist():
                if row["k"] >= 1_000:
                    met = tuple(row[f"c{number}"] for number in range(ROUNDS))
                    assert by_insert.setdefault((row["k"] - 1_000) // 20, met) == met, "an insert is one position"
