"""What must stay of a log when an operator accepts a loss, told from what clients and leaders know, not from the log.

* L5: what stays is a state that there has been, and the last one before anything that can't be read.  A zero entry that is lost
  takes everything since the last snapshot with it, because it is not known what it follows; that of the first
  generation takes nothing, because nothing is before it.  A snapshot that is lost takes everything.
* L6: while so many members can't tell what their damaged data was that they could have stored something, nothing is lost for
  sure
* L7: what stays can be read, with all that it refers to, on enough members; and so can everything when no loss is found
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replitree.tablet.core.losses import Assessment
from replitree.tablet.group.ids import LOG, NOTHING, BlobId, Generation, Step, first_of, log_entry
from replitree.tablet.group.member import Holdings, visible_doubts
from replitree.tablet.group.quorum import end_of
from replitree_verify.tablets.damage import can_be_read
from replitree_verify.tablets.drafts import body_id
from replitree_verify.tablets.model import TABLET, Kind, Model

Place = tuple[int, int]
Places = tuple[Place, ...]

_SNAPSHOTS = (Kind.SNAPSHOT, Kind.TOTAL, Kind.STATE)
_WITH_BODY = (Kind.REFERENCE, Kind.STATE)


@dataclass(frozen=True, slots=True)
class Truth:
    """What counts for sure: every entry up to the last one that was acknowledged, in order; and the last generation."""

    model: Model
    history: Places
    last: int

    def is_snapshot(self, place: Place) -> bool:
        """Whether a leader committed a snapshot there."""
        return kind_of(self.model, place) in _SNAPSHOTS

    @property
    def base(self) -> Place:
        """The last snapshot, or the begin."""
        return max((place for place in self.history if self.is_snapshot(place)), default=(0, 0))

    @property
    def since(self) -> Places:
        """What counts since the last snapshot, with it."""
        return tuple(place for place in self.history if place >= self.base)


def kind_of(model: Model, place: Place) -> Kind:
    """Return what was committed at a place."""
    found = [seat.commits for seat in model.seats if seat.generation == place[0] and not seat.is_operator]
    return next(commits[place[1] - 1] for commits in found if len(commits) >= place[1])


def truth_of(model: Model, acked: Places, elected: Sequence[tuple[int, Places]], gone: frozenset[Place]) -> Truth:
    """Return what counts: what the last leader found, what its snapshot took in, and what it has acknowledged.

    Parameters
    ----------
    model
        What is explored.
    acked, elected
        As of the state.
    gone
        What operators have given up.
    """
    last, found = max(elected)
    base = found[0] if found and kind_of(model, found[0]) in _SNAPSHOTS else (0, 0)
    # What earlier leaders have acknowledged was found by the last one, or is in its snapshot.
    known = {place for place in acked if place[0] == last or place < base} - gone
    return Truth(model, tuple(sorted({*found, *known})), last)


def broken_state(truth: Truth, kept: Sequence[Place]) -> str | None:
    """L5: return why what stays is no state that there has been, or None."""
    if not kept:
        return None
    known = [place for place in kept if place in truth.history]
    begin = truth.history.index(known[0]) if known else 0
    # Entries change a state: without all before them only a snapshot says what the state was.
    is_begin = begin == 0 or truth.is_snapshot(kept[0])
    rest = truth.history[begin + len(known) :] if tuple(kept) != tuple(known) else ()
    if not is_begin or rest or tuple(known) != truth.history[begin : begin + len(known)]:
        return f"L5: {list(kept)} would stay of {list(truth.history)}, which never was a state"
    return None


def broken_choice(truth: Truth, found: Assessment, asked: Sequence[Holdings]) -> str | None:
    """Return what is wrong with what an operator is shown, who has heard of these members."""
    kept = tuple((int(place[0]), int(place[1])) for place, _ in found.accepted)
    broken = broken_state(truth, kept)
    if broken is not None:
        return broken
    # The first generation follows none, and a snapshot replaces what is before it: these do without their zero entries.
    zeros = {place[0] for place in truth.since} - {1, truth.base[0]}
    # A zero entry says what its leader accepted of earlier generations: without it only the snapshot counts for sure.
    is_lost = any(not _is_readable(asked, log_entry(TABLET, Generation(each), Step(0))) for each in zeros)
    readable: Places = ()
    for place in truth.since:
        # Up to the first that can't be read, with all that it takes to know it.
        if (is_lost and place != truth.base) or any(not _is_readable(asked, blob) for blob in blobs_at(truth, place)):
            break
        readable += (place,)
    if not set(readable) <= set(kept):
        return f"L5: {list(kept)} would stay, and {list(readable)} can be read"
    if not found.unreadable and readable != truth.since:
        return f"L7: no loss is found, and of {list(truth.since)} only {list(readable)} can be read"
    return None


def is_opening(truth: Truth, asked: Sequence[Holdings]) -> bool:
    """Whether a candidate after the last leader was about to store a zero entry: if it is found, it counts."""
    return any(blob.channel == LOG and blob.generation > truth.last for each in asked for blob in each.names)


def blobs_at(truth: Truth, place: Place) -> tuple[BlobId, ...]:
    """Return the entry at a place, and what it refers to."""
    blob = log_entry(TABLET, Generation(place[0]), Step(place[1]))
    return (blob, body_id(*place)) if kind_of(truth.model, place) in _WITH_BODY else (blob,)


def _is_readable(asked: Sequence[Holdings], blob: BlobId) -> bool:
    return any(can_be_read(each, blob) for each in asked)


def broken_copies(truth: Truth, kept: Sequence[Place], held: Sequence[Holdings], write: int) -> str | None:
    """L7: return which blob of what stays too few members have whole, or None."""
    for place in kept:
        for blob in blobs_at(truth, place):
            if sum(can_be_read(each, blob) for each in held) < write:
                return f"L7: {place} stays, and {blob} can be read on too few members"
    return None


def are_unsure(model: Model, held: Sequence[Holdings], present: Sequence[int]) -> bool:
    """L6: whether so many members are away, or can't tell what of the log they had, that they could have stored something."""
    first = first_of(TABLET, LOG, NOTHING)
    unsure = sum(
        number not in present or bool(visible_doubts(each, each.doubts, first, end_of(first)))
        for number, each in enumerate(held)
    )
    return unsure >= model.write
