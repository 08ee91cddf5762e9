"""``python -m tests.shared.deleted --rounds 50``: delete objects from a store while disks of replicas hold copies, then read.

Three replicas share a store.  Every round inserts rows, lets some replica hold copies of some parts in one of the places where
copies lie, removes all other copies, and deletes objects of these parts behind the replicas' backs.  Then a client reads, a
replica checks its parts, or a replica restarts.  No read may fail or show other rows, no part may be declared lost, and the
replicas, which check their parts all the time, must have every part's objects in the store again by themselves: the same, or,
where a replica had only a copy that does not name the share, those of a new one.

Prints a line for each round, and a line of JSON at the end.  When a round fails: its seed, and how to repeat it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import CorruptPart
from replitree.protocol.state.registration import content_of
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from tests.faults.arguments import say
from tests.replica.inprocess import TOKEN, Node, wait_for
from tests.replica.test_lost_parts import lost_count, registered
from tests.replica.test_own_shares import remove_copies
from tests.replica.test_sharing import SharedCluster
from tests.shared.stores import credentials
from tests.storage.objects.seaweed import Seaweed

REPLICAS = 3
PARTS_MAX = 4
"""Parts of which objects are deleted in one round, at most."""

LOST_AFTER_S = 2.0
"""When replicas give a part up that they can't get, in seconds: soon, so that what could be lost is lost within a round."""

CHECK_S = 0.02
"""How long each replica rests between two parts that it checks, in seconds."""

WHOLE_S = 90.0
"""How long a round may take until everything is whole, in seconds."""

PLACES = ("cache", "leaving", "frozen", "detached")
TRIGGERS = ("read", "check", "restart")
STORES = ("folder", "seaweed")


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    seed: int
    store: str
    rounds: int = 0
    rows: int = 0
    objects_deleted: int = 0
    reads: int = 0
    places: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    triggers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TRIGGERS, 0))


