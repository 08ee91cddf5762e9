"""The mender: makes parts whole again whose files are broken or gone, and declares lost what no replica has.

A round has two stages.  `mend` gets the parts: copies on this disk are put back; the other replicas send the rest; what no
replica sends is looked for in the object store; what has no manifest anywhere is written anew of its data files.  `tell` notes
in the registrations which parts are broken here, and which are no more.

A part is shown again when three things are certain: no log entry has made it empty meanwhile, it has its registered content,
and its shares are owned.

Absent on purpose: how a part is found broken, and how long it may be missing before it is given up.
"""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import Any

from replitree.protocol.core.effects import FetchPart, Procedure
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.mender_effects import (
    AskAgain,
    AwaitLacking,
    AwaitLoss,
    BrokenNotes,
    HaveChecked,
    Losing,
    Loss,
    MarkedShares,
    MendTurn,
    PartContent,
    PutBack,
    SeekFiles,
    SeekShares,
    TakeFromStore,
    TakeOut,
    Telling,
    TellTurn,
    WholeAgain,
    WriteAnew,
)
from replitree.protocol.program.stages import AskReload, ReportTrouble, Stage, Then
from replitree.protocol.shares import own_marks, owning
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state import fetch
from replitree.protocol.upkeep import lost
from replitree.protocol.upkeep.lost import NoteOutcome, Unnoticed


def mend(replica: Replica, notes: BrokenNotes = BrokenNotes()) -> Stage:  # noqa: B008 - it is immutable
    """Make parts whole.

    Parameters
    ----------
    replica
        The replica.
    notes
        Which of its registrations say that their part is broken.
    """
    turn: MendTurn = yield AwaitLacking(notes)
    left = (yield from _mend(replica, turn)) if turn.parts else ()
    return Then(tell, (replica, notes, _names(left)))


def tell(replica: Replica, notes: BrokenNotes, missing: tuple[str, ...]) -> Stage:
    """Note in the registrations which parts are broken here, and which are no more.

    Parameters
    ----------
    replica, notes
        As for `mend`.
    missing
        The parts that this round has looked for in vain.
    """
    turn: TellTurn | None = yield Telling(missing)
    if turn is None:
        return Then(mend, (replica, notes))
    noted = set(notes.parts if notes.epoch == turn.epoch else (yield from lost.noted_broken(replica)))
    for name in sorted(noted.difference(turn.lacking)):
        if (yield from _is_noted(lost.note_whole(replica, turn.epoch, parse_part(name)))):
            noted.discard(name)
    for name in turn.given_up:
        if (yield from _is_noted(lost.note_broken(replica, turn.epoch, parse_part(name)))):
            noted.add(name)
    return Then(mend, (replica, BrokenNotes(turn.epoch, tuple(sorted(noted)))))


def declare(replica: Replica, part: str, is_again: bool = False) -> Stage:
    """Declare a part lost, if no replica can have it.

    Parameters
    ----------
    replica, part
        The replica, and a part that it can't get.
    is_again
        This process has tried before.
    """
    loss: Loss = yield AwaitLoss(part, is_again)
    place = Replica(replica.table.below(loss.parent), replica.name)
    outcome = yield from lost.declare_lost(place, loss.epoch, parse_part(part), loss.empty, loss.schema_version)
    if isinstance(outcome, Unnoticed):
        yield AskReload()
    return Then(declare, (replica, part, True), outcome)


def _mend(replica: Replica, turn: MendTurn) -> Generator[Any, Any, tuple[PartContent, ...]]:
    """Make parts whole, and show these; return those that can't be had."""
    wanted = yield from _as_registered(replica, turn.parts)
    left = _without(wanted, (yield PutBack(wanted)))
    if left:
        still = yield from fetch.refetch(replica, left)
        left = tuple(each for each in left if each[0] in still)
    sought: tuple[PartContent, ...] = yield SeekShares(left)
    if sought:
        left = _without(left, (yield TakeFromStore(sought, (yield from _marked(turn.sharer, sought)))))
    sought = yield SeekFiles(left)
    if sought:
        left = _without(left, (yield WriteAnew(sought, (yield from _marked(turn.sharer, sought)))))
    whole = _names((yield from _not_overtaken(replica, _without(wanted, _names(left)))))
    if whole and turn.sharer is not None:
        gone = yield from owning.own_again(turn.sharer, whole)
        whole = tuple(name for name in whole if name not in gone)
    if whole:
        yield WholeAgain(whole)
    due: tuple[PartContent, ...] = yield AskAgain(left)
    if due:
        # The replicas verify their own that have registered a part and did not send it: they may have copies.
        others = yield from fetch.others_of(replica)
        sources = yield from fetch.sources_of(replica, tuple(FetchPart(name, content, ()) for name, content in due))
        yield HaveChecked(due, tuple(other.name for other in others), tuple(sources.values()))
    return left


def _as_registered(replica: Replica, parts: tuple[PartContent, ...]) -> Generator[Any, Any, tuple[PartContent, ...]]:
    """Return parts with their registered content.

    A lost part, and what was made of it, gets other content under its name; the answer to that commit may have been lost.
    """
    contents = yield from lost.registered_contents(replica, _names(parts))
    return tuple((name, contents.get(name, content)) for name, content in parts)


def _marked(sharer: Sharer | None, parts: tuple[PartContent, ...]) -> Generator[Any, Any, MarkedShares]:
    """Return the shares with marks of parts."""
    # This takes one request for each share of the table, so only parts that no replica sends come here.
    return () if sharer is None else tuple(sorted((yield from own_marks.marked_shares(sharer, _names(parts))).items()))


def _not_overtaken(replica: Replica, whole: tuple[PartContent, ...]) -> Generator[Any, Any, tuple[PartContent, ...]]:
    """Take those out again that a log entry has made empty meanwhile, or is about to; return the others."""
    if not whole:
        return ()
    # The queue is read first: an entry leaves it only after the commit that changes the registration, so one of the two reads
    # shows what an executor has published before.  What it publishes later replaces the old content.  The empty part itself
    # stays: its entry is in the queue until the executor has given it back.
    losing: tuple[PartContent, ...] = yield Losing()
    registered = yield from _as_registered(replica, whole)
    kept = tuple(each for each in whole if each in registered and (each[0] not in _names(losing) or each in losing))
    overtaken = tuple(each for each in whole if each not in kept)
    if overtaken:
        yield TakeOut(overtaken)
    return kept


def _is_noted(note: Procedure[NoteOutcome]) -> Generator[Any, Any, bool]:
    """Change a note; return whether it was changed."""
    outcome = yield from note
    # A note that may still change is settled by a new epoch, under which all notes are read again.
    if outcome is NoteOutcome.UNKNOWN:
        yield ReportTrouble()
    return outcome is NoteOutcome.DONE


def _names(parts: tuple[PartContent, ...]) -> tuple[str, ...]:
    return tuple(name for name, _ in parts)


def _without(parts: tuple[PartContent, ...], names: Container[str]) -> tuple[PartContent, ...]:
    return tuple(each for each in parts if each[0] not in names)


__all__ = ["declare", "mend", "tell"]
