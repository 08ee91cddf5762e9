"""What must hold in every state, numbered as in design 3.3.

Each invariant is a named function from a `Look` at a state to what is wrong, or None; `READS` says which parts of the state
it looks at, so that its verdict is worked out once for each value of those parts.  `I9` is not a property of a state but of
a step:  `branches` checks it where a commit takes place.  `CONVERGES` holds in quiet states only, where no thread can go
on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replitree.protocol import layout
from replitree.protocol.effects import ClientAnswer, Duplicate, Failed, Inserted, LogIndex
from replitree.protocol.entries import AlterEntry, DropEntry, GetEntry, MutateEntry
from replitree.protocol.fold import apply, restore
from replitree.protocol.part_set import PartSet
from replitree.protocol.parts import Part, overlapping, parse_part
from replitree.verify.disk import Disk, requests_in, rows_in
from replitree.verify.history import Log
from replitree.verify.memory import Memory, State
from replitree.verify.model import INCARNATIONS, Model


@dataclass(frozen=True, slots=True)
class Look:
    """The parts of a state that invariants look at."""

    model: Model
    log: Log
    answers: dict[int, ClientAnswer | None]
    disks: dict[str, Disk]
    memories: dict[str, Memory]


def log_and_queue_give_the_table(look: Look) -> str | None:
    """I1: registered parts with the queue applied are the fold at the pointer; with the rest of the log, the whole fold."""
    log = look.log
    for name in look.model.replicas:
        replica = look.model.replica(name)
        pointer, queue = log.pointer(replica), log.queue(replica)
        if pointer > len(log.entries):
            return f"I1: {name} has pulled up to {pointer}, the log ends at {len(log.entries)}"
        if any(index >= pointer for index, _ in queue):
            return f"I1: {name} has queue entries that are not below its pointer {pointer}"
        registered = tuple(map(parse_part, log.registered(replica)))
        derived, _ = restore(registered, tuple((LogIndex(index), entry) for index, entry in queue))
        wanted = log.parts_at(pointer)
        if derived != wanted:
            return f"I1: {name} will never agree with the log about {_difference(derived, wanted)}"
        for index, entry in log.raw[pointer:]:
            derived, _ = apply(derived, LogIndex(index), entry)
        if derived != log.parts:
            return f"I1: {name} will never agree with the rest of the log about {_difference(derived, log.parts)}"
    return None


def _difference(one: PartSet, other: PartSet) -> str:
    """Return the names of the parts that are in one of two sets only."""
    return ", ".join(sorted(part.name for part in {*one} ^ {*other}))


def acknowledged_inserts_are_in_the_log(look: Look) -> str | None:
    """I2, first half: what was acknowledged (an insert, a command) is in the log, where its client was told."""
    entries = dict(look.log.raw)
    for request, answer in sorted(look.answers.items()):
        match answer:
            case Inserted(index):
                found = _carries(entries.get(index), request, look)
            case Duplicate(index):
                entry = None if index is None else entries.get(index)
                found = isinstance(entry, GetEntry) and look.model.tokens[request] in entry.blocks
            case _:
                continue
        if not found:
            return f"I2: request {request} was acknowledged at {index}, where the log does not have it"
    return None


def _carries(entry: object, request: int, look: Look) -> bool:
    """Whether an entry is what a request asked for."""
    if isinstance(entry, GetEntry):
        return all(request in requests_in(part.content_hash) for part in entry.parts)
    if isinstance(entry, MutateEntry | DropEntry | AlterEntry):
        return look.model.ids.get(request) == entry.id
    return False


def inserted_rows_are_there(look: Look) -> str | None:
    """I2, second half: of every part of the table some disk has the rows: in it, in its sources, or staged at its writer."""
    for part in look.log.parts:
        if not _can_be_had(part, look):
            return f"I2: nobody has the rows of {part.name}, which the log has"
    return None


def _can_be_had(part: Part, look: Look) -> bool:
    origin = look.log.lineage[part]
    contents = (disk.content(part.name) for disk in look.disks.values())
    if any(content is not None and rows_in(content) == origin.rows for content in contents):
        return True
    if origin.sources:
        return all(_can_be_had(source, look) for source in origin.sources)
    entry = origin.item.entry
    assert isinstance(entry, GetEntry)
    folder = look.disks[entry.replica].folder(entry.insert)
    staged = dict(folder.parts) if folder is not None and not folder.torn else {}
    return rows_in(staged.get(part.partition, "")) == origin.rows


def inserts_are_applied_once(look: Look) -> str | None:
    """I3: a token is in the log once, or again after all its rows were dropped; with its rows exactly where it is named."""
    tokens, seen = look.model.tokens, dict[str, tuple[int, GetEntry]]()
    for index, entry in look.log.inserts:
        for part in entry.parts:
            rows = [tokens[request] for request in requests_in(part.content_hash)]
            if sorted(rows) != sorted(entry.blocks):
                return f"I3: entry {index} names {', '.join(entry.blocks)} and has the rows of {', '.join(rows)}"
        for token in entry.blocks:
            first, earlier = seen.get(token, (index, None))
            if earlier is not None and not all(
                look.log.dropped_between(part.partition, first, index) for part in earlier.parts
            ):
                return f"I3: {token} is in the log twice, the second time at {index}"
            seen[token] = (index, entry)
    return None


def parts_have_their_rows(look: Look) -> str | None:
    """ROWS: a registered part has the rows that the log gives it, each once; under one name all have the same content."""
    lineage, agreed = look.log.lineage, dict[str, str]()
    for name in look.model.replicas:
        for part, content in look.log.registered(look.model.replica(name)).items():
            origin = lineage.get(parse_part(part))
            if origin is not None and rows_in(content) != origin.rows:
                rows = " and ".join(origin.rows) or "no rows"
                return (
                    f"ROWS: {part} of {name} has {' and '.join(rows_in(content)) or 'no rows'}, it should have {rows}"
                )
            first = agreed.setdefault(part, content)
            if first != content:
                return f"ROWS: {name} registered {part} with another content than others have"
    return None


def failed_inserts_are_not_there(look: Look) -> str | None:
    """Failed means not inserted: nobody is told "failed" of rows, or of a command, that are in the log."""
    for request, answer in sorted(look.answers.items()):
        if isinstance(answer, Failed):
            for index, entry in look.log.raw:
                if _carries(entry, request, look):
                    return f"FAILED: request {request} was told that it failed, and is in the log at {index}"
    return None


def parts_never_overlap(look: Look) -> str | None:
    """I7: the parts of the table share no block, nor do those of a replica, but for parts that another one covers."""
    for name in look.model.replicas:
        registered = sorted(map(parse_part, look.log.registered(look.model.replica(name))))
        for number, one in enumerate(registered):
            for other in registered[number + 1 :]:
                if one.intersects(other) and not one.covers(other) and not other.covers(one):
                    return f"I7: {one.name} and {other.name} of {name} overlap"
    pair = overlapping(look.log.parts)
    return None if pair is None else f"I7: {pair[0].name} and {pair[1].name} of the log overlap"


def registered_parts_are_on_disk(look: Look) -> str | None:
    """File before node: a registered part is on the replica's disk, with that content, unless a visible one covers it."""
    for name in look.model.replicas:
        registered = look.log.registered(look.model.replica(name))
        parts = tuple(map(parse_part, registered))
        for part, content in registered.items():
            if look.disks[name].content(part) != content and not _is_covered(parse_part(part), parts):
                return f"FILES: {name} registered {part}, and its disk does not have it"
    return None


