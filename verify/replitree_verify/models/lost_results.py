"""Lost parts of which something was made: the result is broken where it was made, its source everywhere else.

r1 has merged or mutated the first part, and what it has made is broken there.  r2 has still to do it, and the part is broken
there.  No replica has the part, so it is lost; what is made of what is left has other content than r1 has said in `results`,
and r1 has to get that.
"""

from __future__ import annotations

from dataclasses import replace

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import MutateEntry
from replitree_verify.models.insert import two
from replitree_verify.models.lost import BOTH, FIRST, MERGE, NOTED, OTHER, PART, breaking
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Kill, Model, Proposal

OTHER_PART = "all_1_1_0"
MERGED, MUTATED = "all_0_1_1", "all_0_0_0_1"
MUTATION = Ask("r1", 9, MutateEntry("r1", EntryId("m"), "*", "x"))
MADE = ("declared lost", "made empty", "result forgotten")


def _breaking(result: str) -> tuple[Duty, ...]:
    """Return the duties by which a result breaks on r1 and the part on r2, which declares it lost."""
    return (*breaking("r1", result), *breaking("r2", PART), Duty("r2", "lose", (PART,)))


RESULT = two(
    "lost_result",
    "a merged part is broken where it was made, its source where it is still to be merged; the source is declared lost",
    (FIRST, OTHER),
    {},
    merges=MERGE,
    prelude=("r1 ins 1", "r1 ins 3", *BOTH, "r1 lead1", "r1", "r2 pull", *NOTED),
    duties=_breaking(MERGED),
    resting=("r2 watch4",),
    probes=(*MADE, "merged"),
)


def _also(name: str, what: str, fault: Fault, *probes: str) -> Model:
    """Return the model in which a source has been declared lost, with a fault while that is executed."""
    return replace(
        RESULT,
        name=name,
        description=f"a merged part is broken where it was made, and its source is lost; {what} while all that is mended",
        faults={fault: 1},
        prelude=(*RESULT.prelude, "r2 lose5"),
        resting=(),
        probes=("made empty", "merged", *probes),
    )


KILLED = replace(
    RESULT,
    name="lost_result_killed",
    description="the mutation of a merged part is killed; the merged part is broken where it was, its source is lost",
    commands=(MUTATION,),
    kills=(Kill("r1", "m"),),
    prelude=(*RESULT.prelude[: -len(NOTED)], "r1 ask 9", "r1 pull", "r1 kill", *NOTED, "r2 lose5"),
    resting=("r1", "r1 watch2", "r2 watch4", "r2 lose5"),
    probes=("made empty", "merged", "let be"),
)

MODELS = (
    RESULT,
    replace(
        RESULT,
        name="lost_result_mutated",
        description="a mutated part is broken where it was made, its source where it is still to be mutated, and lost",
        inserts=(FIRST,),
        merges=(),
        commands=(MUTATION,),
        prelude=("r1 ins 1", *BOTH, "r1 ask 9", "r1", "r2 pull", *NOTED),
        duties=_breaking(MUTATED),
        probes=(*MADE, "mutated"),
    ),
    replace(
        RESULT,
        name="lost_merged",
        description="a merged part is broken where it was made, its sources on the other replica; it is declared lost",
        duties=(*_breaking(MERGED)[:4], Duty("r2", "break", (OTHER_PART,)), Duty("r1", "lose", (MERGED,))),
        prelude=(*RESULT.prelude[:-2], "r2 break5", *NOTED[2:]),
        resting=("r1 watch2", "r2 watch4"),
        probes=MADE[:2],
    ),
    replace(
        RESULT,
        name="lost_result_merged",
        description="a merged part is broken where it was made, its source is lost; what is made anew is merged on at once",
        merges=(*MERGE, Proposal("r2", (MERGED,))),
        prelude=(*RESULT.prelude, "r2 lead2", "r2 pull", "r1 pull", "r2 lose5"),
        resting=("r2 watch4", "r2 lose5"),
        probes=("made empty", "merged"),
    ),
    replace(
        RESULT,
        name="lost_results_merged",
        description="a merged part is broken where it was made; both sources are lost, and what is made anew is merged on",
        merges=(*MERGE, Proposal("r2", (MERGED,))),
        duties=(
            *breaking("r1", MERGED),
            *(Duty("r2", name, (part,)) for name in ("break", "lose") for part in (PART, OTHER_PART)),
            Duty("r2", "watch"),
        ),
        prelude=(
            *RESULT.prelude[: -len(NOTED)],
            *("r1 break1", "r2 break3", "r2 break4", "r1 watch2", "r2 watch7"),
            *("r2 lead2", "r2 pull", "r2 lose5", "r2 pull", "r2 life", "r2 lose6", "r2 pull", "r2 life", "r2"),
            *("r1 pull", "r1 life"),
        ),
        resting=("r2", "r2 life", "r2 watch7", "r2 lose5", "r2 lose6"),
        probes=("executed later", "fetched", "later form taken"),
    ),
    replace(
        RESULT,
        name="lost_result_returns",
        description="a merged part is broken, its source is lost; the files of the merged part, with lost rows, come back",
        duties=(*_breaking(MERGED), Duty("r1", "heal", (MERGED,))),
        probes=(*MADE, "merged", "declaration refused", "noted whole"),
    ),
    KILLED,
    replace(
        KILLED,
        name="lost_result_killed_renewed",
        description=f"{KILLED.description}; made anew and let be, it goes to where it was broken",
        prelude=(*KILLED.prelude, "r2", "r2 life", "r2", "r1", "r1 life"),
        resting=("r2", *KILLED.resting[1:]),
        probes=("executed later", "fetched", "later form taken"),
    ),
    replace(_also("lost_result_stale", "a view lags", Fault.STALE, "stale read"), resting=("r2 watch4", "r2 lose5")),
    _also("lost_result_doubt", "an answer is lost", Fault.UNKNOWN, "late request applied"),
    two(
        "lost_killed",
        "a part is broken everywhere and declared lost while its mutation is killed",
        (FIRST,),
        {},
        commands=(MUTATION,),
        kills=(Kill("r2", "m"),),
        prelude=("r1 ins 1", *BOTH, "r1 ask 9", "r1 pull", "r2 pull", "r1 break1", "r2 break3", "r1 watch2"),
        duties=(
            *(each for seat in BOTH for each in breaking(seat, PART)),
            Duty("r1", "lose", (PART,)),
        ),
        resting=("r1", "r1 life"),
        probes=("declared lost", "made empty", "mutation killed", "mutated"),
    ),
    # A recovery beside a declaration: nodes come anew while the process that declares counts on their versions.
    two(
        "lost_recovering",
        "a part is declared lost while its files come back, and a replica that recovers fetches them",
        (Insert("r1", ((1, "a"),)),),
        {},
        prelude=("r1 ins 1", "r1", "r2 pull", "stop r2", "lose r2", "r1 break1", "r1 watch2"),
        duties=(
            *breaking("r1", PART),
            *(Duty("r1", name, (PART,)) for name in ("heal", "lose")),
            Duty("r2", "watch"),
        ),
        resting=("r1",),
        probes=("recovery begun", "recovered", "declared lost", "declaration refused", "noted whole"),
    ),
)
