"""The reckoning of a table on an object store: what the store has is what registered parts own, no more and no less.

* While the run goes on: no part of any replica lacks an object, and none lacks its mark.
* At its end nothing is begun, owned by nobody, or owned without a part; what is left over is what a write whose answer was lost
  has left: fsck finds it, and removes it.
* Then every share that the store has is one that a part needs, and has just the files that its manifest names.  Those of a
  part's own share are all needed; of a share that only borrowers have some may be needed no more.
* A dropped table leaves no object.
"""

from __future__ import annotations

import http.client
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.coordination.port import Coordination
from replitree.errors import BadInput, Unavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.rescue.fsck import FindingKind
from replitree.storage.objects import ObjectStore
from replitree.storage.parts.manifest import MANIFEST_FILE, decode_manifest
from tests.coordination.waiting import patient_session, place_of
from tests.faults.checks import ask
from tests.faults.cluster import FaultCluster
from tests.waiting import wait_for

SETTLE_S = 120.0
NEVER = frozenset({FindingKind.DANGLING.value, FindingKind.UNMARKED.value})
"""Must not be found at any time."""

LEFT_OVER = frozenset(
    {
        FindingKind.ORPHAN.value,
        FindingKind.LEFT_UPLOAD.value,
        FindingKind.LEFT_TRIAL.value,
        FindingKind.UNREFERENCED.value,
    }
)
"""All that may be found at the end: what a request has made of which nobody heard any more, and what no part needs any more."""

LATE = "late file"
"""A file that no manifest names: put by a task's attempt that did not count, after the commit.  It goes with its share."""


@dataclass(slots=True)
class Needs:
    """What the replicas need of the store.

    Attributes
    ----------
    files
        By share; the manifest among them.
    own
        Shares that are a part's own: all of their files are needed.
    unsettled
        What is being written, or about to be let go of.
    """

    files: dict[str, set[str]] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    unsettled: list[str] = field(default_factory=list)

    @property
    def borrowed(self) -> int:
        """How many files lie in shares that only borrowers have."""
        return sum(len(files - {MANIFEST_FILE}) for share, files in self.files.items() if share not in self.own)


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
        self, session: Coordination, place: TablePlace, table_id: str, names: tuple[str, ...], store: ObjectStore
    ) -> None:
        self._session, self._place, self._names = session, place, names
        self._store, self._prefix = store, f"tables/{table_id}"

    @classmethod
    def of(cls, cluster: FaultCluster, table: Table, store: ObjectStore) -> Self:
        """Look at a table of a cluster."""
        session = patient_session(cluster.ensemble.url)
        place = place_of(session, table.name)
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

    def named(self, share: str) -> set[str]:
        """Return the files that the manifest of a share names, and itself; none if it is not there."""
        content = self._store.get(f"{self._prefix}/{share}/{MANIFEST_FILE}")
        if content is None:
            return set()
        return {MANIFEST_FILE, *(file.name for file in decode_manifest(content).own_files)}

    def close(self) -> None:
        """End the session."""
        self._session.close()


def nothing_is_lacking(connection: Connection, table: str) -> bool:
    """Compare store, coordination and disks while everything goes on; False: the store did not answer, or there is none now."""
    try:
        report = connection.fsck(table)
    except Unavailable:
        return False
    except BadInput as error:
        if "on local disks" not in str(error):
            raise
        return False
    lacking = [each.text for each in report.findings if each.kind in NEVER]
    assert not lacking, f"{len(lacking)} parts lack something: {lacking[:3]}"
    return True


def objects_are_what_is_needed(cluster: FaultCluster, table: Table, shares: Shares) -> tuple[Needs, dict[str, int]]:
    """Wait until everything is settled, and remove what was left over.

    Returns
    -------
    tuple
        What is needed; and how much was left over, by kind.
    """
    connection = cluster.connection
    wait_for(lambda: not shares.wrong(), lambda: f"shares are settled: {shares.wrong()[:5]}", SETTLE_S)
    wait_for(lambda: not needs(cluster, table).unsettled, lambda: f"{needs(cluster, table)} is settled", SETTLE_S)
    found = connection.fsck(table.name, with_repair=True, grace_s=0.0)
    strange = [each.text for each in found.findings if each.kind not in LEFT_OVER]
    assert not strange, f"fsck finds what must not be: {strange[:5]}"
    again = connection.fsck(table.name, grace_s=0.0)
    assert again.clean, f"fsck has not repaired everything: {again}"
    needed, objects = needs(cluster, table), shares.objects()
    wrong, late = compared(objects, needed, {share: shares.named(share) for share in objects})
    assert not wrong, f"objects are not what is needed: {wrong[:5]}"
    left = Counter(each.kind for each in found.findings)
    return needed, dict(left + Counter({LATE: len(late)}))


def needs(cluster: FaultCluster, table: Table) -> Needs:
    """Ask all replicas what they need."""
    found = Needs()
    for name in cluster.names:
        status, answer = ask(cluster, cluster.address(name), "GET", f"/v1/tables/{table.name}/shares")
        assert status == http.client.OK, f"{name} does not say what it needs: {answer}"
        for each in answer["shares"]:
            if each["place"] in ("leaving", "writing"):
                found.unsettled.append(f"{name}: {each['part']} {each['share']} {each['place']}")
            found.files.setdefault(each["share"], {MANIFEST_FILE}).update(file["name"] for file in each["files"])
        parts = table.replica(name).snapshot().parts
        found.own.update(part.manifest.share_id for part in parts if part.manifest.share_id is not None)
    return found


def compared(
    objects: dict[str, set[str]], needed: Needs, named: dict[str, set[str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Compare what the store has with what is needed.

    Parameters
    ----------
    objects
        Files of the store, by share.
    needed
        What the replicas say.
    named
        Files that a share has by its manifest in the store.

    Returns
    -------
    tuple
        What is wrong; and the files that came too late to count, with their shares.
    """
    wrong = [f"{share} is nobody's" for share in sorted(objects.keys() - needed.files.keys())]
    late: list[tuple[str, str]] = []
    for share, files in sorted(needed.files.items()):
        found, said = objects.get(share, set()), named.get(share, set())
        wrong += [f"{share}/{name} is missing" for name in sorted((files | said) - found)]
        wrong += [f"{share}/{name} is needed, and its manifest does not name it" for name in sorted(files - said)]
        wrong += [f"{share}/{name} is not needed" for name in sorted(said - files) if share in needed.own]
        late += [(share, name) for name in sorted(found - said - files)]
    return wrong, late
