"""Models of tablets whose data has a group of its own, and of the collection of data."""

from __future__ import annotations

from functools import partial

from replitree_verify.tablets.model import Kind, Model, Seat
from replitree_verify.world.faults import Fault

P, R, S, X = Kind.PLAIN, Kind.REFERENCE, Kind.SNAPSHOT, Kind.STATE
V, C = Kind.LEAVE, Kind.COLLECT

# What a successor would run into is asked at every state: it may miss what was collected too early.
_data = partial(Model, aftermath=True)

DATA_MODELS = (
    _data(
        "two_groups",
        "the log in a group of three, the data in one of two: an entry and its reference, while another leader takes over",
        (Seat(1, (R,)), Seat(2)),
        data_members=2,
        probes=("accepted", "declined", "deposed", "late arrival"),
    ),
    Model(
        "two_groups_of_three",
        "the same with two groups of three",
        (Seat(1, (R,)), Seat(2)),
        data_members=3,
        probes=("accepted", "declined", "deposed", "late arrival"),
    ),
    Model(
        "two_groups_away",
        "the data in a group of two, and a member of either group is away for a while",
        (Seat(1, (R,)), Seat(2)),
        faults={Fault.SILENT: 1},
        data_members=2,
        probes=("accepted", "away", "declined", "in doubt", "not elected"),
    ),
    Model(
        "two_groups_deposed",
        "a leader stores an entry and its reference when another one leads already",
        (Seat(1, (R,), after=2), Seat(2)),
        data_members=2,
        probes=("deposed",),
    ),
    _data(
        "data_tail",
        "entries with references, of which the second leaves what the first has created; the next leader collects",
        (Seat(1, (R, V)), Seat(2, (C,))),
        prelude=1,
        probes=("accepted", "collected", "taken"),
    ),
    _data(
        "data_declined",
        "an entry with a reference is on its way while another leader takes over, which collects",
        (Seat(1, (R, R)), Seat(2, (C,))),
        prelude=1,
        probes=("accepted", "declined", "collected", "taken"),
    ),
    _data(
        "data_left",
        "a leader collects although nothing has taken the place of the entry whose reference a later one left",
        (Seat(1, (R, V, C)), Seat(2)),
        prelude=1,
        probes=("accepted", "collected", "taken"),
    ),
    _data(
        "data_flying",
        "a leader collects while an entry with a reference is on its way",
        (Seat(1, (X, R, C)),),
        prelude=1,
        faults={Fault.CRASH: 1},
        probes=("collected", "taken"),
    ),
    _data(
        "data_state",
        "a snapshot takes the place of another one, as in a running tablet, and what that had is collected",
        (Seat(1, (X, C, X, C)),),
        prelude=2,
        faults={Fault.CRASH: 1},
        probes=("collected", "taken", "synced"),
    ),
    _data(
        "data_state_taken_over",
        "what a snapshot had is collected, when another one has taken its place, while another leader takes over and collects",
        (Seat(1, (X, X, C)), Seat(2, (C,))),
        prelude=2,
        probes=("accepted", "collected", "taken", "not taken"),
    ),
    _data(
        "data_again",
        "a snapshot that is not total says again what is needed, and the next leader collects",
        (Seat(1, (R, S, C)), Seat(2, (C,))),
        prelude=2,
        probes=("accepted", "collected", "taken"),
    ),
    _data(
        "store_data",
        "the data is collected on an object store while another leader takes over and collects; an answer is lost",
        (Seat(1, (X, C, X, C)), Seat(2, (C,))),
        prelude=3,
        faults={Fault.UNKNOWN: 1},
        members=1,
        write=1,
        on_store=True,
        probes=("accepted", "collected", "not taken", "taken"),
    ),
    _data(
        "two_groups_both_collect",
        "as data_state_taken_over, and the data has a group of its own: the leader and a deposed one collect there",
        (Seat(1, (X, X, C)), Seat(2, (C,))),
        prelude=2,
        data_members=2,
        probes=("accepted", "collected", "late arrival", "not taken", "taken"),
    ),
    _data(
        "data_both_collect",
        "as data_state_taken_over, and an answer is lost: to the leader, or to the deposed one, while both collect",
        (Seat(1, (X, X, C)), Seat(2, (C,))),
        prelude=2,
        faults={Fault.UNKNOWN: 1},
        probes=("accepted", "collected", "late arrival", "not taken", "taken"),
    ),
    _data(
        "two_groups_collected",
        "the data has a group of its own, and is collected there",
        (Seat(1, (X, C, X, C)),),
        prelude=2,
        faults={Fault.CRASH: 1},
        data_members=2,
        probes=("collected", "taken"),
    ),
)
