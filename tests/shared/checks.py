"""The reckoning of a table on an object store: what the store has is what registered parts own, no more and no less.

* While the run goes on: no part of any replica lacks an object, and none lacks its mark.
* At its end nothing is begun, owned by nobody, or owned without a part; what is left over is what a write whose answer was lost
  has left: fsck finds it, and removes it.
* Then every object is one that a part of every replica needs, and a dropped table leaves none.
"""

from __future__ import annotations

import http.client
from collections import Counter
from typing import Self

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.coordination.port import Coordination
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import Unavailable
from replitree.protocol import layout
from replitree.protocol.effects import Children
from replitree.protocol.fsck import Kind
from replitree.protocol.layout import Replica
from replitree.protocol.layout import Table as Place
from replitree.storage.manifest import MANIFEST_FILE
from replitree.storage.objects import ObjectStore
from tests.faults.checks import ask
from tests.faults.cluster import FaultCluster
from tests.waiting import wait_for

SETTLE_S = 120.0
NEVER = frozenset({Kind.DANGLING.value, Kind.UNMARKED.value})
"""Must not be found at any time."""

LEFT_OVER = frozenset({Kind.ORPHAN.value, Kind.LEFT_UPLOAD.value, Kind.LEFT_TRIAL.value})
"""All that may be found at the end: what a request has made of which nobody heard any more."""


class Shares:
    """What coordination and the store have of one table, past everything that is hurt.

    Parameters
    ----------
    session
        With coordination; closed with this.
    place, table_id
        The table.
    names
        Of its replicas.
    store
        Its store.
    """

    def __init__(
        self, session: Coordination, place: Place, table_id: str, names: tuple[str, ...], store: ObjectStore
    ) -> None:
        self._session, self._place, self._names = session, place, names
        self._store, self._prefix = store, f"tables/{table_id}"

    @classmethod
    def of(cls, cluster: FaultCluster, table: Table, store: ObjectStore) -> Self:
        """Look at a table of a cluster."""
        session = ZooKeeperCoordination(cluster.ensemble.url)
        place = Place(layout.table_path(session.url.root, table.name))
        return cls(session, place, table.definition.table_id, cluster.names, store)

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of a node's children."""
        names: tuple[str, ...] = self._session.perform(Children(path)) or ()
        return names

    def objects(self) -> dict[str, set[str]]:
        """Return the files of every share that the store has."""
        found: dict[str, set[str]] = {}
        for each in self._store.list(self._prefix):
            _, _, share, file = each.key.split("/", 3)
            found.setdefault(share, set()).add(file)
        return found

    def wrong(self) -> list[str]:
        """Return what is not as it must be when nothing happens: in coordination, and between it and the store."""
        place, shares = self._place, self.children(layout.shares(self._place))
        found = [f"begun: {name}" for name in self.children(layout.all_writing(place))]
        found += [f"garbage: {name}" for name in self.children(layout.all_garbage(place))]
        marks = {share: self.children(layout.share(place, share)) for share in shares}
        found += [f"unowned: {share}" for share, owners in marks.items() if not owners]
        owned = {(mark.split("~")[0], mark.split("~")[2]) for owners in marks.values() for mark in owners}
        parts = {(name, part) for name in self._names for part in self.children(layout.parts(Replica(place, name)))}
        found += [f"mark without a part: {replica} {part}" for replica, part in sorted(owned - parts)]
        objects = self.objects()
        found += [f"no manifest: {share}" for share in shares if MANIFEST_FILE not in objects.get(share, ())]
        return found

    def close(self) -> None:
        """End the session."""
        self._session.close()


def nothing_is_lacking(connection: Connection, table: str) -> bool:
    """Compare store, coordination and disks while everything goes on; False: the store did not answer."""
    try:
        report = connection.fsck(table)
    except Unavailable:
        return False
    lacking = [each.text for each in report.findings if each.kind in NEVER]
    assert not lacking, f"{len(lacking)} parts lack something: {lacking[:3]}"
    return True


def objects_are_what_is_needed(cluster: FaultCluster, table: Table, shares: Shares) -> dict[str, int]:
    """Wait until everything is settled, remove what was left over, and return how much that was, by kind."""
    connection = cluster.connection
    wait_for(lambda: not shares.wrong(), lambda: f"shares are settled: {shares.wrong()[:5]}", SETTLE_S)
    found = connection.fsck(table.name, with_repair=True, grace_s=0.0)
    strange = [each.text for each in found.findings if each.kind not in LEFT_OVER]
    assert not strange, f"fsck finds what must not be: {strange[:5]}"
    again = connection.fsck(table.name, grace_s=0.0)
    assert again.clean, f"fsck has not repaired everything: {again}"
    objects, wanted = shares.objects(), needed(cluster, table)
    assert objects == wanted, f"objects {_differ(objects, wanted)} are in the store or needed, and not both"
    return dict(Counter(each.kind for each in found.findings))


def needed(cluster: FaultCluster, table: Table) -> dict[str, set[str]]:
    """Return the files of every share that the replicas say they need."""
    found: dict[str, set[str]] = {}
    for name in cluster.names:
        status, answer = ask(cluster, cluster.address(name), "GET", f"/v1/tables/{table.name}/shares")
        assert status == http.client.OK, f"{name} does not say what it needs: {answer}"
        for each in answer["shares"]:
            found.setdefault(each["share"], {MANIFEST_FILE}).update(file["name"] for file in each["files"])
    return found


def _differ(one: dict[str, set[str]], other: dict[str, set[str]]) -> list[str]:
    pairs = [{f"{share}/{file}" for share, files in each.items() for file in files} for each in (one, other)]
    return sorted(pairs[0] ^ pairs[1])[:5]
