"""Models of accepted losses of other things than entries: zero entries, snapshots and their blobs, references, hidden damage.

As in `losses`, the third member has none of what the first leader stored.
"""

from __future__ import annotations

from functools import partial

from replitree.tablet.group.ids import BlobId, Generation, Step, log_entry
from replitree_verify.tablets.drafts import body_id
from replitree_verify.tablets.model import OPERATOR, TABLET, Kind, Model, Seat
from replitree_verify.tablets.models.losses import LATER
from replitree_verify.world.faults import Fault

P, R, W = Kind.PLAIN, Kind.REFERENCE, Kind.STATE


def entry(generation: int, step: int) -> BlobId:
    """Return the id of an entry; step 0: the zero entry."""
    return log_entry(TABLET, Generation(generation), Step(step))


def both(*blobs: BlobId) -> tuple[tuple[int, BlobId], ...]:
    """Return the copies of blobs on the two members that have them."""
    return tuple((number, blob) for number in (0, 1) for blob in blobs)


FIRST, SECOND = Seat(1, (P, P)), Seat(2, (P, P))
SNAPSHOT = Seat(1, (P, W, P))
REFERRING = Seat(1, (R, R, P))
PLAIN = Seat(1, (P, P, P))

_lost = partial(Model, aftermath=True)
# A second leader has restored on the third member what it found in the tail of the first.
_zero = partial(_lost, prelude=2, spoiled=both(entry(2, 0)))
_state = partial(_lost, prelude=3, collects=True, spoiled=both(body_id(1, 2)))
_reference = partial(_lost, prelude=3, spoiled=((0, body_id(1, 1)), *both(body_id(1, 2))))
_hidden = partial(_lost, prelude=3)

_ZEROS = (
    _zero(
        "loss_zero",
        "the zero entry of the second generation is lost: it is not known what it follows, and nothing stays",
        (FIRST, SECOND, OPERATOR, Seat(LATER, (P,))),
        relay=1,
        probes=("loss seen", "loss accepted", "not elected", "refused"),
    ),
    _zero(
        "loss_zero_snapshot",
        "the same after a snapshot, which stays",
        (Seat(1, (P, W)), Seat(2, (P,)), OPERATOR, Seat(LATER, (P,))),
        relay=1,
        probes=("loss accepted", "accepted", "not elected", "refused"),
    ),
    _lost(
        "loss_zero_first",
        "the zero entry of the first generation is lost, which can be told without it; an entry after it is, too",
        (PLAIN, OPERATOR, Seat(LATER, (P,))),
        prelude=3,
        spoiled=both(entry(1, 0), entry(1, 2)),
        probes=("loss accepted", "accepted", "not elected", "refused"),
    ),
    _lost(
        "loss_zero_rot",
        "two leaders have led; any two copies are damaged meanwhile, of zero entries, too",
        (Seat(1, (P,)), Seat(2, (P,)), OPERATOR, Seat(LATER)),
        prelude=1,
        relay=1,
        faults={Fault.ROT: 2},
        rots_zeros=True,
        probes=("loss seen", "loss accepted", "accepted", "not elected", "refused", "rot"),
    ),
)

_SNAPSHOTS = (
    _state(
        "loss_snapshot",
        "the entry of a snapshot is lost, and the log is collected up to it",
        (SNAPSHOT, OPERATOR, Seat(LATER, (P,))),
        spoiled=both(entry(1, 2)),
        probes=("loss seen", "loss accepted", "not elected", "refused", "late arrival"),
    ),
    _state(
        "loss_state",
        "the blob that a snapshot refers to is lost, and the log is collected up to the snapshot",
        (SNAPSHOT, OPERATOR, Seat(LATER)),
        probes=("loss seen", "loss accepted", "accepted", "refused", "late arrival"),
    ),
    _state(
        "loss_state_serving",
        "the same, nothing is collected, and the leader, which needs no snapshot, commits until it is passed over",
        (Seat(1, (P, W, P, P)), OPERATOR, Seat(LATER)),
        collects=False,
        in_turn=True,
        aftermath=False,
        probes=("loss accepted", "refused", "deposed"),
    ),
    _state(
        "loss_state_rot",
        "the blob that a snapshot refers to is lost, and more is damaged: maybe no member knows that the snapshot counted",
        (SNAPSHOT, OPERATOR),
        faults={Fault.ROT: 1},
        probes=("loss seen", "loss accepted", "refused", "rot", "late arrival"),
    ),
    _state(
        "loss_state_faults",
        "the same, nothing is collected; the operator, or a candidate, dies, and an answer is lost",
        (SNAPSHOT, OPERATOR, Seat(LATER)),
        collects=False,
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("loss accepted", "accepted", "refused"),
    ),
    _state(
        "store_loss_state",
        "the blob that a snapshot refers to is lost on an object store",
        (SNAPSHOT, OPERATOR, Seat(LATER)),
        spoiled=((0, body_id(1, 2)),),
        faults={Fault.UNKNOWN: 1},
        on_store=True,
        members=1,
        write=1,
        probes=("loss accepted", "accepted", "refused"),
    ),
)

