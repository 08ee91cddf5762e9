"""What must hold in every state, numbered as in design 3.3.

Each invariant is a named function from a `Look` at a state to what is wrong, or None; `READS` says which parts of the state
it looks at, so that its verdict is worked out once for each value of those parts.  `I9` is not a property of a state but of
a step:  `branches` checks it where a commit takes place.  `CONVERGES` holds in quiet states only, where no thread can go
on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import ClientAnswer, Duplicate, Failed, Inserted
from replitree.protocol.entries import Entry, decode_entry, part_names
from replitree.protocol.fold import fold, overlapping
from replitree.protocol.layout import Replica, Table
from replitree.protocol.pull import Queued
from replitree.verify.disk import Disk, requests_in
from replitree.verify.memory import Memory, State
from replitree.verify.model import INCARNATIONS, TABLE, Model


class Log:
    """What a tree says of a table: log, pointers, queues, registered parts.  Everything is read when it is asked for."""

    def __init__(self, tree: Tree, table: Table = TABLE) -> None:
        self.tree = tree
        self.table = table

    @cached_property
    def entries(self) -> tuple[Queued, ...]:
        """The log, in order."""
        names = self.tree.children(layout.log(self.table)) or ()
        paths = [f"{layout.log(self.table)}/{name}" for name in names]
        return tuple(Queued(layout.index_of(self.table, path), self._entry(path)) for path in paths)

    @cached_property
    def parts(self) -> dict[str, str]:
        """The parts of the whole log: name and content hash."""
        return dict(fold((item.index, item.entry) for item in self.entries).parts)

    def pointer(self, replica: Replica) -> int:
        """Return the index of the next entry that a replica pulls."""
        node = self.tree.get(layout.log_pointer(replica))
        assert node is not None
        return int(node.value)

    def queue(self, replica: Replica) -> tuple[Queued, ...]:
        """Return the entries that a replica pulled and did not execute."""
        names = self.tree.children(layout.queue(replica)) or ()
        paths = [f"{layout.queue(replica)}/{name}" for name in names]
        return tuple(Queued(layout.queue_index(path), self._entry(path)) for path in paths)

    def registered(self, replica: Replica) -> dict[str, str]:
        """Return the parts that a replica registered: name and content hash."""
        found = {}
        for name in self.tree.children(layout.parts(replica)) or ():
            node = self.tree.get(layout.part(replica, name))
            assert node is not None
            found[name] = node.value.decode()
        return found

    def _entry(self, path: str) -> Entry:
        node = self.tree.get(path)
        assert node is not None
        return decode_entry(node.value, path)


@dataclass(frozen=True, slots=True)
class Look:
    """The parts of a state that invariants look at."""

    model: Model
    log: Log
    answers: dict[int, ClientAnswer | None]
    disks: dict[str, Disk]
    memories: dict[str, Memory]


def log_and_queue_give_the_table(look: Look) -> str | None:
    """I1: registered parts, with the queue applied and then the rest of the log, are the fold of the log."""
    log = look.log
    for name in look.model.replicas:
        replica = look.model.replica(name)
        pointer, queue = log.pointer(replica), log.queue(replica)
        if pointer > len(log.entries):
            return f"I1: {name} has pulled up to {pointer}, the log ends at {len(log.entries)}"
        if any(item.index >= pointer for item in queue):
            return f"I1: {name} has queue entries that are not below its pointer {pointer}"
        rest = [item for item in log.entries if item.index >= pointer]
        derived = {**log.registered(replica), **fold((item.index, item.entry) for item in (*queue, *rest)).parts}
        if derived != log.parts:
            missing = sorted(set(log.parts) - set(derived)) or sorted(set(derived) - set(log.parts))
            return f"I1: {name} will never agree with the log about {', '.join(missing)}"
    return None


def acknowledged_inserts_are_in_the_log(look: Look) -> str | None:
    """I2, first half: an acknowledged insert is in the log, where its client was told."""
    entries = {item.index: item.entry for item in look.log.entries}
    tokens = look.model.tokens
    for request, answer in sorted(look.answers.items()):
        match answer:
            case Inserted(index) if index in entries:
                found = all(request in requests_in(part.content_hash) for part in entries[index].parts)
            case Duplicate(index) if index is not None and index in entries:
                found = tokens[request] in entries[index].blocks
            case Inserted(index) | Duplicate(index):
                found = False
            case _:
                continue
        if not found:
            return f"I2: request {request} was acknowledged at {index}, where the log does not have it"
    return None


def inserted_rows_are_there(look: Look) -> str | None:
    """I2, second half: of every part in the log some disk has the rows: published, or still staged at its writer."""
    for item in look.log.entries:
        folder = look.disks[item.entry.replica].folder(item.entry.insert)
        staged = dict(folder.parts) if folder is not None and not folder.torn else {}
        for (partition, name), part in zip(part_names(item.entry, item.index), item.entry.parts, strict=True):
            held = any(disk.content(name) == part.content_hash for disk in look.disks.values())
            if not held and staged.get(partition) != part.content_hash:
                return f"I2: nobody has the rows of {name}, which the log has"
    return None


def inserts_are_applied_once(look: Look) -> str | None:
    """I3: a token is in at most one log entry, with its rows exactly where it is named."""
    tokens, seen = look.model.tokens, set[str]()
    for item in look.log.entries:
        for part in item.entry.parts:
            rows = [tokens[request] for request in requests_in(part.content_hash)]
            if sorted(rows) != sorted(item.entry.blocks):
                return (
                    f"I3: entry {item.index} names {', '.join(item.entry.blocks)} and has the rows of {', '.join(rows)}"
                )
        again = seen.intersection(item.entry.blocks)
        if again:
            return f"I3: {', '.join(sorted(again))} is in the log twice, the second time at {item.index}"
        seen.update(item.entry.blocks)
    return None


def failed_inserts_are_not_there(look: Look) -> str | None:
    """Failed means not inserted: nobody is told "failed" of rows that are in the log."""
    for request, answer in sorted(look.answers.items()):
        if isinstance(answer, Failed):
            for item in look.log.entries:
                if any(request in requests_in(part.content_hash) for part in item.entry.parts):
                    return f"FAILED: request {request} was told that it failed, and is in the log at {item.index}"
    return None


def parts_never_overlap(look: Look) -> str | None:
    """I7: the parts of the table, and those that a replica registered, share no block."""
    for name in look.model.replicas:
        pair = overlapping(look.log.registered(look.model.replica(name)))
        if pair is not None:
            return f"I7: {pair[0].name} and {pair[1].name} of {name} overlap"
    pair = overlapping(look.log.parts)
    return None if pair is None else f"I7: {pair[0].name} and {pair[1].name} of the log overlap"


def registered_parts_are_on_disk(look: Look) -> str | None:
    """File before node: a registered part is on the replica's disk, with that content."""
    for name in look.model.replicas:
        for part, content in look.log.registered(look.model.replica(name)).items():
            if look.disks[name].content(part) != content:
                return f"FILES: {name} registered {part}, and its disk does not have it"
    return None


