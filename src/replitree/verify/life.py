"""How a running replica strings the procedures together: its threads, each as a sequence of stages.

The checked procedures are the production ones; what is here is the thin glue between them, kept line for line like
`replica.table_replica` (life), `replica.workers` (puller, executors) and `replica.inserts` (a group's insert).  A stage is a
procedure that ends in `Then`, the next stage with its arguments, so that a state forgets the outcomes that it does not need.

Besides the protocol's effects a stage may use the effects of this module, which touch only the memory that the threads of one
process share.  Waiting for something is an effect too (`AwaitTrouble`, `AwaitPull`, `AwaitWork`, `AwaitReplica`, `Accept`):
it ends when there is something to do.

What the threads of a process have to keep to, beyond calling the procedures:

1. An entry is *running* from the moment that an executor takes it until it gives it back.  It stays in the queue as long, and
   keeps what it changes, whatever is loaded meanwhile: so a drop waits for it (`registration.blockers`).  When what was loaded
   does not have it any more, it leaves the queue as soon as it is given back, in whatever way.
2. A loaded state counts only if no part was shown or hidden since the loading began; otherwise it is loaded again.  So what
   reads see never goes back.
3. A place is never exchanged for an older one.  With an older one an entry of the queue seems to be dropped already.
4. Entries that are made (merges, mutations) have a lane of their own; in each lane one batch runs at a time, and none that is
   postponed again and again keeps the others of its lane from their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol import layout
from replitree.protocol.activate import Activated, Busy, NotJoined, Replaced, Unsettled, activate, renew_epoch
from replitree.protocol.effects import (
    Answer,
    BlockId,
    ClientAnswer,
    CurrentEpoch,
    Duplicate,
    EntryId,
    Epoch,
    Failed,
    Inserted,
    LogIndex,
    OutcomeUnknown,
    RequestId,
    StagingId,
)
from replitree.protocol.entries import Command, MergeEntry
from replitree.protocol.execute import execute
from replitree.protocol.execute_lost import later_forms
from replitree.protocol.fetch import refetch
from replitree.protocol.insert import Inserter, Request, insert
from replitree.protocol.layout import Replica
from replitree.protocol.leader import Follows, Leads, look, resign, stand
from replitree.protocol.leader import InDoubt as InDoubtOfElection
from replitree.protocol.mutate import kill_mutation
from replitree.protocol.parts import Part
from replitree.protocol.propose import Forgotten, InDoubt, NotProposed, Proposed, Proposer, propose, propose_merges
from replitree.protocol.pull import Fenced, Gap, Loaded, Place, PointerMoved, Pulled, Queued, load, pull_log
from replitree.protocol.quorum import Awaited, answer_all, answer_awaited, find_end, give_up, rejoin
from replitree.protocol.recover import Good, Lost, NoSource, NotYet, Recovered, recover, stand_in_log
from replitree.protocol.registration import Executed, QueueMoved, View
from replitree.protocol.start import CaughtUp, catch_up, compare_parts, forget_covered, list_idle_staging, sweep_staging
from replitree.protocol.table import Outcome, finish_leaving, join_table
from replitree.verify.longlife import AwaitIdle, AwaitSource, Forget, Missed
from replitree.verify.quorums import AwaitDecided, QuorumTurn
from replitree.verify.standing import AwaitElection, AwaitStrays, Elected, ElectionTurn


@dataclass(frozen=True, slots=True)
class Then:
    """The end of a stage: what the thread does next."""

    stage: Callable[..., Generator[Any, Any, Any]]
    arguments: tuple[Any, ...]


Stage: TypeAlias = Generator[Any, Any, Then | None]
"""A stage: effects of the protocol and of this module, then the next stage."""

# --- effects on the memory of the process -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appear:
    """A process starts where there was none."""


@dataclass(frozen=True, slots=True)
class AwaitTrouble:
    """Wait until the process must activate again."""


@dataclass(frozen=True, slots=True)
class AwaitReplica:
    """Wait until nobody holds the replica."""

    is_active: str


@dataclass(frozen=True, slots=True)
class AwaitPull:
    """Wait, while active, for the next log entry, or for a request to reload.  Outcome: `PullTurn`.

    Attributes
    ----------
    removed
        Also if the entry was there and is gone; a mutant does not look.
    """

    removed: bool = True


@dataclass(frozen=True, slots=True)
class PullTurn:
    """What the puller works with; without a place it must load the replica's state first."""

    epoch: Epoch
    place: Place | None


@dataclass(frozen=True, slots=True)
class AwaitWork:
    """Wait, while active, for entries of one lane that can be executed; they are running then.  Outcome: `WorkTurn`.

    `makes`: the lane of merges and mutations; otherwise that of everything else.  `later_forms`: what the executor takes for a
    part that is to be made anew.
    """

    makes: bool
    later_forms: Callable[[View, Queued, Part], tuple[Part, ...]] = later_forms


