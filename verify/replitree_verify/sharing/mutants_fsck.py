"""Broken rules of fsck.  Several guards stand behind each other, so some mutants leave out two.

What changes nothing when it is left out alone: docs/shared-storage.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.rescue import fsck, fsck_look, fsck_repair
from replitree.protocol.rescue.fsck import Finding, MarkName
from replitree.protocol.rescue.fsck_look import Checking, FsckLook, Listing, ListObjects, SeenReplica
from replitree.protocol.rescue.fsck_repair import Repair
from replitree.protocol.shares import share
from replitree.protocol.shares.share import DeleteObjects, LetGo, ObjectsInDoubt, ShareId, ShareOwner
from replitree_verify.engine.small_search import mutant_of

_CONFIRMED, _IS_UNUSED = fsck.confirmed, fsck.is_unused


# --- looking and judging ------------------------------------------------------------------------------------------------------


def _nodes_first(table: TablePlace) -> Checking[FsckLook | ObjectsInDoubt]:
    """Look at everything else, then list the objects."""
    looking, outcome = fsck_look.look(table), None
    while True:
        try:
            effect: Any = looking.send(outcome)
        except StopIteration as stop:
            seen: FsckLook = stop.value
            listed = yield ListObjects()
            shares = {
                each.share: tuple(one for one in listed.objects if one.share == each.share) for each in listed.objects
            }
            return replace(seen, now_ms=listed.now_ms, objects=shares)
        outcome = Listing(0, ()) if isinstance(effect, ListObjects) else (yield effect)


def _one_look(_first: FsckLook, second: FsckLook, grace_ms: int) -> tuple[Finding, ...]:
    return _CONFIRMED(second, second, grace_ms)


def _no_grace(first: FsckLook, second: FsckLook, _grace_ms: int) -> tuple[Finding, ...]:
    return _CONFIRMED(first, second, 0)


def _not_registered_is_unused(replica: SeenReplica, part: str, _share: ShareId, _known: object = None) -> bool:
    return replica.references is not None and part not in replica.registered


def _one_share_each(replica: SeenReplica) -> dict[str, set[ShareId]]:
    return {each.part: {each.share} for each in reversed(replica.references or ())}


def _silence_needs_nothing(seen: FsckLook, _grace_ms: int) -> Iterator[Finding]:
    needed = {(each.share, file.name) for one in seen.replicas for each in one.references or () for file in each.files}
    for share_id in seen.owners:
        if any((share_id, each.file) not in needed for each in seen.objects.get(share_id, ())):
            yield Finding(fsck.FindingKind.UNREFERENCED, share_id)


def _silence_is_no(replica: SeenReplica, part: str, share_id: ShareId, _known: object = None) -> bool:
    said = SeenReplica(replica.name, replica.incarnation, replica.registered, replica.references or ())
    return _IS_UNUSED(said, part, share_id)


def _silence_is_accepted(table: TablePlace, finding: Finding) -> Checking[Repair]:
    mark = MarkName.parse(finding.mark)
    assert mark is not None
    return (yield from _left_in_its_name(table, finding, mark))


def _left_in_its_name(table: TablePlace, finding: Finding, mark: MarkName) -> Checking[Repair]:
    owner = ShareOwner(Replica(table, mark.replica), fx.Epoch(0), mark.incarnation, mark.part)
    left = yield from share.let_go(owner, (finding.share,), (), is_gone=True)
    return Repair.DONE if isinstance(left, LetGo) else Repair.CHANGED


# --- repairing ----------------------------------------------------------------------------------------------------------------


def _proves_nothing(_table: TablePlace, _share: ShareId) -> tuple[()]:
    return ()


def _never_uses(_replica: SeenReplica, _share: ShareId) -> bool:
    return False


def _forgets_first(table: TablePlace, share_id: ShareId) -> Checking[Repair]:
    yield fx.Commit(fx.Delete(layout.garbage(table, share_id), fx.ANY_VERSION))
    yield DeleteObjects(share_id)
    return Repair.DONE


def _leaves_marks(_table: TablePlace, _finding: Finding) -> Checking[Repair]:
    yield from ()
    return Repair.CHANGED


def _asks_before_it_fences(replica: Replica) -> Checking[Any]:
    said = yield from fsck_repair.ask(replica)
    yield fx.Sync(layout.host(replica))
    host = yield fx.Get(layout.host(replica))
    if said is None or host is None:
        return Repair.CHANGED
    outcome = yield fx.Commit(fx.Set(layout.host(replica), host.value, host.version))
    return (
        fsck_repair.FencedReplica(fx.Epoch(host.version + 1), said)
        if isinstance(outcome, fx.Applied)
        else Repair.CHANGED
    )


_UNPROVEN = (fsck_repair, "without", _proves_nothing)
_ONE = (fsck_repair, "confirmed", _one_look)
_USES_NOTHING = (fsck, "may_use", _never_uses), (fsck_repair, "may_use", _never_uses)

FSCK_MUTANTS = (
    mutant_of(
        "fsck-one-share-each",
        "fsck_borrowed",
        "HELD",
        "a part is thought to have one share: the mark on what it borrows is taken for stale",
        (fsck, "_shares_of", _one_share_each),
    ),
    mutant_of(
        "fsck-no-grace",
        "fsck_write",
        "HELD",
        "an attempt is given up while its writer is at work: neither the grace counts nor what the replica says",
        (fsck_repair, "confirmed", _no_grace),
        *_USES_NOTHING,
    ),
    mutant_of(
        "fsck-references-first",
        "fsck_write",
        "ONCE",
        "one look that reads the nodes before it lists, and no proof: what was written in between is an orphan",
        (fsck_repair, "look", _nodes_first),
        _ONE,
        _UNPROVEN,
    ),
    mutant_of(
        "fsck-one-look",
        "fsck_write",
        "TRUE",
        "one look: a part that is registered after the listing lacks its objects",
        _ONE,
    ),
    mutant_of(
        "fsck-marks-unproven",
        "fsck_marks",
        "HELD",
        "one look, and a stale mark is deleted without fencing its replica: it was let go of and is taken over again",
        _ONE,
        (fsck_repair, "_release_mark", _silence_is_accepted),
    ),
    mutant_of(
        "fsck-asks-before-fence",
        "fsck_marks",
        "HELD",
        "one look, and a replica is asked before it is fenced: it takes the part over in between",
        _ONE,
        (fsck_repair, "_fence", _asks_before_it_fences),
    ),
    mutant_of(
        "fsck-silence-is-no",
        "fsck_silent",
        "HELD",
        "a replica that does not answer is taken to have nothing",
        (fsck, "is_unused", _silence_is_no),
        (fsck_repair, "_release_mark", _silence_is_accepted),
    ),
    mutant_of(
        "fsck-silence-needs-nothing",
        "fsck_silent",
        "TRUE",
        "what a replica needs that does not answer is said not to be needed",
        (fsck, "_unreferenced", _silence_needs_nothing),
    ),
    mutant_of(
        "fsck-registered-is-all",
        "fsck_silent",
        "HELD",
        "only registered parts count: the mark of one that is kept for readers is taken for stale",
        (fsck, "is_unused", _not_registered_is_unused),
        (fsck_repair, "is_unused", _not_registered_is_unused),
    ),
    mutant_of(
        "fsck-attempts-by-age",
        "fsck_staged",
        "HELD",
        "an attempt is given up for its age, though its replica has the part staged",
        *_USES_NOTHING,
    ),
    mutant_of(
        "fsck-forgets-garbage-first",
        "fsck_two",
        "KEPT",
        "the note in the garbage is deleted before the objects are: after a crash no replica deletes them",
        (fsck_repair, "_work_off", _forgets_first),
    ),
    mutant_of(
        "fsck-keeps-marks-of-the-gone",
        "fsck_two",
        "SETTLES",
        "the marks of a replica that was dropped are reported and stay",
        (fsck_repair, "_release_mark", _leaves_marks),
    ),
)


__all__ = ["FSCK_MUTANTS"]
