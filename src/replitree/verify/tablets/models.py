"""The models of tablets."""

from __future__ import annotations

from replitree.verify.tablets.model import Kind, Model, Seat

P, R, F, S, T = Kind.PLAIN, Kind.REFERENCE, Kind.FREE, Kind.SNAPSHOT, Kind.TOTAL

_MODELS = (
    Model(
        "take_over",
        "a leader commits while another one takes over; a member is away for a while",
        (Seat(1, (P,)), Seat(2)),
        away=1,
        probes=("accepted", "deposed", "late acknowledgement", "late arrival", "away"),
    ),
    Model(
        "take_over_twice_away",
        "the same, and members are away for other questions than before",
        (Seat(1, (P,)), Seat(2)),
        away=2,
        probes=("accepted", "not elected", "in doubt"),
    ),
    Model(
        "pipeline",
        "two entries on their way at once while another leader takes over",
        (Seat(1, (P, P)), Seat(2)),
        probes=("accepted", "declined", "deposed"),
    ),
    Model(
        "lost_answers",
        "answers are lost, a leader dies, and the next one commits",
        (Seat(1, (P,)), Seat(2, (P,))),
        crashes=1,
        lost=1,
        probes=("accepted", "late arrival"),
    ),
    Model(
        "references",
        "an entry whose body is a blob of its own, stored together with it",
        (Seat(1, (R,)), Seat(2)),
        probes=("accepted", "declined", "deposed"),
    ),
    Model(
        "free_entries",
        "entries that do not depend on each other, and two leaders after",
        (Seat(1, (F, F)), Seat(2), Seat(3)),
        in_turn=True,
        probes=("accepted",),
    ),
    Model(
        "repeated",
        "what the second leader declined the third one declines, wherever it looks",
        (Seat(1, (P,)), Seat(2), Seat(3)),
        away=1,
        in_turn=True,
        probes=("accepted", "late acknowledgement"),
    ),
    Model(
        "repeated_pair",
        "the same, with an entry before it that counts",
        (Seat(1, (P, P)), Seat(2), Seat(3)),
        away=1,
        in_turn=True,
        prelude=1,
        probes=("accepted", "late acknowledgement"),
    ),
    Model(
        "failing",
        "a leader that does not know what became of its entry",
        (Seat(1, (P, P)),),
        lost=1,
        away=1,
        probes=("in doubt",),
    ),
    Model(
        "free_three",
        "entries that do not depend on each other, committed in any order",
        (Seat(1, (F, F, F)),),
    ),
    Model(
        "generations_left_out",
        "a generation that nobody ever led",
        (Seat(1, (P,)), Seat(3), Seat(4)),
        in_turn=True,
        probes=("accepted",),
    ),
    Model(
        "same_generation",
        "two candidates for one generation",
        (Seat(1), Seat(2), Seat(2)),
        probes=("not elected",),
    ),
    Model(
        "same_generation_of_two",
        "two candidates for the first generation, in a group of two members",
        (Seat(1), Seat(1)),
        ahead=False,
        away=2,
        members=2,
        write=2,
        probes=("not elected", "away"),
    ),
    Model(
        "snapshot_collected",
        "the log is collected up to a snapshot while another leader takes over",
        (Seat(1, (P, S)), Seat(2)),
        collects=True,
        probes=("accepted", "declined", "late arrival"),
    ),
    Model(
        "total_snapshot",
        "a snapshot that needs nothing before it, over entries that may be missing",
        (Seat(1, (P, T)), Seat(2)),
        collects=True,
        probes=("accepted",),
    ),
    Model(
        "damaged",
        "an entry becomes unreadable on one member",
        (Seat(1, (P,)), Seat(2)),
        away=1,
        rots=True,
        probes=("accepted", "not elected", "rot"),
    ),
    Model(
        "complete_crash",
        "three copies, two candidates with two commits each, and a crash",
        (Seat(1, (P, P)), Seat(2, (P, P))),
        crashes=1,
        probes=("accepted", "declined", "deposed"),
        nightly=True,
    ),
    Model(
        "complete_lost",
        "three copies, two candidates with two commits each, and a lost answer",
        (Seat(1, (P, P)), Seat(2, (P, P))),
        lost=1,
        probes=("accepted", "declined", "deposed"),
        nightly=True,
    ),
)

MODELS = {model.name: model for model in _MODELS}