class Deletions:
    """One run.

    Parameters
    ----------
    folder
        For the replicas' disks; and for the store, when it is a folder.
    url
        Of the store.
    report
        Says what is done.
    """

    def __init__(self, folder: Path, url: str, report: Report) -> None:
        self._chance = random.Random(report.seed)
        self._report = report
        self._cluster = SharedCluster(
            folder,
            url,
            REPLICAS,
            lost_part_after_s=LOST_AFTER_S,
            check_interval_s=CHECK_S,
            old_parts_lifetime_s=0.0,
            merge="fetch",  # no replica chooses merges, also after a restart: parts stay, and can be looked at
        )
        shared = self._cluster.shared
        self._client = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(shared))
        self._keys: list[int] = []

    def close(self) -> None:
        """Stop everything."""
        self._client.close()
        self._cluster.close()

    def round(self) -> str:
        """Do one round; return what was done in words."""
        chance, cluster, report = self._chance, self._cluster, self._report
        for _ in range(chance.randint(1, 3)):
            self._insert(chance.choice(cluster.nodes))
        parts = sorted(cluster.wait_alike())
        hurt = chance.sample(parts, min(len(parts), chance.randint(1, PARTS_MAX)))
        holder, place, trigger = chance.choice(cluster.nodes), chance.choice(PLACES), chance.choice(TRIGGERS)
        manifests = [holder.table().store.manifest(part) for part in hurt]
        for part in hurt:
            self._hold(part, holder, place)
        deleted = self._delete(manifests)
        if place == "leaving":
            self._set_aside(hurt)
        self._pull(trigger)
        self._read()
        self._wait_whole(hurt)
        report.rounds += 1
        report.objects_deleted += len(deleted)
        report.places[place] += 1
        report.triggers[trigger] += 1
        return f"{len(deleted)} objects of {len(hurt)} parts deleted; {holder.name} had copies ({place}); {trigger}"

    def _insert(self, node: Node) -> None:
        first = len(self._keys)
        keys = list(range(first, first + self._chance.randint(1, 50)))
        noise = [self._chance.random() for _ in keys]
        data = pa.table({"k": pa.array(keys, pa.int64()), "v": noise, "s": [str(key) for key in keys]})
        status, answer = node.insert(data)
        assert status == 200, answer
        self._keys += keys
        self._report.rows = len(self._keys)

    def _hold(self, part: str, holder: Node, place: str) -> None:
        """Let one replica hold copies of a part's objects in one place, and no other replica any."""
        store = holder.table().store
        store.bring((part,))
        if place == "frozen":
            store.freeze((part,), f"round-{self._report.rounds}-{part}", holder.table().definition, 1)
        elif place == "detached":
            store.keep_aside((part,))
        for node in self._cluster.nodes:
            if node is not holder or place in ("frozen", "detached"):
                remove_copies(node, part)

    def _delete(self, manifests: list[PartManifest]) -> list[str]:
        """Delete data files, and sometimes the manifests, from the store."""
        root = f"tables/{self._cluster.definition.table_id}"
        keys = [f"{root}/{each.share_of(file)}/{file.name}" for each in manifests for file in each.files]
        if self._chance.random() < 0.5:
            keys += [f"{root}/{each.share_id}/{MANIFEST_FILE}" for each in manifests]
        self._cluster.objects.delete(keys)
        return keys

    def _set_aside(self, parts: list[str]) -> None:
        """Let every replica have found the parts broken: what it had of them lies in `leaving/`."""
        for node in self._cluster.nodes:
            table = node.table()
            contents = {part: content_of(registered(node, part)) for part in parts}
            table.progress.hide(parts)
            for part in parts:
                table.store.quarantine(part, "an object is missing")
            for part, content in contents.items():
                table.local_parts.lacks(part, content)

    def _pull(self, trigger: str) -> None:
        node = self._chance.choice(self._cluster.nodes)
        if trigger == "check":
            status, _ = node.request("POST", "/v1/tables/t/check", b"{}")
            assert status == 200
        elif trigger == "restart":
            node.restart()

    def _read(self) -> None:
        """Read all rows as a client does, in two ways; both must show exactly what was inserted."""
        table = self._client.table("t")
        assert sorted(table.to_arrow(["k"])["k"].to_pylist()) == self._keys
        assert sorted(key for batch in table.batches(["k"]) for key in batch["k"].to_pylist()) == self._keys
        self._report.reads += 2

    def _wait_whole(self, parts: list[str]) -> None:
        """Wait until all objects are there, and every replica has all parts; reads go on meanwhile."""
        nodes, objects = self._cluster.nodes, self._cluster.nodes[0].table().sharing
        assert objects is not None

        def is_whole() -> bool:
            self._read()
            active = all(self._cluster.is_active(node) for node in nodes)
            if not active or any(node.table().lacking for node in nodes):
                return False
            try:
                now = [node.table().store.manifest(part) for node in nodes for part in parts]
            except CorruptPart:  # it was set aside just now
                return False
            missing = [objects.objects.missing(each) for each in now if each.share_id is not None]
            are_stored = len(missing) == len(now)  # otherwise some are still to be moved into the store
            return are_stored and not any(each.files or each.manifest for each in missing)

        def state() -> str:
            tables = [node.table() for node in nodes]
            lacking = [
                (table.replica.name, table.availability.state.value, table.lacking, table.lost_parts.reasons)
                for table in tables
            ]
            stored = {(node.name, part): _stored(node, part) for node in nodes for part in parts}
            moves = [node.table().mover.status() for node in nodes]
            return f"all objects are there again, and no part is lacking: {lacking}; {stored}; {moves}"

        wait_for(is_whole, state, WHOLE_S)
        assert sum(map(lost_count, nodes)) == 0, "a part was declared lost"
        self._cluster.wait_equal(self._keys)


def _stored(node: Node, part: str) -> str:
    """Say which share a replica's part names, and what that lacks."""
    sharing = node.table().sharing
    assert sharing is not None
    try:
        manifest = node.table().store.manifest(part)
        return "files of its own" if manifest.share_id is None else str(sharing.objects.missing(manifest))
    except CorruptPart as error:
        return str(error)


@contextmanager
def store_of(kind: str, folder: Path) -> Iterator[str]:
    """Give the URL of an empty store: a folder, or a bucket of a server that is started."""
    with ExitStack() as stack:
        if kind == "folder":
            yield f"file://{folder}/objects"
            return
        stack.enter_context(credentials())
        (folder / "seaweed").mkdir()
        yield stack.enter_context(Seaweed(folder / "seaweed")).url("deleted")


def run(
    folder: Path, *, rounds: int, seed: int = 1, store: str = STORES[0], tell: Callable[[str], object] = say
) -> Report:
    """Do some rounds; raises when a read fails, rows are not what was inserted, or something is not whole in time."""
    report = Report(seed, store)
    with store_of(store, folder) as url:
        deletions = Deletions(folder, url, report)
        try:
            while report.rounds < rounds:
                tell(f"round {report.rounds + 1}: {deletions.round()}")
        finally:
            deletions.close()
    return report


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=STORES, default=STORES[0])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replitree-deleted-") as folder:
        try:
            report = run(Path(folder), rounds=arguments.rounds, seed=arguments.seed, store=arguments.store)
        except Exception:
            say(f"FAILED: repeat with --seed {arguments.seed} --store {arguments.store}")
            raise
    say(json.dumps(asdict(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