@dataclass(frozen=True, slots=True)
class WorkTurn:
    """What an executor works with."""

    epoch: Epoch
    view: View
    batch: tuple[Queued, ...]


@dataclass(frozen=True, slots=True)
class AwaitLack:
    """Wait, while active, for parts that must be fetched again.  Outcome: (name, content hash) of each."""


@dataclass(frozen=True, slots=True)
class Lack:
    """These parts, too, must be fetched again."""

    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mended:
    """These parts are whole again; others may have broken meanwhile."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quieten:
    """Forget the trouble: it is being dealt with."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Be active, unless there was trouble meanwhile."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The process ends: another one has the replica."""


@dataclass(frozen=True, slots=True)
class ReportTrouble:
    """Be read-only until the process has activated again."""


@dataclass(frozen=True, slots=True)
class AskReload:
    """Let the puller load pointer and queue before its next pull."""


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """The loading of the replica's state begins."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take the state as coordination has it, unless parts were shown or hidden since `BeginLoad`.  Outcome: whether it was."""

    loaded: Loaded


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Take what a pull brought."""

    place: Place
    entries: tuple[Queued, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A batch does not run any more: executed entries leave the queue, postponed ones wait."""

    batch: tuple[LogIndex, ...]
    done: tuple[LogIndex, ...]
    postponed: tuple[LogIndex, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """Wait until the process is active, then take a group of requests.  Outcome: `Accepted`."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a group's insert works with."""

    me: bytes
    epoch: Epoch
    log_from: LogIndex
    staging: StagingId


@dataclass(frozen=True, slots=True)
class AcceptCommand:
    """Wait until the process is active, then take a user's command.  Outcome: `Accepted`."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class AwaitParts:
    """Wait, while active (and leading, where there are elections), until the table has these parts at the pointer.

    Outcome: `LeadTurn`.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeadTurn:
    """What a leader works with: `pointer` is the next entry that it will pull."""

    epoch: Epoch
    pointer: LogIndex


@dataclass(frozen=True, slots=True)
class AwaitMutation:
    """Wait, while active, until a mutation is in the queue.  Outcome: `KillTurn`."""

    id: EntryId


@dataclass(frozen=True, slots=True)
class KillTurn:
    """What a kill works with."""

    epoch: Epoch
    item: Queued


@dataclass(frozen=True, slots=True)
class Release:
    """The group's staging folders are not held any more."""

    staging: StagingId


def following(replica: Replica, pointer: LogIndex) -> Replica:
    """Return the place of a replica that appends below the parent that it has pulled up to."""
    return Replica(replica.table.below(layout.parent_of(pointer)), replica.name)


# --- the life thread ------------------------------------------------------------------------------------------------------


def appear(replica: Replica, me: bytes) -> Stage:
    """Start, some time."""
    yield Appear()
    return Then(become_active, (replica, me))


def become_active(replica: Replica, me: bytes) -> Stage:
    """List idle staging, then have an epoch of one's own: steps 1 and 2 of `protocol.start`."""
    yield Quieten()
    idle = yield from list_idle_staging()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, None))
    match outcome:
        case Activated(epoch):
            return Then(take_stand, (replica, me, epoch, idle))
        case Busy():
            return Then(wait_for_replica, (replica, me))
        case Unsettled():
            return Then(become_active, (replica, me))
        case NotJoined():
            return Then(join_again, (replica, me))
        case Replaced():
            yield Stop()
            return None


def join_again(replica: Replica, me: bytes) -> Stage:
    """Join the table, as a new replica; what is left of one that was dropped goes first, from coordination and from memory."""
    yield AwaitIdle()
    yield Forget()
    yield from finish_leaving(replica)
    match (yield from join_table(replica)):
        case Outcome.MISSING | Outcome.DROPPED | Outcome.WORN:
            yield Stop()
            return None
    return Then(become_active, (replica, me))


