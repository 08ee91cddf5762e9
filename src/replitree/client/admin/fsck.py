"""Fsck of a table on an object store: `rescue.fsck_repair` on the real store, coordination and replicas, and what it says.

Run from the caller's own process: it needs the store's credentials there.  It may run while the cluster works, be cut off and
be run again, and several may run at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

import msgspec

from replitree.client.transport.catalog import Catalog
from replitree.client.transport.http import HttpClient
from replitree.errors import BadInput, NotAuthorized, ReplitreeError, StoreError, Unavailable
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.rescue.fsck import GRACE_S, Finding, FindingKind
from replitree.protocol.rescue.fsck_look import (
    AbortUpload,
    AgedNode,
    AskReferences,
    DeleteTrial,
    ListAges,
    ListObjects,
    NeededFile,
    Reference,
)
from replitree.protocol.rescue.fsck_repair import Repair, Report
from replitree.protocol.rescue.fsck_repair import fsck as fsck_procedure
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ObjectsInDoubt, ShareId
from replitree.storage.objects.opening import open_store
from replitree.storage.objects.probe import store_id
from replitree.storage.parts.manifest import MANIFEST_FILE
from replitree.storage.shares.inventory import inventory_of
from replitree.storage.shares.shares import ShareObjects
from replitree.wire.identity import decode_identity

ASK_S = 60.0
"""How long a replica may take to say what it has, in seconds."""

OBJECTS_S = 10.0
LOOK_S = 0.5
"""How long replicas may take to create missing objects again from their copies, and how often is looked, in seconds."""

READ_BATCH = 1000
"""Nodes read at once."""


class FsckFinding(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes
    ----------
    kind, share
        As of `protocol.rescue.fsck.Finding`.
    replica, part
        Whose part it is about; empty if about none.
    bytes
        What the store keeps for it.
    evidence
        What was seen.
    repair
        What became of it: done, changed, unknown, none, kept, not asked.
    text, advice
        For people.
    """

    kind: str
    share: str
    replica: str
    part: str
    bytes: int
    evidence: tuple[str, ...]
    repair: str
    text: str
    advice: str


class FsckReport(msgspec.Struct, frozen=True):
    """What fsck found in a table, and what it did.

    Attributes
    ----------
    table, store
        Which table, and the URL of its store.
    clean
        Everything could be judged, and nothing is wrong any more.
    repaired
        Whether repairs were asked for.
    grace_s
        How old something had to be, in seconds.
    shares, objects, bytes
        What the store has.
    silent
        Replicas that did not answer, and why.
    findings
        Worst first.
    not_judged
        Why nothing is known of uploads that were begun and not ended; empty if they were judged.
    """

    table: str
    store: str
    clean: bool
    repaired: bool
    grace_s: float
    shares: int
    objects: int
    bytes: int
    silent: dict[str, str]
    findings: tuple[FsckFinding, ...]
    not_judged: str = ""


def fsck(
    catalog: Catalog,
    http: HttpClient,
    table: str,
    *,
    with_repair: bool = False,
    grace_s: float = GRACE_S,
    everybody_is_back: bool = False,
) -> FsckReport:
    """Compare a table's object store with coordination and the replicas' disks.

    Parameters
    ----------
    with_repair
        Repair what can be repaired without losing anything.
    grace_s
        How old something must be to count as left over, in seconds: longer than any write of a part takes.
    everybody_is_back
        Of a table that was restored: every server that had it before was started since, or never will be.

    Raises
    ------
    TableNotFound
        There is no such table.
    BadInput
        Its rows are on local disks; or the URL reaches another store from here.
    Unavailable
        The store did not answer: nothing is known.
    NotAuthorized
        The store refused, or there are no credentials for it.
    """
    definition = catalog.definition(table)
    if not definition.is_shared:
        raise BadInput(f"the rows of {table} are on local disks; `replitree check {table}` looks at them")
    performer = _Performer(catalog, http, table, definition.store_url, definition.table_id)
    performer.check_store()
    keep = performer.keeps_orphans(forget=everybody_is_back and with_repair)
    checking = fsck_procedure(catalog.place(table), int(grace_s * 1000), with_repair=with_repair, keep_orphans=keep)
    report: Report | ObjectsInDoubt = run(cast("Any", checking), performer.perform)
    if isinstance(report, ObjectsInDoubt):
        raise Unavailable(f"the object store did not answer, so nothing is known: {report.problem}")
    undescribed = performer.undescribed()
    dangling = frozenset(each for each, _ in report.findings if each.kind is FindingKind.DANGLING)
    if with_repair and (dangling or undescribed):
        report = _with_objects_back(performer, report, dangling, undescribed, int(grace_s * 1000))
    left = frozenset(performer.undescribed())
    found = tuple(_undescribed(table, *each, with_repair=with_repair, is_left=each in left) for each in undescribed)
    return FsckReport(
        table,
        definition.store_url,
        report.is_clean and all(each.repair == Repair.DONE.value for each in found),
        with_repair,
        grace_s,
        report.shares,
        report.objects,
        report.bytes,
        {name: performer.silent.get(name, "it did not answer") for name in report.silent},
        (*found, *(_finding(table, finding, repair) for finding, repair in report.findings)),
        report.not_judged,
    )


