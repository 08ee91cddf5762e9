"""Fsck, the part that changes something: what may be done about a finding while the cluster works.

==============  ==============================================================  ==============================================
finding         done                                                            why nothing is lost
==============  ==============================================================  ==============================================
`ORPHAN`        one commit: prove that the share is neither begun nor owned,    who registers it would delete the note of its
                and make it garbage; then work it off                           attempt, which is not there, nor will be
`UNOWNED`       one commit: delete the share's node, make it garbage            a node with a mark can't be deleted; without
                                                                                the node no replica can mark
`STALE_MARK`    its replica is gone: let go in its name                         that incarnation never comes again
                its replica is there: fence it by a new epoch, ask it again,    what it registers or marks after the question
                let go under that epoch                                         needs a newer epoch: this commit is refused
`LEFT_ATTEMPT`  as `STALE_MARK`; the commit makes it garbage                    the same
`LEFT_GARBAGE`  work it off                                                     it is garbage for good
`LEFT_UPLOAD`   abort it                                                        what is registered was stored whole before
`LEFT_TRIAL`    delete it                                                       no table has it
==============  ==============================================================  ==============================================

Parts that are dangling or unmarked are reported, never made again here; unreferenced objects are, and go with their share: they
are deleted by no one else, and nothing is wrong while they are there.  Of a table that was restored orphans are kept, until
an operator says that all servers are back: a disk of an absent server may have parts that use them
(`protocol.rescue.restore_shared`).

A repair is refused when something has changed since the looks; that is no failure, the next run looks anew.  It may be cut off
anywhere and be done twice, or by two at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import text_of
from replitree.protocol.rescue.fsck import Finding, FindingKind, MarkName, confirmed, is_unused, may_use
from replitree.protocol.rescue.fsck_look import (
    AbortUpload,
    AskReferences,
    Checking,
    DeleteTrial,
    SeenReplica,
    look,
)
from replitree.protocol.shares import share
from replitree.protocol.shares.share import DeleteObjects, LetGo, ObjectsGone, ObjectsInDoubt, ShareId, ShareOwner


class Repair(Enum):
    """What became of a finding."""

    DONE = "done"
    CHANGED = "changed"
    """It is not as it was seen, so nothing was done."""
    UNKNOWN = "unknown"
    """An answer did not come, from coordination, the store or the replica: it may be done, or not."""
    NONE = "none"
    """There is no repair that loses nothing."""
    KEPT = "kept"
    """The table was restored, and a disk of a server that is not back yet may have a part that uses it."""
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Report:
    """What fsck found and did.

    Attributes
    ----------
    findings
        Each with what became of it, worst first.
    silent
        Replicas that did not answer: what only they know of is not judged.
    shares, objects, bytes
        What is in the store.
    not_judged
        Why nothing is known of uploads that were begun; empty if they were judged.
    """

    findings: tuple[tuple[Finding, Repair], ...]
    silent: tuple[str, ...]
    shares: int
    objects: int
    bytes: int
    not_judged: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether everything could be judged, and nothing is wrong any more."""
        is_judged = not self.silent and not self.not_judged
        return is_judged and all(
            repair is Repair.DONE for finding, repair in self.findings if finding.kind is not FindingKind.UNREFERENCED
        )


def fsck(
    table: TablePlace, grace_ms: int, *, with_repair: bool, keep_orphans: bool = False
) -> Checking[Report | ObjectsInDoubt]:
    """Look twice, judge, and repair what can be repaired.

    Parameters
    ----------
    table
        A table whose parts lie in an object store.
    grace_ms
        How old something must be to count as left over, in milliseconds.
    with_repair
        Whether to change anything.
    keep_orphans
        Whether orphans are left as they are.
    """
    first = yield from look(table)
    if isinstance(first, ObjectsInDoubt):
        return first
    second = yield from look(table)
    if isinstance(second, ObjectsInDoubt):
        return second
    done: list[tuple[Finding, Repair]] = []
    for finding in confirmed(first, second, grace_ms):
        outcome = Repair.KEPT if keep_orphans and finding.kind is FindingKind.ORPHAN else Repair.NOT_ASKED
        if with_repair and outcome is Repair.NOT_ASKED:
            outcome = yield from repair(table, finding)
        done += ((finding, outcome),)
    objects = [each for some in second.objects.values() for each in some]
    size = sum(each.bytes for each in objects)
    return Report(tuple(done), second.silent, len(second.objects), len(objects), size, second.not_judged)


