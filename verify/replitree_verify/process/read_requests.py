"""Reads as requests of a model: clients ask a seat for the rows of the table, at some level, and I8 judges what they see.

The stages are the counterparts of `replica.http.http_reads` and `client.table`: a client knows the highest position that it has
seen or written (`Begun.floor`), the replica finds the read's position, waits, and shows.  What a replica remembers of the
entries that it has pulled is taken from the log here: they are the same (I1).

A read is told nothing when parts that it needs have left the disk meanwhile: the running replica keeps them for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ClientAnswer, Duplicate, Effect, Inserted, LogIndex
from replitree.protocol.core.entries import Entry, GetEntry, RewriteEntry, dropped_partitions
from replitree.protocol.core.fold import Change, settled
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.state.atomicity import shown_partly
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.read import (
    ReadLevel,
    end_of_log,
    is_readable,
    parts_at,
    position_of,
    shown_now,
)
from replitree_verify.world.disk import Disk, requests_in, rows_in
from replitree_verify.world.faults import Fault
from replitree_verify.world.history import Log, request_of
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import Model

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitAnswers(Effect):
    """Wait until the client has its answers to `known` earlier requests; then the read begins.  Outcome: `Begun`."""

    level: ReadLevel
    known: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """The lowest position that the read may stand at, what must be settled there, and what its client asks for at least."""

    lowest: LogIndex
    settled: tuple[LogIndex, ...]
    floor: LogIndex


@dataclass(frozen=True, slots=True)
class AwaitPointer(Effect):
    """Wait until the process knows where it stands.  Outcome: its pointer."""


@dataclass(frozen=True, slots=True)
class AwaitReadable(Effect):
    """Wait until what is below a position is executed, or (`executed` is false) only pulled.  Outcome: `ReadView`.

    Attributes
    ----------
    whole
        Whether to wait, too, until no insert and no rewrite is here in part: so does a read that shows what is here.
    """

    position: LogIndex
    executed: bool = True
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ReadView:
    """What the replica has when it shows: the table at its pointer, what led there since, its queue, what it holds.

    `opened` are the inserts that are open at the position.
    """

    parts: PartSet
    later: tuple[Change, ...]
    queue: tuple[Queued, ...]
    held: PartSet
    opened: tuple[LogIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowRows(Effect):
    """Show parts to the client; the read is over.

    `table` and `to_come` are what the table was where the replica stood then, and the entries that it had yet to execute.
    """

    number: int
    level: ReadLevel
    begun: Begun
    position: LogIndex
    parts: tuple[Part, ...]
    table: PartSet
    to_come: tuple[LogIndex, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a read showed: everything below `position`, the rows of these requests."""

    position: LogIndex
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotShown:
    """The read ended with an error: it showed nothing."""

    reason: str


Told: TypeAlias = ClientAnswer | Shown | NotShown
"""What a client of a model hears."""

# --- stages -------------------------------------------------------------------------------------------------------------------


def begin_read(replica: Replica, number: int, level: ReadLevel, known: tuple[int, ...]) -> Stage:
    """Ask for a read, some time after the answers to earlier requests."""
    begun: Begun = yield AwaitAnswers(level, known)
    return Then(find_position, (replica, number, level, begun))


def find_position(replica: Replica, number: int, level: ReadLevel, begun: Begun) -> Stage:
    """Find out where the read stands."""
    pointer: LogIndex = yield AwaitPointer()
    end: LogIndex | None = None
    if level == "linearizable":
        end = yield from end_of_log(replica.table.below(layout.parent_of(pointer)))
        if end is None:
            return Then(find_position, (replica, number, level, begun))
    position = position_of(level, begun.floor, pointer, end)
    return Then(show_rows, (number, level, begun, position))


def show_rows(number: int, level: ReadLevel, begun: Begun, position: LogIndex) -> Generator[Any, Any, None]:
    """Wait until the rows are there, and show them."""
    view: ReadView = yield AwaitReadable(position, whole=level == "eventual")
    if level == "eventual":
        parts = shown_now(view.held, view.queue)
    else:
        parts = tuple(
            parts_at(view.parts, view.later, view.queue, position, lambda part: part in view.held, view.opened)
        )
    to_come = tuple(item.index for item in view.queue)
    yield ShowRows(number, level, begun, position, parts, view.parts, to_come)


# --- what the effects do ------------------------------------------------------------------------------------------------------


def begin(effect: AwaitAnswers, answers: Mapping[int, Told | None]) -> Begun | None:
    """Return what a read must show that begins now; None while its client still waits."""
    known = [answers[number] for number in effect.known]
    if any(answer is None for answer in known):
        return None
    floor, told = _highest(known), answers.values() if effect.level == "linearizable" else known
    acknowledged = {answer.index for answer in told if isinstance(answer, Inserted)}
    return Begun(_highest(told), tuple(sorted(acknowledged)), floor)


def _highest(answers: Iterable[Any]) -> LogIndex:
    """Return the position above everything that these answers told of."""
    found = LogIndex(0)
    for answer in answers:
        match answer:
            case Inserted(index, settled) | Duplicate(int(index), settled):
                found = LogIndex(max(found, (index if settled is None else settled) + 1))
            case Shown(position):
                found = max(found, position)
    return found


def pointer_of(memory: Memory) -> LogIndex | None:
    """Return where a process stands, if it can be read."""
    serves = memory.state in (State.ACTIVE, State.READ_ONLY)
    return memory.place.pointer.index if serves and memory.place is not None else None