def take_stand(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Find out whether the log still has what this replica has not pulled."""
    match (yield from stand_in_log(replica, epoch)):
        case Good():
            return Then(catch_up_with_log, (replica, me, epoch, idle))
        case Lost():
            return Then(recover_state, (replica, me, epoch, idle))
        case NoSource():
            return Then(wait_for_source, (replica, me))
    return Then(become_active, (replica, me))


def recover_state(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Take over the state of a good replica, once nothing that began earlier runs any more."""
    yield AwaitIdle()
    match (yield from recover(replica, epoch)):
        case Recovered():
            return Then(catch_up_with_log, (replica, me, epoch, idle))
        case NotYet():
            return Then(recover_state, (replica, me, epoch, idle))
        case NoSource():
            return Then(wait_for_source, (replica, me))
    return Then(become_active, (replica, me))


def wait_for_source(replica: Replica, me: bytes) -> Stage:
    """Wait until there is a good replica."""
    yield AwaitSource()
    return Then(become_active, (replica, me))


def wait_for_replica(replica: Replica, me: bytes) -> Stage:
    """Wait until the session of whoever holds the replica has ended."""
    yield AwaitReplica(layout.is_active(replica))
    return Then(become_active, (replica, me))


def catch_up_with_log(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Pull up to the log's tail: step 3."""
    match (yield from catch_up(replica, epoch)):
        case CaughtUp():
            return Then(tidy_up, (replica, me, epoch, idle))
        case Gap(index):
            yield Missed(index)
    return Then(become_active, (replica, me))


def tidy_up(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Sweep staging, compare parts, forget what is covered: steps 4 to 6; then serve."""
    yield BeginLoad()
    loaded = yield from load(replica)
    yield from sweep_staging(idle, loaded)
    return (yield from serve_loaded(replica, me, epoch, loaded))


def serve_loaded(replica: Replica, me: bytes, epoch: Epoch, loaded: Loaded) -> Stage:
    """Take over what was loaded, compare it with the disk, and serve: the end of `tidy_up`."""
    taken: bool = yield TakeOver(loaded)
    if not taken:
        yield AskReload()
    compared = yield from compare_parts(replica, loaded)
    if compared.missing:
        yield Lack(compared.missing)
    if not (yield from forget_covered(replica, epoch, loaded)):
        return Then(become_active, (replica, me))
    yield from rejoin(replica, loaded, tuple(name for name, _ in compared.missing))
    yield Serve()
    return Then(wait_for_trouble, (replica, me))


def wait_for_trouble(replica: Replica, me: bytes) -> Stage:
    """Activate again when something went wrong."""
    yield AwaitTrouble()
    return Then(become_active, (replica, me))


# --- the puller -------------------------------------------------------------------------------------------------------------


def pull_next(replica: Replica, count: int) -> Stage:
    """Pull once."""
    turn: PullTurn = yield AwaitPull()
    if turn.place is None:
        return Then(reload_state, (replica, count))
    pulled = yield from pull_log(replica, turn.epoch, turn.place, count)
    match pulled:
        case Pulled(place):
            yield TakeIn(place, pulled.queued)
        case PointerMoved():
            return Then(reload_state, (replica, count))
        case Fenced():
            yield ReportTrouble()
        case Gap(index):
            yield Missed(index)
    return Then(pull_next, (replica, count))


def reload_state(replica: Replica, count: int) -> Stage:
    """Take the replica's state from coordination; what was executed unnoticed becomes visible."""
    yield BeginLoad()
    loaded = yield from load(replica)
    taken: bool = yield TakeOver(loaded)
    if taken:
        yield from rejoin(replica, loaded)
    return Then(pull_next if taken else reload_state, (replica, count))


# --- the executors ----------------------------------------------------------------------------------------------------------


def execute_next(replica: Replica) -> Stage:
    """Execute what is in the queue, but for merges and mutations."""
    yield from _execute(replica, makes=False)
    return Then(execute_next, (replica,))


def make_next(replica: Replica) -> Stage:
    """Execute a merge or a mutation."""
    yield from _execute(replica, makes=True)
    return Then(make_next, (replica,))


def _execute(replica: Replica, *, makes: bool) -> Generator[Any, Any, None]:
    turn: WorkTurn = yield AwaitWork(makes)
    yield from execute_turn(replica, turn)


def execute_turn(replica: Replica, turn: WorkTurn) -> Generator[Any, Any, tuple[LogIndex, ...]]:
    """Execute a batch and give it back; return what is done."""
    outcome = yield from execute(replica, turn.epoch, turn.view, turn.batch)
    batch = tuple(item.index for item in turn.batch)
    done: tuple[LogIndex, ...] = ()
    postponed = batch
    match outcome:
        case Executed(done, waiting):
            postponed = tuple(item.index for item in waiting)
        case QueueMoved():
            yield AskReload()
        case Fenced():
            yield ReportTrouble()
            postponed = ()
    yield GiveBack(batch, done, postponed)
    return done


# --- the mender -------------------------------------------------------------------------------------------------------------


def mend_next(replica: Replica) -> Stage:
    """Fetch again what is registered and not whole on disk."""
    wanted: tuple[tuple[str, str], ...] = yield AwaitLack()
    still = yield from refetch(replica, wanted)
    yield Mended(tuple(name for name, _ in wanted if name not in still))
    return Then(mend_next, (replica,))


# --- the keeper ---------------------------------------------------------------------------------------------------------------


def forget_next(replica: Replica) -> Stage:
    """Take back the registration of parts that another registered part covers, now and then."""
    epoch: Epoch = yield AwaitStrays()
    loaded = yield from load(replica)
    yield from forget_covered(replica, epoch, loaded)
    return Then(forget_next, (replica,))


# --- the leader's thread ------------------------------------------------------------------------------------------------------


def stand_next(replica: Replica, path: str | None) -> Stage:
    """Stand for leader, look who leads, or resign; `path` is the replica's own node of the election."""
    turn: ElectionTurn = yield AwaitElection(path)
    if turn.resigns and path is not None:
        yield Elected(leads=False)
        resigned = yield from resign(replica, turn.epoch, path)
        return Then(stand_next, (replica, None if resigned else path))
    election = yield from (stand(replica, turn.epoch) if path is None else look(replica, path))
    yield Elected(leads=isinstance(election, Leads))
    if isinstance(election, InDoubtOfElection):
        yield ReportTrouble()
    return Then(stand_next, (replica, election.path if isinstance(election, Leads | Follows) else None))


# --- an insert --------------------------------------------------------------------------------------------------------------


def accept_insert(
    replica: Replica, tokens: tuple[tuple[int, str], ...], drops: tuple[str, ...] = (), quorum: int = 0
) -> Stage:
    """Take a group of requests, given as (request, token), once the process is active."""
    requests = tuple(Request(RequestId(request), BlockId(token)) for request, token in tokens)
    accepted: Accepted = yield Accept(requests)
    place = following(replica, accepted.log_from)
    inserter = Inserter(place, accepted.me, accepted.log_from, drops=drops, quorum=quorum)
    return Then(insert_group, (inserter, accepted.epoch, accepted.staging, requests))


def insert_group(inserter: Inserter, epoch: Epoch, staging: StagingId, requests: tuple[Request, ...]) -> Stage:
    """Insert a group and let go of its staging folders."""
    awaited = yield from insert(inserter, epoch, staging, requests)
    yield Release(staging)
    return Then(await_quorum, (inserter.replica, awaited, staging, requests)) if awaited else None


def await_quorum(
    replica: Replica, awaited: tuple[Awaited, ...], staging: StagingId, requests: tuple[Request, ...]
) -> Stage:
    """Answer when it is known what became of the first insert that is waited for; give up an own one that takes too long.

    The puller tells what it has read before it has pulled it: so the log may be looked at in any moment.
    """
    first, left = awaited[0], awaited[1:]
    turn: QuorumTurn = yield AwaitDecided(first.index, patience=True)
    read = None if turn.is_decided else (yield from find_end(replica.table, first.index))
    gives_up = not turn.is_decided and read is None and not first.is_duplicate
    if gives_up and turn.epoch is not None and (yield from give_up(replica, turn.epoch, first.index, first.entry)):
        turn = yield AwaitDecided(first.index, patience=False)
    if turn.is_decided or read is not None:
        yield from answer_awaited(replica.table, first, read)
    else:
        yield from answer_all(first, OutcomeUnknown())
    return Then(await_quorum, (replica, left, staging, requests)) if left else None


# --- commands, merges, kills --------------------------------------------------------------------------------------------------


def accept_command(replica: Replica, request: RequestId, command: Command) -> Stage:
    """Take a user's command once the process is active."""
    accepted: Accepted = yield AcceptCommand(request)
    proposer = Proposer(following(replica, accepted.log_from), accepted.me, accepted.log_from)
    return Then(give_command, (proposer, accepted.epoch, request, command))


def give_command(proposer: Proposer, epoch: Epoch, request: RequestId, command: Command) -> Stage:
    """Put a user's command into the log and answer."""
    answer: ClientAnswer
    match (yield from propose(proposer, epoch, command)):
        case Proposed(index):
            answer = Inserted(index)
        case Forgotten():
            answer = Duplicate(None)
        case NotProposed(reason):
            answer = Failed(reason)
        case InDoubt():
            answer = OutcomeUnknown()
    yield Answer(request, answer)
    return None


def lead(replica: Replica, sources: tuple[str, ...]) -> Stage:
    """Propose one merge once its sources are there.  Every replica may think that it leads, with or without an election."""
    turn: LeadTurn = yield AwaitParts(sources)
    proposer = following(replica, turn.pointer)
    yield from propose_merges(proposer, turn.epoch, (MergeEntry(replica.name, sources),))
    return None


def kill(replica: Replica, mutation: EntryId) -> Stage:
    """Kill a mutation that was pulled."""
    turn: KillTurn = yield AwaitMutation(mutation)
    yield from kill_mutation(replica, turn.epoch, turn.item)
    return None
