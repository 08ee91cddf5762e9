"""Models of accepted losses: a leader has committed three entries on two members of three, and copies of them get damaged.

The third member has none of them.  An operator names who is away when it begins, looks, and agrees at any time later, or never.
"""

from __future__ import annotations

from functools import partial

from replitree.tablet.group.ids import Generation, Step, log_entry
from replitree_verify.tablets.model import OPERATOR, TABLET, Kind, Model, Seat
from replitree_verify.world.faults import Fault

P = Kind.PLAIN

FIRST, SECOND = (log_entry(TABLET, Generation(1), Step(step)) for step in (1, 2))

LOST = ((0, SECOND), (1, SECOND))
"""The second entry is lost; the first one stays, and the third one is given up although it can be read."""

WEAK = ((0, SECOND),)
"""One copy of the second entry is left."""

THIN = ((0, FIRST), (0, SECOND), (1, SECOND))
"""The second entry is lost, and one copy of the first one is left."""

LEADER, SERVING = Seat(1, (P, P, P)), Seat(1, (P, P, P, P))

LATER = 8
"""A generation above those that operators choose, unless they come after it."""

# With `aftermath` an operator that nothing disturbs is tried out at every state (L4): a model needs a candidate only for what
# may happen meanwhile.
_lost = partial(Model, prelude=3, aftermath=True, spoiled=LOST)

LOSS_MODELS = (
    _lost(
        "loss",
        "an entry that was confirmed is lost; an operator accepts that, then a candidate leads and commits",
        (LEADER, OPERATOR, Seat(LATER, (P,))),
        in_turn=True,
        probes=("loss seen", "loss accepted", "accepted", "late arrival"),
    ),
    _lost(
        "loss_thin",
        "the same, and of what stays there is one copy",
        (LEADER, OPERATOR, Seat(LATER, (P,))),
        spoiled=THIN,
        in_turn=True,
        probes=("loss accepted", "accepted"),
    ),
    _lost(
        "loss_candidate",
        "a candidate recovers while an operator accepts, before or after; it commits if it leads",
        (LEADER, OPERATOR, Seat(LATER, (P,))),
        probes=("loss seen", "loss accepted", "accepted", "not elected", "refused"),
    ),
    _lost(
        "loss_serving",
        "the leader does not know of the loss, and commits until it is passed over",
        (SERVING, OPERATOR, Seat(LATER)),
        in_turn=True,
        aftermath=False,
        probes=("loss accepted", "accepted", "refused", "deposed"),
    ),
    _lost(
        "loss_away",
        "the member with the last copy is away for a while: the operator names it by mistake, or misses its answer",
        (LEADER, OPERATOR, Seat(LATER)),
        spoiled=WEAK,
        faults={Fault.SILENT: 1},
        probes=("loss accepted", "accepted", "not elected", "refused", "away"),
    ),
    _lost(
        "loss_away_serving",
        "the same while the leader commits, and reaches whom the operator has named",
        (SERVING, OPERATOR),
        spoiled=WEAK,
        faults={Fault.SILENT: 1},
        probes=("loss accepted", "refused", "deposed", "late acknowledgement", "away"),
    ),
    _lost(
        "loss_twice",
        "two operators accept at once",
        (LEADER, OPERATOR, OPERATOR),
        probes=("loss accepted", "refused"),
    ),
    _lost(
        "loss_again",
        "two operators, one after the other, and more is damaged meanwhile: the second may accept another loss",
        (LEADER, OPERATOR, OPERATOR, Seat(LATER)),
        faults={Fault.ROT: 2},
        in_turn=True,
        probes=("loss accepted", "accepted", "refused", "rot"),
    ),
    _lost(
        "loss_rot",
        "more is damaged while the operator looks, or thinks, and a candidate recovers",
        (LEADER, OPERATOR, Seat(LATER)),
        faults={Fault.ROT: 1},
        probes=("loss accepted", "accepted", "not elected", "refused", "rot"),
    ),
    _lost(
        "loss_faults",
        "the operator, or the candidate, dies at any step, and an answer is lost",
        (LEADER, OPERATOR, Seat(LATER)),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("loss accepted", "accepted", "not elected", "refused", "late arrival"),
    ),
    _lost(
        "loss_serving_candidate",
        "a leader that serves, an operator, and a candidate, all at once",
        (SERVING, OPERATOR, Seat(LATER)),
        probes=("loss accepted", "accepted", "not elected", "refused", "deposed"),
    ),
    _lost(
        "loss_complete",
        "a leader that serves and an operator, with one copy left: a member that may be away, damage, a crash, a lost answer",
        (SERVING, OPERATOR),
        spoiled=WEAK,
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.SILENT: 1, Fault.ROT: 1},
        probes=("loss accepted", "refused", "deposed", "late acknowledgement", "away", "rot"),
    ),
    _lost(
        "loss_away_candidate",
        "an operator and a candidate that commits, with one copy left, a member that may be away, and more damage",
        (LEADER, OPERATOR, Seat(LATER, (P,))),
        spoiled=WEAK,
        faults={Fault.SILENT: 1, Fault.ROT: 1},
        probes=(
            "loss accepted",
            "accepted",
            "not elected",
            "refused",
            "deposed",
            "late acknowledgement",
            "away",
            "rot",
        ),
    ),
    _lost(
        "loss_twice_away",
        "two operators at once, with one copy left, a member that may be away, and more damage",
        (LEADER, OPERATOR, OPERATOR),
        spoiled=WEAK,
        faults={Fault.SILENT: 1, Fault.ROT: 1},
        probes=("loss accepted", "refused", "away", "rot"),
    ),
    _lost(
        "store_loss",
        "an entry is damaged on an object store, and an operator accepts that while a candidate recovers; an answer is lost",
        (LEADER, OPERATOR, Seat(LATER, (P,))),
        spoiled=WEAK,
        faults={Fault.UNKNOWN: 1},
        on_store=True,
        members=1,
        write=1,
        probes=("loss accepted", "accepted", "not elected", "refused"),
    ),
)