def _with_objects_back(
    performer: _Performer,
    report: Report,
    dangling: frozenset[Finding],
    undescribed: Sequence[tuple[str, str]],
    grace_ms: int,
) -> Report:
    """Let the replicas create missing objects and manifests again from what their disks and the store have.

    Returns the report with what came of it.
    """
    performer.ask_for_objects(sorted({each.part for each in dangling} | {part for _, part in undescribed}))
    left, deadline = dangling, time.monotonic() + OBJECTS_S
    while (left or performer.undescribed()) and time.monotonic() < deadline:
        # The answers say nothing of what a replica puts again afterwards: the store shows it.
        time.sleep(LOOK_S)
        performer.forget_answers()
        again: Report | ObjectsInDoubt = run(
            cast("Any", fsck_procedure(performer.place, grace_ms, with_repair=False)), performer.perform
        )
        # A store that did not answer this time has said nothing of what is missing.
        if not isinstance(again, ObjectsInDoubt):
            left = dangling & frozenset(each for each, _ in again.findings)
    findings = tuple(
        (each, Repair.DONE if each in dangling and each not in left else repair) for each, repair in report.findings
    )
    return replace(report, findings=findings)


class _Performer:
    """Performs the effects of fsck on the real things."""

    def __init__(self, catalog: Catalog, http: HttpClient, table: str, url: str, table_id: str) -> None:
        self.table, self.url = table, url
        self.silent: dict[str, str] = {}
        self._undescribed: dict[str, list[frozenset[str]]] = {}
        self._described: set[str] = set()
        self._catalog, self._http = catalog, http
        self.place = self._place = catalog.place(table)
        self._store = open_store(url)
        self._inventory = inventory_of(self._store, table_id)
        self._objects = ShareObjects(lambda: self._store, table_id)

    def check_store(self) -> None:
        """Make sure that the same store is reached from here as from the replicas."""
        node, here = self._catalog.perform(fx.Get(layout.sharing(self._place))), store_id(self._store)
        if node is not None and node.value and node.value.decode() != here:
            raise BadInput(f"{self.url} is another store here than for the replicas; run fsck where they run")
        self._objects.store_id = here

    def keeps_orphans(self, *, forget: bool) -> bool:
        """Whether the table was restored and some server may not be back; with `forget`, record that all are."""
        path = layout.restored(self._place)
        if forget:
            self._catalog.perform(fx.Commit(fx.Delete(path, fx.ANY_VERSION)))
        return bool(self._catalog.perform(fx.Exists(path)))

    def ask_for_objects(self, parts: Sequence[str]) -> None:
        """Let every replica verify its own of these parts; each uses its copies."""
        for replica in self._catalog.replicas(self.table):
            for part in parts if replica.active and replica.address else ():
                path = f"/v1/tables/{quote(self.table)}/parts/{quote(part)}/check"
                # A replica that does not have the part, or does not answer, is asked again in the next round.
                with suppress(ReplitreeError):
                    self._http.request(replica.address, "POST", path, timeout_s=ASK_S)

    def perform(self, effect: Any) -> Any:
        """Perform one effect."""
        match effect:
            case ListObjects():
                try:
                    return self._inventory.listing()
                except NotAuthorized:
                    raise
                except StoreError as error:
                    return ObjectsInDoubt(str(error))
            case ListAges(path):
                now_ms = self._catalog.now_ms(layout.sharing(self._place))
                names: tuple[str, ...] = self._catalog.perform(fx.Children(path)) or ()
                found: list[AgedNode] = []
                for first in range(0, len(names), READ_BATCH):
                    batch = names[first : first + READ_BATCH]
                    many: fx.Many = self._catalog.perform(fx.GetMany(tuple(f"{path}/{name}" for name in batch)))
                    found += (
                        AgedNode(name, node.value, now_ms - node.changed_ms)
                        for name, node in zip(batch, many.nodes, strict=True)
                        if node is not None
                    )
                return tuple(found)
            case AskReferences(replica):
                return self._ask(replica)
            case DeleteObjects(share):
                return self._gone(lambda: self._objects.delete(share))
            case AbortUpload(upload):
                return self._gone(lambda: self._inventory.abort(upload))
            case DeleteTrial(key):
                return self._gone(lambda: self._inventory.delete_trial(key))
        return self._catalog.perform(effect)

    @staticmethod
    def _gone(delete: Any) -> ObjectsGone | ObjectsInDoubt:
        try:
            delete()
        except StoreError as error:
            # The request may have reached the store: some of the objects may be gone.
            return ObjectsInDoubt(str(error))
        return ObjectsGone()

    def _ask(self, replica: Replica) -> tuple[Reference, ...] | None:
        self.silent.pop(replica.name, None)
        host = self._catalog.perform(fx.Get(layout.host(replica)))
        identity = None if host is None else decode_identity(host.value)
        if identity is None or not self._catalog.perform(fx.Exists(layout.is_active(replica))):
            self.silent[replica.name] = "it is not active: start its server, or drop the replica"
            return None
        try:
            path = f"/v1/tables/{quote(self.table)}/shares"
            answer = self._http.request(identity.address, "GET", path, timeout_s=ASK_S).decode(_Shares)
        except ReplitreeError as error:
            self.silent[replica.name] = str(error)
            return None
        if answer.replica != replica.name:
            self.silent[replica.name] = f"at {identity.address} answers {answer.replica}"
            return None
        self._undescribed.setdefault(replica.name, []).append(frozenset(answer.undescribed))
        self._described |= {each.part for each in answer.shares}
        return tuple(each.reference() for each in answer.shares)

    def undescribed(self) -> tuple[tuple[str, str], ...]:
        """Return the parts of which no replica that answers knows a manifest, as pairs of replica and part."""
        self._described.discard("")
        return tuple(
            (name, part)
            for name, said in sorted(self._undescribed.items())
            # Only what both of the last two rounds saw: a part may be registered between two requests of one round.
            for part in sorted(said[-1] & said[-min(2, len(said))])
            if part not in self._described
        )

    def forget_answers(self) -> None:
        """Forget what replicas have said of parts: they are asked again."""
        self._undescribed.clear()
        self._described.clear()


