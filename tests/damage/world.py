"""A cluster whose second replica's disk is damaged: every partition is one part, so what is wrong tells which damage did it.

The first replica's disk stays as it is: it is where repairs come from.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import CorruptPart, ReplitreeError
from replitree.replica.kit.logs import Log
from replitree.storage.files.sums import sums_path
from replitree.storage.parts.manifest import MANIFEST_FILE
from replitree.storage.schema.definition import TableSettings
from tests.damage.bucket import Bucket, Object, at_gateway, by_tasks
from tests.damage.tally import CRASH, REFUSED, RIGHT, WRONG
from tests.replica.inprocess import ROOT, TOKEN, InProcessCluster, Node, wait_for

SCHEMA = "p int not null, k bigint not null, v double, s string"
REPAIR_S = 60.0
"""How long the damaged replica may take until all is whole, in seconds, on a busy machine as well.

Only a life that ends because no good copy is left waits for so long: what the replica lacks then is reported, and not repaired.
"""

CHECKS_MAX = 4
"""How often the damaged replica checks its parts until a check finds them whole.

Two suffice as a rule.  What it takes over from the other replica in place of a broken part may name an object that was damaged
earlier, and that the other replica has not read since: the next check finds that.
"""

ASKED_MAX = 8
"""How often a handle is opened, each with a random first replica, until the damaged replica answers it."""

ASIDE, ASIDE_COUNT = 1000, 8
"""Number of the first partition that is detached, and how many are."""

READ_S = 10.0
"""How long one read may take, in seconds."""

OBJECTS = {"object": "data-0.parquet", "sums object": ".data-0.parquet.crc", "share man.": MANIFEST_FILE}
"""The names of the objects of a share, by kind."""

Read = Callable[[Table, str], pa.Table]


def _batches(table: Table, where: str) -> pa.Table:
    return pa.Table.from_batches(table.batches(where=where, timeout_s=READ_S), table.schema)


READS: dict[str, Read] = {
    "to_arrow": lambda table, where: table.to_arrow(where=where, timeout_s=READ_S),
    "batches": _batches,
    "final": lambda table, where: table.to_arrow(where=where, final=True, timeout_s=READ_S),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the readers of one partition showed: the worst of it, and what they said."""

    shown: str
    said: str = ""


