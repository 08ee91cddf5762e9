"""Lost parts: what no replica has is declared lost, becomes empty everywhere, and may be inserted again.

In `CALM` nothing else goes wrong; `HARD` are the same worlds, and some smaller ones, with processes that die, answers that are
lost and views that lag.
"""

from __future__ import annotations

from dataclasses import replace

from replitree_verify.models.clean import THREE
from replitree_verify.models.insert import one, two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Duty, Insert, Model, Proposal

BOTH = ("r1", "r2")
PART = "all_0_0_0"
# Its part is what breaks.
FIRST = Insert("r1", ((1, "a"),))
# Its client repeats it at any moment: it hears "duplicate", or inserts the rows again.
AGAIN = Insert("r2", ((2, "a"),))
OTHER = Insert("r1", ((3, "b"),))
MERGE = (Proposal("r1", (PART, "all_1_1_0")),)
ASKED = ("declared lost", "made empty")


def _all(name: str, *seats: str, what: str = PART) -> tuple[Duty, ...]:
    return tuple(Duty(seat, name, (what,)) for seat in seats)


NOTED = ("r1 break1", "r2 break3", "r1 watch2", "r2 watch4")
"""The part breaks on both replicas, and they say so."""


def _both(what: str) -> tuple[Duty, ...]:
    return (*breaking("r1", what), *breaking("r2", what))


def breaking(seat: str, what: str = PART) -> tuple[Duty, Duty]:
    """Return the duties by which a part breaks at a seat, and a mender finds it out."""
    return Duty(seat, "break", (what,)), Duty(seat, "watch")


def _kept(name: str, more: str, *after: str) -> Model:
    """Return a model of a part that is broken on both replicas while the one that does not ask keeps a copy of it."""
    return two(
        name,
        "a part is broken on both replicas; one has searched its disk and asks, the other one keeps a copy and has noted in an"
        f" earlier version that its part is broken{more}",
        (FIRST,),
        {},
        prelude=("r1 ins 1", *BOTH, "r2 keep3", "r1 break1", "r2 break4", "r2 note5", *after),
        duties=(
            *breaking("r1"),
            *(Duty("r2", name, (PART,)) for name in ("keep", "break", "note")),
            Duty("r2", "watch"),
            *_all("lose", "r1"),
        ),
        probes=("noted whole",),
    )


