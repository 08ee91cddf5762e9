"""A sharded table in one process: its shards as tables of an in-process cluster, and a client that inserts into both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import decode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import create_table
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.shard_map import Shard, encode_map, first_map
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.shard_definition import shard_definition
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, Node, as_stream, rows, wait_for

PLACE = layout.sharded(ROOT, "d")
NAMES = ("d~0", "d~1")
NUMBERS = itertools.count()
SHARDS = tuple(TablePlace(f"{ROOT}/tables/{name}", incarnation=f"s-{name[-1]}") for name in NAMES)

DEFINITION = define_table("d", SCHEMA, order_by=["k"])


@contextmanager
def sharded_cluster(folder: Path, replicas: int = 2, **settings: Any) -> Iterator[InProcessCluster]:
    """Replicas that each host both shards of the table `d`."""
    cluster = InProcessCluster(folder, replicas, **settings)
    try:
        make_place(cluster.admin)
        make_shards(cluster.run)
        for node, name in itertools.product(cluster.nodes, NAMES):
            wait_for(lambda node=node, name=name: cluster.is_active(node, name), f"{node.name} has {name}")  # type: ignore[misc]
        yield cluster
    finally:
        cluster.close()


def make_place(session: Any) -> None:
    """Create the nodes of the sharded table beside its shards."""
    sharded_map = encode_map(first_map(["k"], {Shard(0): 1, Shard(1): 1}, 2))
    paths = (PLACE.rpartition("/")[0], PLACE, layout.joint_tokens(PLACE), layout.joint_inserts(PLACE), commands(PLACE))
    nodes = (
        *map(fx.Create, paths),
        fx.Create(layout.shard_map(PLACE), sharded_map),
        fx.Create(places.metadata(PLACE), DEFINITION.encode_metadata()),
        fx.Create(places.columns(PLACE), DEFINITION.encode_columns()),
    )
    assert isinstance(session.perform(fx.Commit(*nodes)), fx.Applied)


def make_shards(run: Callable[[fx.Procedure[Any]], object]) -> None:
    """Create the shards as tables; `run` runs a procedure."""
    for shard in SHARDS:
        own = shard_definition(DEFINITION, shard_number(shard.name))
        run(create_table(shard, own.encode_metadata(), own.encode_columns()))


def prepare(node: Node, shard: int, first: int, map_version: int = 0, **query: object) -> dict[str, Any]:
    """Prepare ten rows of a shard."""
    status, answer = try_to_prepare(node, NAMES[shard], rows(first), map_version=map_version, **query)
    assert status == 200, answer
    share: dict[str, Any] = answer
    return share


def try_to_prepare(node: Node, table: str, data: pa.Table, **query: object) -> tuple[int, Any]:
    """Ask a replica to prepare rows; return the status and the answer."""
    return node.request("POST", f"/v1/tables/{table}/prepared?{urlencode(query)}", as_stream(data))


def commit(node: Node, prepared: Sequence[dict[str, Any]], token: str = "t", **query: Any) -> tuple[int, Any]:
    """Ask a replica of the first share's shard to commit.

    The server remembers answers by the body.  So that a restarted one is asked like a new process, no two bodies are equal.
    """
    body = json.dumps({"prepared": list(prepared), "number": next(NUMBERS)}).encode()
    path = f"/v1/tables/{prepared[0]['shard']}/joint?{urlencode({'token': token, **query})}"
    return node.request("POST", path, body)


def insert(
    coordinator: Node, other: Node, first: int, token: str = "t", map_version: int = 0, **query: Any
) -> tuple[int, Any]:
    """Insert ten rows from `first` on into the one shard, and ten from `first` + 100 on into the other."""
    own = prepare(coordinator, 0, first, map_version, coordinates="true")
    its = prepare(other, 1, first + 100, map_version)
    return commit(coordinator, (own, its), token, **query)


def keys(first: int, count: int = 10) -> list[int]:
    """The keys of ten rows."""
    return list(range(first, first + count))


def log(cluster: InProcessCluster, shard: int) -> list[Any]:
    """The entries of a shard's log."""
    entries: list[Any] = []
    while (node := cluster.admin.perform(fx.Get(layout.log_entry(SHARDS[shard], len(entries))))) is not None:
        entries.append(decode_entry(node.value, ""))
    return entries


def nodes_of(cluster: InProcessCluster, name: str, shard: int) -> tuple[str, ...]:
    """What a replica has prepared of a shard, as coordination knows it."""
    found: tuple[str, ...] | None = cluster.admin.perform(
        fx.Children(layout.all_prepared(Replica(SHARDS[shard], name)))
    )
    return found or ()


def wait_shown(cluster: InProcessCluster, shard: int, expected: list[int]) -> None:
    """Wait until every replica shows exactly these keys of a shard."""
    cluster.wait_equal(expected, NAMES[shard])


def wait_forgotten(node: Node, shard: int) -> None:
    """Wait until a replica holds nothing that was prepared, and nothing is staged."""
    table = node.table(NAMES[shard])
    wait_for(lambda: len(table.prepared_rows) == 0 and not table.store.stagings(), "nothing is left")


class LosesAnswers:
    """Loses the answers to the commits that a test chooses; they were applied, or never are."""

    def __init__(self, node: Node, chosen: Any, *, is_applied: bool) -> None:
        self._real, self._chosen, self._is_applied, self.lost = node.coordination.perform, chosen, is_applied, 0
        node.coordination.perform = self

    def __call__(self, effect: Any) -> Any:
        if isinstance(effect, fx.Commit) and not self.lost and self._chosen(effect):
            self.lost += 1
            if self._is_applied:
                self._real(effect)
            return fx.Unknown()
        return self._real(effect)


def creates(part: str) -> Any:
    """Choose commits that create a node with this in its path."""
    return lambda commit: any(isinstance(each, fx.Create) and part in each.path for each in commit.operations)