class _File(msgspec.Struct, frozen=True):
    """A data file as a replica tells of it."""

    name: str
    bytes: int


class _Share(msgspec.Struct, frozen=True):
    """A share as a replica tells of it."""

    share: str
    part: str
    files: tuple[_File, ...] = ()
    place: str = ""

    def reference(self) -> Reference:
        """Return the files that a part needs in the store: its data files and its manifest."""
        files = tuple(NeededFile(each.name, each.bytes) for each in self.files)
        # A part that borrows all its data files still needs its own manifest.
        is_needed = bool(files) or self.place in ("parts", "lacking")
        return Reference(self.part, ShareId(self.share), (*files, NeededFile(MANIFEST_FILE, None)) if is_needed else ())


class _Shares(msgspec.Struct, frozen=True):
    """What a replica says that it has."""

    replica: str
    shares: tuple[_Share, ...]
    undescribed: tuple[str, ...] = ()


# --- words --------------------------------------------------------------------------------------------------------------------


def _finding(table: str, found: Finding, repair: Repair) -> FsckFinding:
    text, advice = _words(table, found)
    if repair is Repair.DONE:
        advice = ""
    elif found.kind is FindingKind.DANGLING and repair is Repair.NONE:
        advice = (
            f"no replica that answers has a copy of them on its disk: start the other replicas, or put a copy of the part below"
            f" detached/ of any replica; `replitree doctor` says more, and so does `replitree check {table}`"
        )
    elif found.kind not in (FindingKind.DANGLING, FindingKind.UNMARKED, FindingKind.UNREFERENCED):
        advice = _ADVICE[repair].format(table=table)
    return FsckFinding(
        found.kind.value,
        found.share,
        found.replica,
        found.part,
        found.bytes,
        found.evidence,
        repair.value,
        text,
        advice,
    )


