"""Deduplication ids: only the oldest are forgotten, with one cleaner or two, and a token within the window comes once.

Results that have left the table: they are forgotten when no replica can make them any more, and not before.

A merge (of one part, for the sake of what the policy does inside it) is followed by a merge of its result, after which r1
forgets what the first one came to.  A replica that makes it then with other bytes has nothing to compare with.

Streams, which take the place of ids: drivers send the batches of one stream, to several replicas, again and out of order.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import EntryId, StreamId
from replitree.protocol.core.entries import DropEntry, MutateEntry
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.upkeep.clean_blocks import Window
from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.models.clean import THREE
from replitree_verify.models.insert import TWO, two
from replitree_verify.models.merge import BOTH
from replitree_verify.models.mutate import ONE_PART
from replitree_verify.models.quorum import ENDS
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Kill, Model, Proposal

FIRST, SECOND = Insert("r1", ((1, "a"),)), Insert("r1", ((2, "b"),))
AGAIN = Insert("r2", ((3, "a"),))
# Both inserts are in the log, and both replicas have executed them.
WRITTEN = ("r1 ins 1", "r1 ins 2", *BOTH)
# How many ids stay at the most, and for how many milliseconds: the clock moves with every entry of the log.
ONE_STAYS = (1, 100)
YOUNG_STAY = (9, 1)
DROP = Ask("r1", 9, DropEntry("r1", EntryId("d"), "all"))


def _in_doubt(name: str, what: str, asked: Insert | Ask) -> Model:
    """Return a model of what is asked of r1 while r2 inserts and forgets ids; an answer is lost."""
    return two(
        name,
        f"the answer to {what} is lost, and its id is forgotten before its replica looks for it",
        (*((asked,) if isinstance(asked, Insert) else ()), Insert("r2", ((2, "b"),))),
        {Fault.UNKNOWN: 1},
        commands=() if isinstance(asked, Insert) else (asked,),
        resting=BOTH,
        duties=(Duty("r2", "ids", ONE_STAYS),),
        window=ONE_STAYS,
        probes=("id forgotten", "unknown: applied, answer lost"),
    )


# The first result is forgotten only when it has left the table, which the second merge sees to.
MERGES = (Proposal("r1", ("all_0_0_0",)), Proposal("r1", ("all_0_0_1",)))
MERGED = ("r1 lead1", "r1", "r1 lead2", "r1")
FORGET = Duty("r1", "results")
MUTATION = Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x"))

MODELS = (
    two(
        "ids_clean_clean",
        "two replicas forget ids at once, and the token of one is inserted again; an answer is lost, a view lags",
        (FIRST, SECOND, AGAIN),
        {Fault.UNKNOWN: 1, Fault.STALE: 1},
        prelude=WRITTEN,
        resting=BOTH,
        duties=tuple(Duty(seat, "ids", ONE_STAYS) for seat in BOTH),
        window=ONE_STAYS,
        probes=("id forgotten", "forgetting ids refused by blocks", "duplicate", "late request applied"),
    ),
    two(
        "ids_crash",
        "a replica dies while it forgets ids, another one goes on; a token that is forgotten comes again",
        (FIRST, SECOND, AGAIN),
        {Fault.CRASH: 1},
        prelude=WRITTEN,
        resting=(*BOTH, "r1 life"),
        duties=tuple(Duty(seat, "ids", ONE_STAYS) for seat in BOTH),
        window=ONE_STAYS,
        probes=("id forgotten", "crash", "duplicate"),
    ),
    two(
        "ids_by_age",
        "ids are forgotten by their age while a new insert comes, and a token comes again; an answer is lost",
        (FIRST, SECOND, AGAIN, Insert("r1", ((4, "c"),))),
        {Fault.UNKNOWN: 1},
        prelude=WRITTEN,
        resting=BOTH,
        duties=(Duty("r1", "ids", YOUNG_STAY),),
        window=YOUNG_STAY,
        probes=("id forgotten", "duplicate", "late request applied"),
    ),
    two(
        "ids_remembered",
        "a replica forgets ids twice and remembers them in between, while another one forgets them too; a token comes again",
        (FIRST, SECOND, AGAIN),
        {},
        prelude=WRITTEN,
        resting=BOTH,
        duties=(Duty("r1", "ids", (*ONE_STAYS, 2)), Duty("r2", "ids", ONE_STAYS)),
        window=ONE_STAYS,
        probes=("id forgotten", "duplicate"),
    ),
    _in_doubt("ids_doubt", "an insert", FIRST),
    _in_doubt("ids_command", "a command", Ask("r1", 9, DropEntry("r1", EntryId("d"), "x"))),
    two(
        "ids_command_again",
        "a command is asked for again while ids and log are cleaned; answers are lost",
        (Insert("r2", ((2, "b"),)),),
        {Fault.UNKNOWN: 2},
        commands=(Ask("r1", 9, DropEntry("r1", EntryId("d"), "x")), Ask("r2", 8, DropEntry("r2", EntryId("d"), "x"))),
        prelude=("r1 ask 9", "r2 ins 2", *BOTH),
        resting=BOTH,
        duties=(Duty("r1", "tidy", (Window(*ONE_STAYS), Keep(0, 0))),),
        window=ONE_STAYS,
        probes=("id forgotten", "log cleaned", "command known already", "command of long ago"),
    ),
    two(
        "ids_dropped",
        "of two inserts one is dropped; both tokens come again while ids and log are cleaned by two replicas",
        (FIRST, SECOND, AGAIN, Insert("r2", ((4, "b"),))),
        {},
        commands=(DROP,),
        prelude=("r1 ins 1", "r1 ask 9", "r1 ins 2", *BOTH),
        resting=BOTH,
        duties=(Duty("r1", "tidy", (Window(9, 100), Keep(0, 0))), Duty("r2", "ids", (9, 100))),
        window=(9, 100),
        probes=("token free again", "duplicate", "id marked dropped", "log cleaned"),
    ),
    two(
        "ids_notes",
        "the note of a drop is forgotten while the token of what it dropped comes again; an answer is lost",
        (FIRST, SECOND, AGAIN),
        {Fault.UNKNOWN: 1},
        commands=(DROP,),
        prelude=("r1 ins 1", "r1 ask 9", *BOTH, "r1 ins 2", *BOTH),
        resting=BOTH,
        duties=(Duty("r1", "ids", (9, 100)), Duty("r1", "ids", ONE_STAYS)),
        window=ONE_STAYS,
        probes=("token free again", "note forgotten", "id marked dropped", "id forgotten"),
    ),
    two(
        "ids_session",
        "the session of a replica ends while it inserts and while it forgets ids; an answer is lost",
        (FIRST, SECOND, Insert("r1", ((3, "a"),))),
        {Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        prelude=WRITTEN,
        resting=BOTH,
        duties=(Duty("r1", "ids", ONE_STAYS),),
        window=ONE_STAYS,
        probes=("id forgotten", "forgetting ids refused by host", "insert fenced", "late request applied"),
    ),
    # No other model notices that an insert that is given up removes an id without counting the removal.
    two(
        "ids_quorum",
        "an insert is given up, which frees its id, while another replica forgets ids; its token comes again",
        (Insert("r1", ((1, "a"),), quorum=2), SECOND, AGAIN),
        {},
        prelude=("open r1 ins 1", "r1 ins 2", "r1", "r2 pull"),
        resting=("r1 work", "r2 work", "r1 pull"),
        duties=(Duty("r2", "ids", ONE_STAYS),),
        window=ONE_STAYS,
        probes=("id forgotten", "forgetting ids refused by blocks", "quorum given up", "failed for good"),
    ),
    two(
        "results_queued",
        "a result is forgotten while another replica has its merge in the queue, and makes other bytes",
        ONE_PART,
        {Fault.DIFFERS: 1},
        merges=MERGES,
        # r2 has only the first merge in its queue, and makes other bytes when its result is forgotten already.
        prelude=("r1 ins 1", *BOTH, "r1 lead1", "r1", "r2 pull", "r1 lead2", "r1"),
        resting=("r1", "r1 life"),
        duties=(FORGET, FORGET),
        probes=("result forgotten", "merged", "result fetched"),
    ),
    two(
        "results_away",
        "a result is forgotten while a replica that has not pulled its merge is away and comes back",
        ONE_PART,
        {Fault.DIFFERS: 1},
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "stop r2", *MERGED),
        resting=("r1",),
        duties=(FORGET, FORGET),
        probes=("result forgotten", "merged"),
    ),
    two(
        "results_lost",
        "a result is forgotten while a lost replica is away that has not pulled its merge; it comes back and recovers",
        ONE_PART,
        {Fault.DIFFERS: 1},
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "stop r2", "lose r2", *MERGED),
        resting=("r1",),
        duties=(FORGET,),
        probes=("result forgotten", "recovered"),
    ),
    two(
        "results_killed",
        "a mutation is killed, so its result is claimed before another replica has pulled it, which forgets results",
        ONE_PART,
        {},
        commands=(MUTATION,),
        kills=(Kill("r2", "m"),),
        prelude=("r1 ins 1", *BOTH, "r2 ask 9", "r2 pull"),
        duties=(FORGET,),
        probes=("mutation killed", "mutated", "let be"),
    ),
    Model(
        "results_join",
        "a result is forgotten while a replica joins, whom another one that has its merge in the queue sends the sources",
        THREE,
        ONE_PART,
        {Fault.DIFFERS: 1},
        workers=("r1", "r2", "r3"),
        started=BOTH,
        absent=("r3",),
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, *MERGED, "r2 pull"),
        resting=("r1", "r2 pull"),
        duties=(FORGET,),
        probes=("result forgotten", "merged", "replica added", "forgetting results refused by replicas"),
    ),
    two(
        "results_crash",
        "two results are forgotten while another replica has their merges in the queue and makes other bytes; it dies",
        ONE_PART,
        {Fault.DIFFERS: 1, Fault.CRASH: 1},
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "r1 lead1", "r1", "r2 pull", "r1 lead2", "r1"),
        resting=("r1", "r1 life"),
        duties=(FORGET, FORGET),
        probes=("result forgotten", "merged", "result fetched", "crash"),
    ),
    two(
        "results_doubt",
        "a result is forgotten, an answer is lost, a request comes late; a replica was away and makes other bytes",
        ONE_PART,
        {Fault.DIFFERS: 1, Fault.UNKNOWN: 1},
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "stop r2", *MERGED),
        resting=("r1",),
        duties=(FORGET,),
        probes=("result forgotten", "merged", "late request applied"),
    ),
)

# --- streams -----------------------------------------------------------------------------------------------------------------

STREAM = StreamId("s")


def batch(seat: str, request: int, number: int, query: str = "q", **more: Any) -> Insert:
    """Return the insert of a batch, which a driver sends to one seat; `more` as of `Insert`."""
    return Insert(seat, ((request, f"{STREAM}.{number}"),), batch=StreamBatch(STREAM, query, number), **more)


DRIVERS = (batch("r1", 1, 0), batch("r1", 2, 1), batch("r2", 3, 0), batch("r2", 4, 1))
"""Two drivers of one query, each with both batches: an old one that has not ended, and the one after it."""


def _drivers(name: str, description: str, faults: dict[Fault, int], *probes: str, **more: Any) -> Model:
    """Return a model of two replicas that take inserts, and pull where `more` says so."""
    asked: dict[str, Any] = {"inserts": DRIVERS, "started": BOTH, **more}
    return Model(name, description, TWO, faults=faults, probes=probes, **asked)


def _quorum(name: str, description: str, inserts: tuple[Insert, ...], *probes: str, **more: Any) -> Model:
    """Return a model of two replicas that pull and execute; the first insert is open when the exploration begins."""
    asked: dict[str, Any] = {"prelude": ("open r1 ins 1", "r1", "r2 pull"), "resting": ("r1 work",), **more}
    faults: dict[Fault, int] = asked.pop("faults", {})
    return Model(name, description, TWO, inserts, faults, workers=BOTH, started=BOTH, probes=probes, **asked)


STREAMS = (
    _drivers(
        "streams_drivers",
        "two drivers send two batches each to two replicas, in any order; an answer is lost",
        {Fault.UNKNOWN: 1},
        *("duplicate", "stream moved meanwhile", "unknown: applied, answer lost", "late request applied"),
        *("doubt settled: in the log", "doubt settled: another had the token", "doubt settled: committed again"),
    ),
    _drivers(
        "streams_crash",
        "a driver sends two batches, another one sends the first again; a replica dies, an answer is lost",
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        *("duplicate", "stream moved meanwhile", "crash", "late request applied", "insert fenced"),
        inserts=DRIVERS[:3],
    ),
    _drivers(
        "streams_stale",
        "a driver sends its batches again to a replica whose view lags",
        {Fault.STALE: 2},
        *("duplicate", "stream moved meanwhile", "stale read"),
        inserts=DRIVERS[:3],
    ),
    _drivers(
        "streams_replaced",
        "a query with another checkpoint sends its first batch to the stream of an earlier one; an answer is lost",
        {Fault.UNKNOWN: 1},
        *("stream of another query", "stream moved meanwhile", "duplicate"),
        inserts=(batch("r1", 1, 0), batch("r2", 2, 0), batch("r2", 3, 0, "p")),
    ),
    _drivers(
        "streams_taken_over",
        "a query with another checkpoint takes over the stream of an earlier one, whose batch is sent again",
        {Fault.UNKNOWN: 1},
        *("stream of another query", "duplicate", "late request applied"),
        inserts=(batch("r1", 1, 0), batch("r1", 2, 0), batch("r2", 3, 0, "p", takes_over=True)),
        prelude=("r1 ins 1",),
    ),
    _drivers(
        "streams_forgotten",
        "a cleaner forgets a stream while an insert moves it; the batch is sent again",
        {Fault.UNKNOWN: 1},
        *("stream forgotten", "stream moved meanwhile", "duplicate"),
        inserts=(batch("r1", 1, 0), batch("r1", 2, 1), batch("r2", 3, 1)),
        # Without a clock every stream is as old as any other: one that stays for -1 ms goes at once.
        duties=(Duty("r2", "old-streams", (-1, 0)),),
        prelude=("r1 ins 1",),
    ),
    _quorum(
        "streams_quorum",
        "a batch needs both replicas, and is given up at any moment; another driver sends the next one",
        (batch("r1", 1, 0, quorum=2), batch("r2", 2, 1)),
        *(*ENDS, "stream set back", "batch after an open one"),
    ),
    _quorum(
        "streams_quorum_retry",
        "a batch needs both replicas, and is given up at any moment; it is sent again to the other replica",
        (batch("r1", 1, 0, quorum=2), batch("r2", 2, 0, quorum=2)),
        *(*ENDS, "stream set back", "retry waited"),
    ),
    _quorum(
        "streams_quorum_later",
        "the second batch of a stream needs both replicas, and is given up at any moment; it is sent again",
        (batch("r1", 3, 0), batch("r1", 1, 1, quorum=2), batch("r2", 2, 1, quorum=2)),
        *(*ENDS, "stream set back", "retry waited"),
        prelude=("r1 ins 3", *BOTH, "open r1 ins 1", "r1", "r2 pull"),
    ),
    _quorum(
        "streams_quorum_forgotten",
        "a stream is forgotten while its only batch is open, which is given up, and sent again at once",
        (batch("r1", 1, 0, quorum=2), batch("r2", 2, 0)),
        *("quorum given up", "stream forgotten", "stream set back"),
        duties=(Duty("r2", "forget", (STREAM,)),),
    ),
    _quorum(
        "streams_quorum_crash",
        "a batch needs both replicas, and is sent again; a replica dies, and the insert may be given up by another one",
        (batch("r1", 1, 0, quorum=2), batch("r2", 2, 0)),
        *("quorum reached", "quorum given up", "stream set back", "crash"),
        faults={Fault.CRASH: 1},
        duties=(Duty("r2", "give-up"),),
    ),
)