class Defects:
    """Collects what must not happen while it is entered: defects that replicas log, and threads that end with an error."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        hook, defect = threading.excepthook, Log.defect

        def noted(log: Log, event: str, **fields: object) -> None:
            self.found.append(f"{event} {fields}: {sys.exc_info()[1]!r}")
            defect(log, event, **fields)

        threading.excepthook = lambda args: self.found.append(f"thread {args.thread} ended: {args.exc_value!r}")
        setattr(Log, "defect", noted)  # noqa: B010 - it takes what it is called on by name
        try:
            yield
        finally:
            threading.excepthook = hook
            setattr(Log, "defect", defect)  # noqa: B010


class World:
    """Two replicas, a table of so many partitions, and what is in it."""

    def __init__(
        self,
        folder: Path,
        partitions: int,
        chance: random.Random,
        *,
        is_stored: bool = False,
        in_bucket: bool = False,
        rows_max: int = 400,
        zookeeper: str = "",
    ) -> None:
        self.partitions = partitions
        self._rows_max = rows_max
        self._chance = chance
        opens = (lambda: ZooKeeperCoordination(zookeeper)) if zookeeper else None
        self.cluster = InProcessCluster(folder, 2, opens, check_interval_s=0.0, old_parts_lifetime_s=0.0)
        keys: dict[str, Any] = {"partition_by": ["p"], "order_by": ["k"]}
        self._objects_folder = folder / "objects" if is_stored else None
        self.bucket = Bucket() if in_bucket else None
        if is_stored:
            keys["storage"] = f"file://{folder}/objects"
        if self.bucket is not None:
            keys["storage"] = self.bucket.server.url()
        self.cluster.create_table("t", SCHEMA, TableSettings(), **keys)
        self.connection = Connection(
            Access(f"{zookeeper or 'zk://nowhere:1'}{ROOT}", TOKEN),
            opens or (lambda: MemoryCoordination(self.cluster.shared)),
        )
        for node in self.cluster.nodes:
            node.post("merges/pause")
        self._insert()
        self.older = {kind: self._contents(self.files(kind)) for kind in ("data", "manifest")}
        self.first.post("drop", {"all": True})
        self.truth = self._insert()

    @property
    def first(self) -> Node:
        """The replica whose disk stays whole."""
        return self.cluster.nodes[0]

    @property
    def victim(self) -> Node:
        """The replica whose disk is damaged."""
        return self.cluster.nodes[1]

    def put_aside(self, frozen: str) -> dict[int, pa.Table]:
        """Freeze what the table is, and detach a few partitions of their own; return the rows of both, by partition."""
        first = self._chance.randrange(1 << 40)
        aside = {number: self._rows(number, first) for number in range(ASIDE, ASIDE + ASIDE_COUNT)}
        self.connection.table("t").insert(pa.concat_tables(list(aside.values())))
        wait_for(lambda: self._has_all({**self.truth, **aside}), "both replicas have all parts")
        self.victim.post("freeze", {"name": frozen})
        for number in aside:
            self.first.post("drop", {"partition": str(number), "detach": True})
        wait_for(lambda: self._has_all(self.truth), "the partitions are detached")
        return {**self.truth, **aside}

    def _insert(self) -> dict[int, pa.Table]:
        """Insert rows into all partitions, at once; return them."""
        first = self._chance.randrange(1 << 40)
        truth = {number: self._rows(number, first) for number in range(self.partitions)}
        self.connection.table("t").insert(pa.concat_tables(list(truth.values())))
        wait_for(lambda: self._has_all(truth), "both replicas have all parts")
        return truth

    def _rows(self, number: int, first: int) -> pa.Table:
        count = self._chance.randrange(20, self._rows_max)
        keys = range(first + 1000 * number, first + 1000 * number + count)
        chance = random.Random(first + number)
        return pa.table(
            {
                "p": pa.array([number] * count, pa.int32()),
                "k": pa.array(keys, pa.int64()),
                "v": pa.array([chance.random() for _ in keys], pa.float64()),
                "s": pa.array([f"{chance.randrange(1 << 30):x}" for _ in keys], pa.string()),
            }
        )

    def _has_all(self, truth: dict[int, pa.Table]) -> bool:
        names = [node.table().progress.visible()[1] for node in self.cluster.nodes]
        return all(len(each) == len(truth) for each in names) and set(names[0]) == set(names[1])

    # --- files ----------------------------------------------------------------------------------------------------------------

    def files(self, kind: str) -> Mapping[int, Path | Object]:
        """Return the victim's files of one kind, or the objects of the shares that its parts have, by partition."""
        store = self.victim.table().store
        if kind in OBJECTS:
            return self._objects(OBJECTS[kind])
        name = {"data": "data-0.parquet", "manifest": MANIFEST_FILE}.get(kind)
        found: dict[int, Path] = {}
        for part in self.victim.table().progress.visible()[1]:
            if name is not None:
                found[int(part.split("_")[0])] = store.file_path(part, name)
            else:
                for path in store.part_path(part).iterdir():
                    if path.name == sums_path(Path("data-0.parquet")).name:
                        found[int(part.split("_")[0])] = path
        return found

    def _objects(self, name: str) -> Mapping[int, Path | Object]:
        table = self.victim.table()
        found: dict[int, Path | Object] = {}
        for part in table.progress.visible()[1]:
            with contextlib.suppress(CorruptPart):
                share = table.store.manifest(part).share_id
                number = int(part.split("_")[0])
                if share is not None and self.bucket is not None:
                    there = self.bucket.object(table.definition.table_id, share, name)
                    if there is not None:
                        found[number] = there
                elif share is not None and self._objects_folder is not None:
                    key = f"tables/{table.definition.table_id}/{share}/{name}"
                    found[number] = self._objects_folder / key
        return found

    @staticmethod
    def _contents(files: Mapping[int, Path | Object]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for number, path in files.items():
            with contextlib.suppress(FileNotFoundError):  # the replica is just replacing the part, or moving it
                found[number] = path.read_bytes()
        return found

    def others(self, kind: str, way: str, number: int) -> Sequence[bytes]:
        """Return what the file of one kind of a partition may be replaced by, in a way of damage."""
        if way == "older":
            older = self.older.get(kind, {}).get(number)
            return () if older is None else (older,)
        return [data for other, data in self._contents(self.files(kind)).items() if other != number]

    # --- reads ----------------------------------------------------------------------------------------------------------------

    def table_at_victim(self) -> Table:
        """Return the table, whose reads ask the damaged replica first as long as that one gives snapshots at all."""
        table = self.connection.table("t")
        for _ in range(ASKED_MAX):
            if table.snapshot(timeout_s=READ_S).replica == self.victim.name:
                break
            table = self.connection.table("t")
        return table

    @property
    def reads(self) -> dict[str, Read]:
        """The ways to read; of a bucket those that Spark's JVM and the tasks of its data source read in, too."""
        if self.bucket is None:
            return READS
        return READS | {
            "gateway": lambda table, where: at_gateway(table, where, READ_S),
            "format": lambda table, where: by_tasks(table, self.connection, where),
        }

    def read(self, number: int) -> Seen:
        """Read one partition in several ways at the damaged replica; return the worst that was shown."""
        rows = self.truth[number]
        low = rows["k"][rows.num_rows // 2].as_py()
        seen: list[Seen] = []
        for name, read in self.reads.items():
            for where, expected in (
                (f"p = {number}", rows),
                (f"k >= {low} and p = {number}", rows.slice(rows.num_rows // 2)),
            ):
                seen.append(self._judge(f"{name} where {where}", read, where, expected))
        order = (CRASH, WRONG, REFUSED, RIGHT)
        return min(seen, key=lambda each: order.index(each.shown))

    def _judge(self, what: str, read: Read, where: str, expected: pa.Table) -> Seen:
        try:
            found = read(self.table_at_victim(), where)
        except (ReplitreeError, OSError) as error:
            return Seen(REFUSED, f"{what}: {error!r}")
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            return Seen(CRASH, f"{what}: {error!r}")
        if equal(found, expected):
            return Seen(RIGHT)
        return Seen(WRONG, f"{what}: {found.num_rows} rows, expected {expected.num_rows}")

    def read_all(self, node: Node | None = None) -> str | None:
        """Read the whole table, of a replica or through the client; return what is wrong."""
        expected = pa.concat_tables([self.truth[number] for number in sorted(self.truth)])
        if node is not None:
            return self._keys_of(node, sorted(expected["k"].to_pylist()))
        try:
            found = self.table_at_victim().to_arrow(timeout_s=READ_S)
        except (ReplitreeError, OSError):
            return None  # an error is no wrong row
        return (
            None
            if equal(found, expected)
            else f"a read of everything gave {found.num_rows} rows of {expected.num_rows}"
        )

    @staticmethod
    def _keys_of(node: Node, keys: list[int]) -> str | None:
        try:
            found = node.keys()
        except ReplitreeError as error:
            return None if node.table().lacking else f"{node.name} lacks nothing and can't be read: {error}"
        is_right = found == keys or (node.table().lacking and set(found) <= set(keys))
        return None if is_right else f"{node.name} has {len(found)} rows, expected {len(keys)}"

    # --- repair ---------------------------------------------------------------------------------------------------------------

    def repair(self, node: Node | None = None) -> dict[str, str]:
        """Let a replica, the damaged one, check its parts and make broken ones whole; return what it lacks then, and why."""
        node = node or self.victim
        replica, broken = node.table(), dict[str, str]()

        def mended() -> bool:
            replica.mending.mend()
            return not replica.lacking

        with contextlib.suppress(AssertionError):
            for _ in range(CHECKS_MAX):
                broken = {each["part"]: f"the check says: {each['problem']}" for each in node.post("check")["broken"]}
                if not broken and not replica.lacking:
                    break
                wait_for(mended, "all is whole again", REPAIR_S)
        return {part: f"lacking: {replica.mending.why_lacking(part)}" for part in [*replica.lacking]} | broken

    def lacks(self) -> bool:
        """Whether a replica lacks a part now."""
        return any(node.table().lacking for node in self.cluster.nodes)

    def differs(self) -> str | None:
        """Say whether the replicas differ although neither lacks anything."""
        if self.lacks():
            return None
        return None if self.first.contents() == self.victim.contents() else "the replicas have other contents"

    def end(self) -> list[str]:
        """Clone the table to a new replica, and merge everything; return what is wrong with the rows then."""
        for node in self.cluster.nodes:
            self.repair(node)
        third = self.cluster.add("r3")
        wait_for(lambda: self.cluster.is_active(third) and third.contents() == self.first.contents(), "r3 is a clone")
        trouble = [self.read_all(third)]
        for node in self.cluster.nodes:
            node.post("merges/resume")
        self.first.post("optimize", {"final": True})
        wait_for(lambda: all(not node.table().progress.queue_length() for node in self.cluster.nodes), "all is merged")
        self.cluster.wait_alike()
        trouble += [self.read_all(node) for node in self.cluster.nodes]
        return [f"after a clone and merges: {each}" for each in trouble if each is not None]

    def close(self) -> None:
        self.connection.close()
        self.cluster.close()
        if self.bucket is not None:
            self.bucket.close()


def equal(found: pa.Table, expected: pa.Table) -> bool:
    """Whether two tables have the same rows, in whatever order."""
    if found.num_rows != expected.num_rows:
        return False
    order = [("p", "ascending"), ("k", "ascending")]
    ordered = found.sort_by(order), expected.sort_by(order)
    return all(ordered[0][name].equals(ordered[1][name]) for name in expected.column_names)
