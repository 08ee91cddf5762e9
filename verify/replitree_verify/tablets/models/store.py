"""Models of tablets on an object store."""

from __future__ import annotations

from functools import partial

from replitree_verify.tablets.model import Kind, Model, Seat
from replitree_verify.world.faults import Fault

P, R, S, L = Kind.PLAIN, Kind.REFERENCE, Kind.SNAPSHOT, Kind.READ

# The store is the only member; the requests of a question are at once each, not together.
_on_store = partial(Model, on_store=True, members=1, write=1)

STORE_MODELS = (
    _on_store(
        "store_take_over",
        "a leader stores and looks at the fence while another one raises it and lists; objects come late, answers get lost",
        (Seat(1, (P, P)), Seat(2, (P,))),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("accepted", "declined", "deposed", "late arrival"),
    ),
    _on_store(
        "store_away",
        "the store can't be reached for a while, and what was asked of it comes later",
        (Seat(1, (P,)), Seat(2, (P,))),
        faults={Fault.SILENT: 2},
        aftermath=True,
        probes=("accepted", "in doubt", "late arrival", "not elected", "away"),
    ),
    _on_store(
        "store_three",
        "a candidate is overtaken before its zero entry, which comes late",
        (Seat(1, (P,)), Seat(2), Seat(3)),
        faults={Fault.CRASH: 1},
        probes=("accepted", "not elected", "late arrival"),
    ),
    _on_store(
        "store_any_order",
        "two candidates of which either may begin",
        (Seat(1), Seat(2)),
        ahead=False,
        faults={Fault.UNKNOWN: 1},
        probes=("not elected",),
    ),
    _on_store(
        "store_same_generation",
        "two candidates for one generation, and a lost answer",
        (Seat(1), Seat(2), Seat(2)),
        faults={Fault.UNKNOWN: 1},
        probes=("not elected",),
    ),
    _on_store(
        "store_references",
        "an entry whose body is a blob of its own",
        (Seat(1, (R,)), Seat(2)),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("accepted", "declined"),
    ),
    _on_store(
        "store_collected",
        "the log is collected while another leader takes over, and deleted objects come again",
        (Seat(1, (P, S)), Seat(2)),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        collects=True,
        aftermath=True,
        probes=("accepted", "late arrival"),
    ),
    _on_store(
        "store_collected_later",
        "a candidate lists while the next leader makes a snapshot and deletes what the candidate would read",
        (Seat(1, (P,)), Seat(2), Seat(3, (S,))),
        collects=True,
        probes=("not elected", "accepted"),
    ),
    _on_store(
        "store_reads",
        "clients read from a leader while another one takes over and commits",
        (Seat(1, (P, L)), Seat(2, (P,))),
        faults={Fault.UNKNOWN: 1},
        probes=("read", "read refused"),
    ),
    _on_store(
        "store_complete",
        "two candidates with two commits each; a crash, a lost answer, and a store that can't be reached for a while",
        (Seat(1, (P, P)), Seat(2, (P, P))),
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.SILENT: 1},
        probes=("accepted", "declined", "deposed", "in doubt", "late arrival", "away"),
    ),
)