def _is_covered(part: Part, parts: tuple[Part, ...]) -> bool:
    return any(other != part and other.covers(part) for other in parts)


def revealed_parts_are_registered(look: Look) -> str | None:
    """Node before sight: reads show what is registered or was until its successor was; whole, and never a row twice."""
    for seat, name in look.model.seats:
        memory = look.memories[seat]
        if memory.state not in (State.ACTIVE, State.READ_ONLY):
            continue
        replica = look.model.replica(name)
        registered, pointer = look.log.registered(replica), look.log.pointer(replica)
        still = _still_to_come(look, name)
        new = (part for part in memory.visible if part.name not in registered)
        early = [part.name for part in new if part in still or part.block_max >= pointer]
        if early:
            return f"SIGHT: {seat} shows {', '.join(early)}, which it has not registered"
        pair = overlapping(memory.held)
        if pair is not None:
            return f"SIGHT: {seat} shows {pair[0].name} and {pair[1].name}, which overlap"
        lost = [part.name for part in memory.visible if look.disks[name].content(part.name) is None]
        if lost and memory.state is State.ACTIVE and not look.model.has_rivals:
            return f"SIGHT: {seat} shows {', '.join(lost)}, which its disk does not have"
    return None


def _still_to_come(look: Look, name: str) -> frozenset[Part]:
    """Return the parts that a replica has still to register."""
    log, replica = look.log, look.model.replica(name)
    registered = tuple(map(parse_part, log.registered(replica)))
    _, changes = restore(registered, tuple((LogIndex(index), entry) for index, entry in log.queue(replica)))
    return frozenset(part for change in changes for part in change.added)


