"""The models of openings."""

from __future__ import annotations

from replitree_verify.openings.model import READ, STORED, Model, Opener
from replitree_verify.world.faults import Fault

_READER = Opener(2, stores=False)

MODELS = (
    Model(
        "opening",
        "a process has the group open, and stores, while another one opens it and reads",
        (Opener(1, ahead=READ), _READER),
    ),
    Model(
        "opening_swapped",
        "the same, and an old copy takes the place of a member at any moment",
        (Opener(1, ahead=READ), _READER),
        faults={Fault.SWAP: 1},
        probes=("acknowledged", "found to have forgotten", "opened again", "opened without one", "read"),
    ),
    Model(
        "opening_after",
        "a blob is acknowledged; then an old copy takes the place of a member, another one is away, and an answer is lost",
        (Opener(1, ahead=STORED), _READER),
        faults={Fault.SWAP: 1, Fault.SILENT: 1, Fault.UNKNOWN: 1},
        probes=("answer lost", "gives up", "opened without one", "read"),
    ),
    Model(
        "opening_foreign",
        "the same, and the directory of another group takes the place of the member",
        (Opener(1, ahead=STORED), _READER),
        faults={Fault.SWAP: 1, Fault.SILENT: 1, Fault.UNKNOWN: 1},
        is_foreign=True,
        probes=("opened without one", "read"),
    ),
    Model(
        "opening_both",
        "two open the group at once, and one stores",
        (Opener(1), _READER),
    ),
    Model(
        "opening_copied",
        "a copy is made while the group is open, and put back when another process has opened it since",
        (Opener(1, ahead=READ), _READER),
        faults={Fault.SWAP: 1},
        copies=True,
    ),
    Model(
        "opening_readmits",
        "a member that was away is let in again, while an old copy takes the place of another one",
        (Opener(1, ahead=STORED), Opener(2, readmits=True)),
        faults={Fault.SWAP: 1, Fault.SILENT: 1, Fault.UNKNOWN: 1},
    ),
    Model(
        "opening_member_back",
        "a member is let in that was away when a blob was acknowledged; an old copy takes the place of another one",
        (Opener(1, ahead=STORED), Opener(2, readmits=True)),
        faults={Fault.SWAP: 1, Fault.UNKNOWN: 1},
        absent=2,
        probes=("acknowledged", "found to have forgotten", "read"),
    ),
    Model(
        "opening_member_back_away",
        "a member comes back that was away when a blob was acknowledged; another one, or two, are exchanged or away",
        (Opener(1, ahead=STORED), _READER),
        faults={Fault.SWAP: 1, Fault.SILENT: 1},
        absent=2,
    ),
    Model(
        "replacing",
        "an operator makes a member anew that is still there, while a process has the group open, and stores",
        (Opener(1, ahead=READ),),
        replaces=2,
        probes=("acknowledged", "found to have forgotten", "made anew", "opened again"),
    ),
    Model(
        "replacing_stored",
        "the same after a blob was acknowledged; an answer is lost, and the operator dies and begins again",
        (Opener(1, ahead=STORED),),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        replaces=2,
        probes=("answer lost", "begun again", "made anew"),
    ),
    Model(
        "replacing_fenced",
        "a member is made anew that has a fence which the one that was away lacks, while a process has the group open",
        (Opener(2, ahead=READ),),
        absent=0,
        replaces=2,
    ),
    Model(
        "replacing_forgotten",
        "the member that was exchanged by an old copy is made anew, and another one may be away",
        (Opener(1, ahead=STORED),),
        faults={Fault.SWAP: 1, Fault.SILENT: 1},
        replaces=0,
        probes=("made anew",),
    ),
    Model(
        "replacing_readmitted",
        "a process has the group open without the member that is made anew, lets the new one in, or the old one, and stores",
        (Opener(2, ahead=READ, readmits=True),),
        absent=2,
        replaces=2,
    ),
    Model(
        "opening_slow_looks",
        "as opening, and looking again takes time: other things happen between one member and the next",
        (Opener(1, ahead=READ), _READER),
        slow_looks=True,
    ),
    Model(
        "replacing_slow_looks",
        "as replacing, and looking again takes time",
        (Opener(1, ahead=READ),),
        replaces=2,
        slow_looks=True,
    ),
    Model(
        "replacing_away",
        "a member that is away is made anew, and a process that opens the group meanwhile lets the new one in, or the old one",
        (Opener(2, readmits=True),),
        absent=2,
        replaces=2,
    ),
    Model(
        "opening_both_swapped",
        "two open the group at once, one stores, and an old copy takes the place of a member at any moment",
        (Opener(1), _READER),
        faults={Fault.SWAP: 1},
    ),
    Model(
        "opening_swapped_away",
        "as opening_swapped, and a member is away for a while",
        (Opener(1, ahead=READ), _READER),
        faults={Fault.SWAP: 1, Fault.SILENT: 1},
    ),
    Model(
        "opening_swapped_lost",
        "as opening_swapped, and an answer is lost",
        (Opener(1, ahead=READ), _READER),
        faults={Fault.SWAP: 1, Fault.UNKNOWN: 1},
    ),
)

LIMITS = (
    Model(
        "limit_witness_away",
        "who alone remembers what a member has forgotten is away",
        (Opener(1, ahead=STORED), _READER),
        faults={Fault.SWAP: 1, Fault.SILENT: 1},
        absent=2,
        is_limit=True,
    ),
    Model(
        "limit_long_opening",
        "a member is exchanged while an opening admits it that began before the last one ended",
        (Opener(1), _READER),
        faults={Fault.SWAP: 1},
        is_limit=True,
    ),
    Model(
        "limit_copied_away",
        "a copy that knows the session of the process that stores is put back, and another member misses what was done since",
        (Opener(1, ahead=READ), _READER),
        faults={Fault.SWAP: 1, Fault.SILENT: 1},
        copies=True,
    ),
)
"""More than the group promises to survive: each shows what happens then."""
