"""The models of tablets."""

from __future__ import annotations

from replitree_verify.tablets.model import Kind, Model, Seat
from replitree_verify.tablets.models.data import DATA_MODELS
from replitree_verify.tablets.models.losses import LOSS_MODELS
from replitree_verify.tablets.models.lost_blobs import LOST_BLOB_MODELS
from replitree_verify.tablets.models.store import STORE_MODELS
from replitree_verify.world.faults import Fault

P, R, F, S, T = Kind.PLAIN, Kind.REFERENCE, Kind.FREE, Kind.SNAPSHOT, Kind.TOTAL
L = Kind.READ

_MODELS = (
    Model(
        "take_over",
        "a leader commits while another one takes over; a member is away for a while",
        (Seat(1, (P,)), Seat(2)),
        faults={Fault.SILENT: 1},
        probes=("accepted", "deposed", "late acknowledgement", "late arrival", "away"),
    ),
    Model(
        "take_over_twice_away",
        "the same, and members are away for other questions than before",
        (Seat(1, (P,)), Seat(2)),
        faults={Fault.SILENT: 2},
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
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
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
        faults={Fault.SILENT: 1},
        in_turn=True,
        probes=("accepted", "late acknowledgement"),
    ),
    Model(
        "repeated_pair",
        "the same, with an entry before it that counts",
        (Seat(1, (P, P)), Seat(2), Seat(3)),
        faults={Fault.SILENT: 1},
        in_turn=True,
        prelude=1,
        probes=("accepted", "late acknowledgement"),
    ),
    Model(
        "failing",
        "a leader that does not know what became of its entry",
        (Seat(1, (P, P)),),
        faults={Fault.UNKNOWN: 1, Fault.SILENT: 1},
        probes=("in doubt",),
    ),
    Model(
        "free_three",
        "entries that do not depend on each other, committed in any order",
        (Seat(1, (F, F, F)),),
    ),
    Model(
        "generations_left_out",
        "a generation that no candidate ever led",
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
        faults={Fault.SILENT: 2},
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
        faults={Fault.SILENT: 1, Fault.ROT: 1},
        probes=("accepted", "not elected", "rot"),
    ),
    Model(
        "damaged_confirmed",
        "one copy of an entry that counts becomes unreadable, and the others are read",
        (Seat(1, (P, P)), Seat(2), Seat(3)),
        in_turn=True,
        prelude=2,
        faults={Fault.ROT: 1},
        probes=("accepted", "rot"),
    ),
    Model(
        "reads",
        "clients read from a leader while another one takes over and commits",
        (Seat(1, (P, L)), Seat(2, (P,))),
        probes=("read", "read refused", "accepted"),
    ),
    Model(
        "deposed",
        "a leader that commits when another one leads already",
        (Seat(1, (P,), after=2), Seat(2)),
        faults={Fault.SILENT: 1},
        probes=("deposed", "late arrival"),
    ),
    Model(
        "successor",
        "a successor that nothing disturbs, after whatever has happened to a leader and the next one",
        (Seat(1, (P,)), Seat(2)),
        faults={Fault.CRASH: 1},
        aftermath=True,
        probes=("accepted", "late arrival"),
    ),
    Model(
        "successor_collected",
        "the same, after a snapshot and the collection of what it replaces",
        (Seat(1, (P, S)),),
        faults={Fault.CRASH: 1},
        collects=True,
        aftermath=True,
        probes=("late arrival",),
    ),
    Model(
        "snapshot_named",
        "entries after a snapshot",
        (Seat(1, (S, P, P)),),
    ),
    Model(
        "total_snapshot_named",
        "an entry after a snapshot that needs nothing before it",
        (Seat(1, (P, T, P)),),
    ),
    Model(
        "any_order",
        "two candidates of which either may begin",
        (Seat(1), Seat(2)),
        ahead=False,
        probes=("not elected",),
    ),
    Model(
        "collections",
        "two collections of one leader, which may arrive in any order",
        (Seat(1, (S, S)),),
        collects=True,
        probes=("late arrival",),
    ),
    Model(
        "window",
        "three entries, of which two may be on their way",
        (Seat(1, (F, F, F)),),
        steps_max=2,
    ),
    Model(
        "three_faults",
        "three copies, two candidates with a commit each; a crash, a lost answer, and a member that comes back late",
        (Seat(1, (P,)), Seat(2, (P,))),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.SILENT: 1},
        probes=("accepted", "deposed", "late arrival", "away"),
    ),
    Model(
        "three_faults_pair",
        "the same, and the first candidate has two commits",
        (Seat(1, (P, P)), Seat(2, (P,))),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.SILENT: 1},
        probes=("accepted", "declined", "deposed", "late arrival", "away"),
    ),
    Model(
        "three_faults_both",
        "the same, and both candidates have two commits: ten million states",
        (Seat(1, (P, P)), Seat(2, (P, P))),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.SILENT: 1},
        probes=("accepted", "declined", "deposed", "late arrival", "away"),
    ),
    Model(
        "complete_crash",
        "three copies, two candidates with two commits each, and a crash",
        (Seat(1, (P, P)), Seat(2, (P, P))),
        faults={Fault.CRASH: 1},
        probes=("accepted", "declined", "deposed"),
    ),
    Model(
        "complete_lost",
        "three copies, two candidates with two commits each, and a lost answer",
        (Seat(1, (P, P)), Seat(2, (P, P))),
        faults={Fault.UNKNOWN: 1},
        probes=("accepted", "declined", "deposed"),
    ),
)

MODELS = {model.name: model for model in (*_MODELS, *DATA_MODELS, *STORE_MODELS, *LOSS_MODELS, *LOST_BLOB_MODELS)}