CALM = (
    _kept("lost_kept", ""),
    _kept("lost_kept_away", "; it is away, and comes back at any moment", "stop r2"),
    two(
        "lost_kept_recovering",
        "a replica recovers from one whose part is broken and whose disk was searched; it keeps a copy itself, and asks",
        (FIRST,),
        {},
        prelude=("r1 ins 1", "r1", "r2 pull", f"keep r2 {PART}", "stop r2", "lose r2", "r1 break1", "r1 watch2"),
        duties=(*breaking("r1"), Duty("r2", "watch"), *_all("lose", "r2")),
        resting=("r1",),
        probes=("recovery begun", "recovered", "noted whole"),
    ),
    two(
        "lost_recovered",
        "the same where it keeps none: it searches its own disk before the part is declared lost",
        (FIRST,),
        {},
        prelude=("r1 ins 1", "r1", "r2 pull", "stop r2", "lose r2", "r1 break1", "r1 watch2"),
        duties=(*breaking("r1"), Duty("r2", "watch"), *_all("lose", "r2")),
        resting=("r1",),
        probes=("recovery begun", "recovered", "noted broken", *ASKED),
    ),
    two(
        "lost_everywhere",
        "a part is broken on both replicas; the one that asks has said so, the other one is about to find out",
        (FIRST,),
        {},
        prelude=("r1 ins 1", *BOTH, "r1 break1", "r2 break3", "r1 watch2"),
        duties=(*_both(PART), *_all("lose", "r1")),
        probes=(*ASKED, "noted broken"),
    ),
    two(
        "lost_again",
        "a part is broken everywhere; it is declared lost while its client inserts again",
        (FIRST, AGAIN),
        {},
        prelude=("r1 ins 1", *BOTH, *NOTED),
        duties=(*_both(PART), *_all("lose", "r1")),
        resting=("r2",),
        probes=(*ASKED, "duplicate"),
    ),
    two(
        "lost_partitions",
        "of two parts of an insert one is broken everywhere; the client inserts again",
        (FIRST, AGAIN),
        {},
        partitions=("p", "q"),
        prelude=("r1 ins 1", *BOTH, *NOTED),
        duties=(*_both("p_0_0_0"), *_all("lose", "r1", what="p_0_0_0")),
        resting=("r2",),
        probes=(*ASKED, "duplicate"),
    ),
    two(
        "lost_writer_away",
        "the writer of an insert is away with the only rows, and comes back at any moment; a fetch fails",
        (FIRST,),
        {Fault.FETCH: 1},
        prelude=("r1 ins 1", "stop r1"),
        duties=_all("lose", "r2"),
        probes=("fetched", "fetch failed"),
    ),
    two(
        "lost_staged",
        "the writer of an insert has lost its files before it registered them; another replica waits, and both ask",
        (FIRST,),
        {},
        prelude=("r1 ins 1", "stop r1", "r1 break1", "r2"),
        duties=(*_all("break", "r1"), *_all("lose", *BOTH)),
        resting=("r2",),
        probes=ASKED,
    ),
    two(
        "lost_fetched",
        "a part breaks on the replica that asks, while another one fetches it; a merge of it waits in the queue of that one",
        (FIRST, OTHER),
        {},
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 3", "r1", "r1 lead1", "r2 pull"),
        duties=(*breaking("r1"), *_all("lose", "r1")),
        resting=("r1", "r1 life", "r2 pull"),
        probes=(*ASKED, "merged", "declaration refused"),
    ),
    two(
        "lost_merge",
        "a part is broken everywhere when a merge of it is pulled; it is declared lost meanwhile",
        (FIRST, OTHER),
        {},
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 3", *BOTH, *NOTED),
        duties=(*_both(PART), *_all("lose", "r1")),
        resting=("r2",),
        probes=(*ASKED, "merged"),
    ),
    Model(
        "lost_unpulled",
        "three replicas: on one the part is broken, the second waits for it and asks, the third has not pulled it",
        THREE,
        (FIRST,),
        {},
        workers=("r1", "r2", "r3"),
        started=("r1", "r2"),
        prelude=("r1 ins 1", "r1", "r1 break1", "r1 watch2", "r2 pull"),
        resting=("r1",),
        duties=(*breaking("r1"), *_all("lose", "r2")),
        probes=(*ASKED, "declaration refused"),
    ),
    Model(
        "lost_mended",
        "a part that is broken on two replicas is fetched again from the third, where it breaks next",
        THREE,
        (Insert("r3", ((1, "a"),)),),
        {},
        workers=("r1", "r2", "r3"),
        started=("r1", "r2", "r3"),
        prelude=("r3 ins 1", *BOTH, *NOTED, "r3"),
        resting=("r1", "r2", "r3", "r1 life", "r2 life", "r3 life"),
        duties=(*_both(PART), *breaking("r3"), *_all("lose", "r1")),
        probes=("declared lost", "declaration refused", "noted whole", "noted broken"),
    ),
    two(
        "lost_merging",
        "a part breaks on the replica that merges it and then declares it lost",
        (FIRST, OTHER),
        {},
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 3", "r1", "r2 pull", "r1 lead1", "r1 pull"),
        resting=("r2", "r2 life", "r1 pull"),
        duties=(*breaking("r1"), *_all("lose", "r1")),
        probes=(*ASKED, "merged", "execution fenced"),
    ),
    one(
        "lost_alone",
        "a part is broken on the only replica, which declares it lost",
        (FIRST,),
        {},
        prelude=("r1 ins 1", "r1", "r1 break1", "r1 watch2"),
        duties=(*breaking("r1"), *_all("lose", "r1")),
        probes=ASKED,
    ),
)
"""Nothing goes wrong but what breaks."""


def _harder(name: str, than: str, fault: Fault, what: str, *probes: str) -> Model:
    """Return a calm model with one more fault."""
    model = next(each for each in CALM if each.name == than)
    # The same world with one fault, so that a finding differs from the calm model in that alone.
    description = f"{model.description}; {what}"
    faults = {**model.faults, fault: 1}
    resting = model.resting
    if fault is Fault.UNKNOWN:  # a process whose note is in doubt activates again
        menders = {duty.seat for duty in model.duties if duty.name == "watch"}
        resting = tuple(each for each in resting if each not in {f"{seat} life" for seat in menders})
    return replace(
        model,
        name=name,
        description=description,
        faults=faults,
        resting=resting,
        probes=(*model.probes, *probes),
    )


def _declared(name: str, what: str, fault: Fault, *probes: str) -> Model:
    """Return a model of a part that is broken on both replicas and is declared lost, with a fault."""
    return two(
        name,
        f"a part is broken on both replicas and is declared lost; {what}",
        (FIRST,),
        {fault: 1},
        prelude=("r1 ins 1", *BOTH, *NOTED),
        resting=("r2",),
        duties=(*_both(PART), *_all("lose", "r1")),
        probes=(*ASKED, *probes),
    )


RETURNS = two(
    "lost_pulled",
    "a part is about to be declared lost while its files come back, and a replica pulls its insert and fetches it",
    (FIRST,),
    {},
    prelude=("r1 ins 1", "r1", "r1 break1", "r1 watch2", "hold r1 lose4", "r1 heal3"),
    resting=("r1", "r1 life"),
    duties=(*breaking("r1"), *_all("heal", "r1"), *_all("lose", "r1")),
    probes=("declared lost", "declaration refused"),
)