def repair(table: TablePlace, finding: Finding) -> Checking[Repair]:
    """Do what may be done about a finding."""
    match finding.kind:
        case FindingKind.ORPHAN:
            return (yield from _make_garbage(table, finding.share, without(table, finding.share)))
        case FindingKind.UNOWNED:
            gone = fx.Delete(layout.share(table, finding.share), fx.ANY_VERSION)
            return (yield from _make_garbage(table, finding.share, (gone,)))
        case FindingKind.STALE_MARK:
            return (yield from _release_mark(table, finding))
        case FindingKind.LEFT_ATTEMPT:
            proof: tuple[fx.Operation, ...] = ()
            if not finding.is_gone:
                replica = Replica(table, finding.replica)
                fenced = yield from _fence(replica)
                if isinstance(fenced, Repair):
                    return fenced
                if may_use(fenced.said, finding.share):
                    return Repair.CHANGED
                proof = (fx.Check(layout.host(replica), fenced.epoch),)
            gone = fx.Delete(layout.writing(table, finding.share), fx.ANY_VERSION)
            return (yield from _make_garbage(table, finding.share, (*proof, gone)))
        case FindingKind.LEFT_GARBAGE:
            return (yield from _work_off(table, finding.share))
        case FindingKind.LEFT_UPLOAD:
            assert finding.upload is not None
            ended = yield AbortUpload(finding.upload)
            return Repair.DONE if isinstance(ended, ObjectsGone) else Repair.UNKNOWN
        case FindingKind.LEFT_TRIAL:
            deleted = yield DeleteTrial(finding.trial)
            return Repair.DONE if isinstance(deleted, ObjectsGone) else Repair.UNKNOWN
        case FindingKind.DANGLING | FindingKind.UNMARKED | FindingKind.UNREFERENCED:
            return Repair.NONE


# --- garbage ------------------------------------------------------------------------------------------------------------------


def _make_garbage(table: TablePlace, share_id: ShareId, proof: tuple[fx.Operation, ...]) -> Checking[Repair]:
    """Make a share garbage if that holds, and work it off."""
    outcome = yield fx.Commit(*proof, fx.Create(layout.garbage(table, share_id)))
    if not isinstance(outcome, fx.Applied):
        return _not_applied(outcome)
    return (yield from _work_off(table, share_id))


def without(table: TablePlace, share_id: ShareId) -> tuple[fx.Operation, ...]:
    """Return what proves that a share is neither begun nor owned: its nodes can be made, and are not there afterwards."""
    paths = layout.writing(table, share_id), layout.share(table, share_id)
    return tuple(each for path in paths for each in (fx.Create(path), fx.Delete(path, fx.ANY_VERSION)))


def _work_off(table: TablePlace, share_id: ShareId) -> Checking[Repair]:
    deleted = yield DeleteObjects(share_id)
    if not isinstance(deleted, ObjectsGone):
        # The share is garbage now: the replica that removes garbage goes on with it.
        return Repair.UNKNOWN
    outcome = yield fx.Commit(fx.Delete(layout.garbage(table, share_id), fx.ANY_VERSION))
    # A refused commit means that another process has deleted it.
    return Repair.UNKNOWN if isinstance(outcome, fx.Unknown) else Repair.DONE


def _not_applied(outcome: fx.Refused | fx.Unknown) -> Repair:
    return Repair.UNKNOWN if isinstance(outcome, fx.Unknown) else Repair.CHANGED


# --- what belongs to a replica ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FencedReplica:
    """A replica whose commits are refused until it has a newer epoch than `epoch`, and what it has said since."""

    epoch: fx.Epoch
    said: SeenReplica


def _release_mark(table: TablePlace, finding: Finding) -> Checking[Repair]:
    mark = MarkName.parse(finding.mark)
    assert mark is not None
    replica = Replica(table, mark.replica)
    epoch = fx.Epoch(0)
    if not finding.is_gone:
        fenced = yield from _fence(replica)
        if isinstance(fenced, Repair):
            return fenced
        if fenced.said.incarnation == mark.incarnation and not is_unused(fenced.said, mark.part, finding.share):
            return Repair.CHANGED
        epoch = fenced.epoch
    owner = ShareOwner(replica, epoch, mark.incarnation, mark.part)
    left = yield from share.let_go(owner, (finding.share,), (), is_gone=finding.is_gone)
    match left:
        case LetGo(garbage):
            return (yield from _work_off(table, finding.share)) if garbage else Repair.DONE
        case fx.InDoubt():
            return Repair.UNKNOWN
    return Repair.CHANGED


def _fence(replica: Replica) -> Checking[FencedReplica | Repair]:
    """Give a replica a new epoch, as `lost` does, and ask it then what it has."""
    yield fx.Sync(layout.host(replica))
    host = yield fx.Get(layout.host(replica))
    if host is None:
        return Repair.CHANGED
    outcome = yield fx.Commit(fx.Set(layout.host(replica), host.value, host.version))
    if not isinstance(outcome, fx.Applied):
        return _not_applied(outcome)
    said = yield from ask(replica)
    if said is None:
        return Repair.CHANGED
    return FencedReplica(fx.Epoch(host.version + 1), said) if said.references is not None else Repair.UNKNOWN


def ask(replica: Replica) -> Checking[SeenReplica | None]:
    """Ask a replica what it has; None when it is not in the table."""
    node = yield fx.Get(layout.replica_path(replica))
    registered = yield fx.Children(layout.parts(replica))
    if node is None or registered is None:
        return None
    references = yield AskReferences(replica)
    return SeenReplica(
        replica.name, text_of(node.value, layout.replica_path(replica)), frozenset(registered), references
    )


__all__ = ["FencedReplica", "Repair", "Report", "ask", "fsck", "repair", "without"]