def look(effect: AwaitReadable, memory: Memory, tree: Tree, replica: Replica) -> ReadView | None:
    """Return what a process has to show at a position; None while it is not there."""
    pointer = pointer_of(memory)
    if pointer is None or memory.place is None or memory.torn:
        return None
    log = Log(tree, replica.table)
    opened = log.open_at(effect.position)
    if not is_readable(pointer, memory.queue if effect.executed else (), effect.position, opened):
        return None
    if effect.whole and shown_partly(memory.held, memory.place.parts, memory.queue) is not None:
        return None
    later = tuple(item.change for item in reversed(log.entries) if effect.position <= item.index < pointer)
    return ReadView(memory.place.parts, later, memory.queue, memory.held, opened)


def answer_read(effect: ShowRows, held: PartSet, disk: Disk, tree: Tree, replica: Replica) -> tuple[Told, str | None]:
    """Return what the client is told, and how that breaks I8.  A part that is on disk and not held has yet to be registered."""
    contents = [disk.content(part.name) if part in held else None for part in effect.parts]
    whole = [content for content in contents if content is not None]
    if len(whole) < len(contents):
        return NotShown("parts have left meanwhile"), None
    placed = [
        (part.partition, int(request))
        for part, content in zip(effect.parts, whole, strict=True)
        for request in requests_in(content)
    ]
    rows = Counter(request for _, request in placed)
    shown = Shown(effect.position, tuple(sorted(rows)))
    log = Log(tree, replica.table)
    broken = _repeated(rows, log) or (
        _lacking(rows, effect, log) or _beside_replaced(placed, log) if effect.level == "eventual" else None
    )
    if broken is not None:
        return shown, f"I8: the {effect.level} read {effect.number} at {replica.name} {broken}"
    return shown, _broken(effect, shown, log, replica)


def _repeated(rows: Counter[int], log: Log) -> str | None:
    """Check that a read shows no row twice, and none that no client inserted."""
    inserted = sum((_new_rows(entry) for _, entry in log.raw), Counter[int]())
    strange = sorted(rows.keys() - inserted.keys())
    if strange:
        return f"shows the rows of {strange}, which no client inserted"
    return "shows a row twice" if rows - inserted else None


def _lacking(rows: Counter[int], effect: ShowRows, log: Log) -> str | None:
    """Check that an eventual read shows the rows that the table has, but for those of entries that are still to be executed."""
    there = Counter[int]()
    for part in effect.table:
        lost = log.lost_requests(part.partition)
        there.update(request for row in log.lineage[part].rows if (request := request_of(row)) not in lost)
    to_come = sum((_new_rows(entry) for index, entry in log.raw if index in effect.to_come), Counter[int]())
    lacking = sorted(there - to_come - rows)
    return f"does not show the rows of {lacking}, which are in the table and executed" if lacking else None


def _beside_replaced(shown: Collection[tuple[str, int]], log: Log) -> str | None:
    """Check that an eventual read shows no row, by partition and request, beside those of an insert that has replaced it."""
    brought, replaced = dict[int, set[tuple[str, int]]](), dict[int, set[tuple[str, int]]]()
    for item in log.entries:
        if isinstance(item.entry, GetEntry) and dropped_partitions(item.entry):
            new = {(part.partition, int(row)) for part in item.entry.parts for row in requests_in(part.content_hash)}
            gone = {(part.partition, request_of(row)) for part in item.change.removed for row in log.lineage[part].rows}
            # With what earlier inserts have replaced by rows that this one replaces.
            gone.update(*(replaced[index] for index, rows in brought.items() if rows & gone))
            beside = sorted(gone.intersection(shown))
            if beside and new.intersection(shown):
                return f"shows {beside} beside rows of the insert at {item.index}, which has replaced them"
            brought[item.index], replaced[item.index] = new, gone
    return None


def _new_rows(entry: Entry) -> Counter[int]:
    """Return the requests whose rows an entry brings into the table; a request has a row in each of its partitions."""
    match entry:
        case GetEntry(parts=parts):
            return Counter(int(request) for part in parts for request in requests_in(part.content_hash))
        case RewriteEntry(id=name, inserts=parts):
            # The other rows of its new parts are moved: they were changed by it.
            new = (row for part in parts for row in rows_in(part.content_hash) if not row.endswith(f"~{name}"))
            return Counter(map(request_of, new))
    return Counter()


def _broken(effect: ShowRows, shown: Shown, log: Log, replica: Replica) -> str | None:
    """Check I8 for one read."""
    who = f"I8: the {effect.level} read {effect.number} at {replica.name}"
    rows = sorted(shown.requests)
    if effect.level == "eventual":
        return None
    if effect.position < effect.begun.lowest:
        return f"{who} stands at {effect.position}, and should at {effect.begun.lowest} or above"
    opened = log.open_at(effect.position)
    early = [index for index in effect.begun.settled if index in opened]
    if early:
        return f"{who} stands at {effect.position}, where {early} is open, which was acknowledged before it began"
    there: set[int] = set()
    for part in settled(log.parts_at(effect.position), opened):
        requests = {int(row.partition("~")[0]) for row in log.lineage[part].rows}
        there |= requests.difference(log.lost_requests(part.partition))  # what is lost is gone from every position
    return (
        None
        if rows == sorted(there)
        else f"{who} shows the rows of {rows}, the log below {effect.position} has {sorted(there)}"
    )


def unanswered(model: Model, answers: Mapping[int, Told | None], memories: Mapping[str, Memory]) -> str | None:
    """Return which read was never answered although its replica works, and its process has never changed."""
    for read in model.reads:
        memory = memories[read.seat]
        calm = memory.state is State.ACTIVE and memory.incarnation == 0 and model.works_to_the_end(read.seat)
        asked = Fault.CLOSED not in model.faults and all(answers[number] is not None for number in read.known)
        if calm and asked and answers[read.number] is None:
            return f"the {read.level} read {read.number} is never answered"
    return None