_REFERENCES = (
    _reference(
        "loss_reference",
        "a blob that an entry refers to is lost, and of the one before there is one copy",
        (REFERRING, OPERATOR, Seat(LATER, (P,))),
        probes=("loss seen", "loss accepted", "accepted", "refused"),
    ),
    _reference(
        "loss_reference_serving",
        "the same, and the leader commits until it is passed over",
        (Seat(1, (R, R, P, P)), OPERATOR, Seat(LATER)),
        in_turn=True,
        probes=("loss accepted", "accepted", "refused", "deposed"),
    ),
    _reference(
        "loss_reference_away",
        "one copy of that blob is left, on a member that may be away; and one copy of anything is damaged",
        (REFERRING, OPERATOR, Seat(LATER)),
        spoiled=((0, body_id(1, 2)),),
        faults={Fault.SILENT: 1, Fault.ROT: 1},
        probes=("loss accepted", "accepted", "refused", "away", "rot"),
    ),
)

_HIDDEN = (
    _hidden(
        "loss_hidden",
        "two members can't tell any more that they had an entry: nothing can be given up, and no candidate leads",
        (PLAIN, OPERATOR, Seat(LATER)),
        hidden=tuple((number, entry(1, 2), entry(1, 2)) for number in (0, 1)),
        probes=("not elected", "refused"),
    ),
    _hidden(
        "loss_hidden_one",
        "one member can't tell that it had an entry, and the other copy is damaged: that one is lost",
        (PLAIN, OPERATOR, Seat(LATER, (P,))),
        hidden=((0, entry(1, 2), entry(1, 2)),),
        spoiled=((1, entry(1, 2)),),
        probes=("loss seen", "loss accepted", "accepted", "not elected", "refused"),
    ),
    _hidden(
        "loss_hidden_rot",
        "the same; of what is damaged meanwhile a member may not be able to tell what it was",
        (PLAIN, OPERATOR, Seat(LATER)),
        hidden=((0, entry(1, 2), entry(1, 2)),),
        faults={Fault.ROT: 2},
        hides=True,
        probes=("loss seen", "loss accepted", "accepted", "not elected", "refused", "rot", "hidden"),
    ),
    _hidden(
        "loss_hidden_away",
        "one member can't tell that it had an entry, and any may be away: only what can be told is given up",
        (PLAIN, OPERATOR, Seat(LATER)),
        hidden=((0, entry(1, 2), entry(1, 2)),),
        spoiled=((1, entry(1, 2)),),
        faults={Fault.SILENT: 1},
        probes=("loss seen", "loss accepted", "accepted", "not elected", "refused", "away"),
    ),
)

_NOBODY_ASKS = (
    Model(
        "damaged_hidden",
        "a member can't tell any more that it had an entry that counts, others may be away: it is found, or no candidate leads",
        (Seat(1, (P, P)), Seat(2), Seat(3)),
        prelude=2,
        hidden=((0, entry(1, 2), entry(1, 2)),),
        faults={Fault.SILENT: 1},
        in_turn=True,
        probes=("accepted", "not elected", "away"),
    ),
)

LOST_BLOB_MODELS = (*_NOBODY_ASKS, *_ZEROS, *_SNAPSHOTS, *_REFERENCES, *_HIDDEN)