def revealed_parts_are_registered(look: Look) -> str | None:
    """Node before sight: reads show only what is registered."""
    for seat, name in look.model.seats:
        memory = look.memories[seat]
        if memory.running and memory.revealed:
            registered = look.log.registered(look.model.replica(name))
            hidden = [part for part in memory.revealed if part not in registered]
            if hidden:
                return f"SIGHT: {seat} shows {', '.join(hidden)}, which it has not registered"
    return None


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
            if memory.running and not look.model.has_rivals:
                return f"CONVERGES: {seat} waits and is not active"
            continue
        if log.tree.owner(layout.is_active(replica)) != memory.session:
            return f"CONVERGES: {seat} is active, and its session does not hold is_active"
        if seat in look.model.workers:
            if log.queue(replica) or log.pointer(replica) != len(log.entries):
                return f"CONVERGES: {seat} waits with entries left to pull or to execute"
            if list(memory.revealed) != sorted(log.parts):
                return f"CONVERGES: {seat} shows {', '.join(memory.revealed) or 'nothing'}, the table is {', '.join(log.parts)}"
        garbage = _garbage(look, seat, name, memory)
        if garbage:
            return f"CONVERGES: {name} keeps {', '.join(garbage)} in staging, which no insert needs"
    return None


def _garbage(look: Look, seat: str, name: str, memory: Memory) -> list[str]:
    """Return the staging folders of earlier processes that the sweep of the present one should have removed."""
    if look.model.has_rivals:
        return []
    wanted = {item.entry.insert for item in look.log.queue(look.model.replica(name))}
    earlier = tuple(f"{seat}{letter}-" for letter in INCARNATIONS[: memory.incarnation])
    folders = look.disks[name].folders
    return [each.staging for each in folders if each.staging.startswith(earlier) and each.staging not in wanted]


Invariant = Callable[[Look], str | None]

READS: dict[Invariant, tuple[str, ...]] = {
    log_and_queue_give_the_table: (),
    inserts_are_applied_once: (),
    parts_never_overlap: (),
    registered_parts_are_on_disk: ("disks",),
    revealed_parts_are_registered: ("memories",),
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
    "I9": "a replaced process changes nothing",
    "FILES": "a registered part is on disk",
    "SIGHT": "a part that reads show is registered",
    "FAILED": 'nobody is told "failed" of an insert that is in the log',
    "GAP": "nobody believes that entries are gone which are there",
    "STOP": "nobody stops unless it was replaced",
    "CONVERGES": "when nothing is left to do, every replica has and shows the table, and no garbage",
}
"""Every invariant by the name with which a violation begins."""