CRASH, UNKNOWN, STALE = "a process dies", "an answer is lost", "a view lags"
LATE = ("late request applied", "unknown: applied, answer lost")

HARD = (
    _harder("lost_writer_dies", "lost_writer_away", Fault.CRASH, CRASH, "crash"),
    _harder("lost_fetched_stale", "lost_fetched", Fault.STALE, STALE, "stale read"),
    _harder("lost_again_stale", "lost_again", Fault.STALE, STALE, "stale read"),
    _harder("lost_mended_stale", "lost_mended", Fault.STALE, STALE, "stale read"),
    _harder("lost_merging_doubt", "lost_merging", Fault.UNKNOWN, UNKNOWN, *LATE),
    _harder("lost_alone_crash", "lost_alone", Fault.CRASH, CRASH, "crash"),
    _harder("lost_alone_doubt", "lost_alone", Fault.UNKNOWN, UNKNOWN, *LATE),
    _harder("lost_partitions_doubt", "lost_partitions", Fault.UNKNOWN, UNKNOWN, *LATE),
    _harder("lost_fetched_doubt", "lost_fetched", Fault.UNKNOWN, UNKNOWN, *LATE),
    _harder("lost_mended_doubt", "lost_mended", Fault.UNKNOWN, UNKNOWN, *LATE),
    _harder("lost_unpulled_stale", "lost_unpulled", Fault.STALE, STALE, "stale read"),
    _harder("lost_staged_crash", "lost_staged", Fault.CRASH, CRASH, "crash"),
    two(
        "lost_while_made",
        "a part breaks on the replica that merges it, declares it lost, and executes that while the merge still runs",
        (FIRST, OTHER),
        {},
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 3", "r1", "r2 pull", "r1 lead1", "r1 pull"),
        resting=("r2", "r2 life"),
        duties=(*breaking("r1"), *_all("lose", "r1")),
        probes=(*ASKED, "merged", "execution fenced", "executed later"),
    ),
    two(
        "lost_both_ask",
        "a part is broken everywhere; both replicas declare it lost at once, while its client inserts again, and again",
        (FIRST, AGAIN, Insert("r1", ((4, "a"),))),
        {},
        prelude=("r1 ins 1", *BOTH, *NOTED),
        resting=(*BOTH, "r1 life", "r1 watch2", "r2 watch4"),
        duties=(*_both(PART), *_all("lose", *BOTH)),
        probes=("declared lost", "declaration refused", "duplicate"),
    ),
    two(
        "lost_ids",
        "a part is broken everywhere; it is declared lost while its id is forgotten, and its client inserts again",
        (FIRST, OTHER, AGAIN),
        {},
        prelude=("r1 ins 1", "r1 ins 3", *BOTH, *NOTED),
        resting=(*BOTH, "r1 life", "r2 life", "r1 watch2", "r2 watch4"),
        duties=(*_both(PART), *_all("lose", "r1"), Duty("r2", "ids", (1, 100))),
        window=(1, 100),
        probes=("declared lost", "declaration refused", "duplicate"),
    ),
    two(
        "lost_holder_returns",
        "a part is broken on both replicas; one is away, its files are brought back, and it returns while the other one asks",
        (FIRST,),
        {},
        prelude=("r1 ins 1", *BOTH, *NOTED, "stop r2", "r2 heal5"),
        resting=BOTH,
        duties=(*_both(PART), *_all("heal", "r2"), *_all("lose", "r1")),
        probes=("declared lost", "declaration refused", "noted whole"),
    ),
    _declared("lost_crash", "a process dies at any step, of the execution too", Fault.CRASH, "crash"),
    _declared("lost_doubt", "an answer is lost, of the declaration too", Fault.UNKNOWN, *LATE),
    # A process in doubt about its note must not count on it: a declaration relies on what notes say.
    two(
        "lost_note_doubt",
        "a part breaks on a replica, which notes it after a fetch that failed; the answer to that is lost",
        (FIRST,),
        {Fault.FETCH: 1, Fault.UNKNOWN: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=BOTH,
        duties=(*breaking("r1"), *_all("lose", "r1")),
        probes=("fetch failed", "noted broken", "noted whole", "late request applied"),
    ),
    two(
        "lost_source",
        "a lost replica that has a part whole recovers from one where it is broken",
        (FIRST,),
        {},
        prelude=("r1 ins 1", *BOTH, *NOTED, "r2 heal5", "r2 watch4", "stop r2", "lose r2"),
        duties=(*_both(PART), *_all("heal", "r2")),
        probes=("recovery begun", "recovered", "noted whole"),
    ),
    RETURNS,
    replace(
        RETURNS,
        name="lost_joined",
        description="the same with a replica that joins the table",
        started=("r1",),
        absent=("r2",),
        probes=(*RETURNS.probes, "replica added"),
    ),
)
"""With processes that die, answers that are lost, views that lag; and what returns at the wrong moment."""

MODELS = (*CALM, *HARD)