UNDESCRIBED = "undescribed"
"""Kind of the finding of a part of which no replica that answers knows a manifest, and no share that its marks name has one."""


def _undescribed(table: str, replica: str, part: str, *, with_repair: bool, is_left: bool) -> FsckFinding:
    text = f"part {part} on {replica} has no manifest, on any replica that answers or in the store"
    advice, repair = "", Repair.DONE
    if not with_repair:
        repair = Repair.NOT_ASKED
        advice = (
            f"replitree fsck {table} --repair: every replica looks for data files with the registered rows,"
            " and writes the part anew"
        )
    elif is_left:
        repair = Repair.NONE
        advice = (
            f"no replica that answers has data files with the registered rows: start the other replicas, or put a copy of the"
            f" part below detached/ of any replica; `replitree doctor` says more, and so does `replitree check {table}`"
        )
    return FsckFinding(UNDESCRIBED, "", replica, part, 0, (), repair.value, text, advice)


_ADVICE = {
    Repair.NOT_ASKED: "replitree fsck {table} --repair",
    Repair.CHANGED: "it has changed meanwhile: run fsck again",
    Repair.UNKNOWN: "an answer did not come: run fsck again",
    Repair.NONE: "",
    Repair.KEPT: "the table was restored: when every server that had it was started again, or never will be,"
    " replitree fsck {table} --repair --everybody-is-back",
}


def _words(table: str, found: Finding) -> tuple[str, str]:
    """Return the text of a finding, and the advice for the case that fsck can't repair it."""
    share = f"share {found.share}"
    match found.kind:
        case FindingKind.DANGLING:
            lacks = "; ".join(found.evidence)
            return (
                f"part {found.part} on {found.replica} lacks objects of {share}: {lacks}",
                f"replitree fsck {table} --repair: every replica creates missing objects again from copies on its disk",
            )
        case FindingKind.UNMARKED:
            return (
                f"part {found.part} on {found.replica} has no mark on {share}: others may delete its objects",
                f"restart the server of {found.replica}: it owns the share again, or fetches the part",
            )
        case FindingKind.ORPHAN:
            return f"{share} belongs to no replica, and has {len(found.evidence)} objects", ""
        case FindingKind.UNOWNED:
            return f"{share} has a node and no owner", ""
        case FindingKind.STALE_MARK:
            why = "which is not in the table any more" if found.is_gone else "which does not have the part"
            return f"{share} has a mark for part {found.part} of {found.replica}, {why}", ""
        case FindingKind.LEFT_ATTEMPT:
            why = "which is not in the table any more" if found.is_gone else "which knows nothing of it"
            return f"{share} was begun by {found.replica}, {why}", ""
        case FindingKind.LEFT_GARBAGE:
            return f"{share} is garbage that no replica has removed yet", ""
        case FindingKind.LEFT_UPLOAD:
            assert found.upload is not None
            return f"{found.upload.file} of {share} was begun and not ended", ""
        case FindingKind.LEFT_TRIAL:
            return f"{found.trial} is of no table: a process that tried the store has left it", ""
        case FindingKind.UNREFERENCED:
            return f"{share} has {len(found.evidence)} objects that no part needs; they go with it", ""


__all__ = ["FsckFinding", "FsckReport", "fsck"]