def nobody_gives_up(look: Look) -> str | None:
    """No process believes that entries are gone, or that it was replaced, when that is not so."""
    for seat, _ in look.model.seats:
        state = look.memories[seat].state
        if state is State.HALTED:
            return f"GAP: {seat} believes that log entries are gone"
        if state is State.STOPPED and not look.model.has_rivals:
            return f"STOP: {seat} stopped although nobody replaced it"
    return None


def quiet_states_agree(look: Look) -> str | None:
    """CONVERGES: when nothing is left to do, every active replica has and shows exactly the table."""
    log = look.log
    for seat, name in look.model.seats:
        memory, replica = look.memories[seat], look.model.replica(name)
        if memory.state is not State.ACTIVE:
            if memory.is_there and not look.model.has_rivals:
                return f"CONVERGES: {seat} waits and is not active"
            continue
        if log.tree.owner(layout.is_active(replica)) != memory.session:
            return f"CONVERGES: {seat} is active, and its session does not hold is_active"
        if look.model.works_to_the_end(seat):
            if log.queue(replica) or log.pointer(replica) != len(log.entries):
                return f"CONVERGES: {seat} waits with entries left to pull or to execute"
            if memory.visible != tuple(log.parts):
                shown = ", ".join(part.name for part in memory.visible) or "nothing"
                return f"CONVERGES: {seat} shows {shown}, the table is {', '.join(part.name for part in log.parts)}"
        garbage = _garbage(look, seat, name, memory)
        if garbage:
            return f"CONVERGES: {name} keeps {', '.join(garbage)} in staging, which no insert needs"
    return None


def _garbage(look: Look, seat: str, name: str, memory: Memory) -> list[str]:
    """Return the staging folders of earlier processes that the sweep of the present one should have removed."""
    if look.model.has_rivals:
        return []
    queue = look.log.queue(look.model.replica(name))
    wanted = {entry.insert for _, entry in queue if isinstance(entry, GetEntry)}
    earlier = tuple(f"{seat}{letter}-" for letter in INCARNATIONS[: memory.incarnation])
    folders = look.disks[name].folders
    return [each.staging for each in folders if each.staging.startswith(earlier) and each.staging not in wanted]


Invariant = Callable[[Look], str | None]

READS: dict[Invariant, tuple[str, ...]] = {
    log_and_queue_give_the_table: (),
    inserts_are_applied_once: (),
    parts_never_overlap: (),
    parts_have_their_rows: (),
    registered_parts_are_on_disk: ("disks",),
    revealed_parts_are_registered: ("disks", "memories"),
    nobody_gives_up: ("memories",),
    failed_inserts_are_not_there: ("answers",),
    acknowledged_inserts_are_in_the_log: ("answers",),
    inserted_rows_are_there: ("disks",),
}
"""The invariants of states, and what each looks at besides the tree."""

NAMES: dict[str, str] = {
    "I1": "registered parts, queue and rest of the log give the fold of the log",
    "I2": "an acknowledged insert is in the log, and somebody has its rows",
    "I3": "an insert is applied once",
    "I7": "active parts never overlap",
    "ROWS": "a part has the rows that the log gives it, each once, and the same content on every replica",
    "I9": "a replaced process changes nothing",
    "FILES": "a registered part is on disk",
    "SIGHT": "a part that reads show is registered and on disk, and reads show no row twice",
    "FAILED": 'nobody is told "failed" of an insert that is in the log',
    "GAP": "nobody believes that entries are gone which are there",
    "STOP": "nobody stops unless it was replaced",
    "CONVERGES": "when nothing is left to do, every replica has and shows the table, and no garbage",
}
"""Every invariant by the name with which a violation begins."""
