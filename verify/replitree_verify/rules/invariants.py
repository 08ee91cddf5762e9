"""What must hold in every state, numbered as in design 3.3.

Each invariant is a named function from a `Look` at a state to what is wrong, or None; `READS` and `SEAT_READS` say which parts
of the state it looks at, so that its verdict is worked out once for each value of those parts.  `I9` is not a property of a
state but of a step:  `branches` checks it where a commit takes place.  `CONVERGES` holds in quiet states only, where no thread
can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Duplicate, Inserted, LogIndex, MaybeInserted, NotInserted, Why
from replitree.protocol.core.entries import AlterEntry, DropEntry, GetEntry, MutateEntry, RewriteEntry
from replitree.protocol.core.fold import apply, maximal, open_after, restore
from replitree.protocol.core.log import log_start, next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import inserted_part, overlapping, parse_part
from replitree.protocol.execute.making import result_of
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.state.registration import LET_BE, content_of, is_broken
from replitree_verify.process.read_requests import Told, unanswered
from replitree_verify.rules.lost import (
    has_lost_rows_at_most,
    is_fragile,
    is_lost_with,
    lost_parts_are_empty,
    nothing_is_made_of_lost_rows,
    tokens_go_with_lost_parts,
)
from replitree_verify.rules.quorum import (
    acknowledged_inserts_are_settled,
    all_are_counted,
    failed_at,
    failed_between,
    failed_inserts_free_their_ids,
    quorums_end_once,
    settled_rows_are_on_enough_disks,
)
from replitree_verify.rules.restored import may_come_again, restored_table_is_what_a_disk_had
from replitree_verify.rules.rewrites import (
    clients_hear_whether_rewrites_apply,
    commands_are_given_once,
    rewrites_apply_as_a_whole,
)
from replitree_verify.rules.rows import OF_ROWS, fed_rows_are_given, needless_old_parts
from replitree_verify.rules.scope import covered_rows_are_mutated
from replitree_verify.rules.streams import OF_STREAMS, repeats
from replitree_verify.world.disk import Disk, requests_in, rows_in
from replitree_verify.world.faults import Fault
from replitree_verify.world.history import Log, tokens_of
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import Model
from replitree_verify.world.objects import Objects
from replitree_verify.world.past import acted, declared
from replitree_verify.world.shared_disk import together

HARMLESS = frozenset((Fault.CRASH, Fault.DISK, Fault.FETCH, Fault.DIFFERS))
"""Faults that take no answer away from an insert that goes on: `DOUBT`."""


@dataclass(frozen=True, slots=True)
class Look:
    """The parts of a state that invariants look at; `disks` and `memories` by the names of disks and seats.

    `removed`: the parts that each replica has removed from its disk, where that is known.
    """

    model: Model
    log: Log
    answers: Mapping[int, Told | None]
    disks: dict[str, Disk]
    memories: dict[str, Memory]
    objects: Objects | None = None
    removed: Mapping[str, Collection[str]] | None = None

    def disk(self, replica: str) -> Disk:
        """Return a replica's disk: together those of the machines that have acted for it since it was last added."""
        if replica not in self.model.contested:
            return self.disks[replica]
        seats = acted(self.log.tree, replica)
        return together([self.disks[each] for each in dict.fromkeys(map(self.model.disk_of, seats))])

    def goes_on(self, replica: str) -> bool:
        """Whether what a replica's machines have is looked after: no process stays that was replaced on another machine."""
        seats = acted(self.log.tree, replica)
        return replica not in self.model.contested or all(self.memories[seat].state is State.ACTIVE for seat in seats)

    def acts(self, seat: str, replica: str) -> bool:
        """Whether a seat has acted for a replica since it was last added; if not, its process may not know of the drop."""
        if self.model.place(seat).table != self.log.table:
            return False
        return replica not in self.model.contested or seat in acted(self.log.tree, replica)


def log_and_queue_give_the_table(look: Look) -> str | None:
    """I1: registered parts with the queue applied are the fold at the pointer; with the rest of the log, the whole fold."""
    log = look.log
    for name in good_replicas(look):
        replica = look.log.replica(name)
        pointer, queue = log.pointer(replica), log.queue(replica)
        if pointer < log.first and name in look.model.forgiven:
            continue  # an operator has written by hand that it is good: it finds out that entries are gone
        if pointer > log.end:
            return f"I1: {name} has pulled up to {pointer}, the log ends at {log.end}"
        if any(index >= pointer for index, _ in queue):
            return f"I1: {name} has queue entries that are not below its pointer {pointer}"
        registered = tuple(map(parse_part, log.registered(replica)))
        derived, _ = restore(registered, tuple((LogIndex(index), entry) for index, entry in queue))
        wanted = log.parts_at(pointer)
        # A replica that may have recovered may be ahead of its pointer: `AHEAD`.
        if derived != wanted and look.model.is_still and f"lose {name}" not in look.model.prelude:
            return f"I1: {name} will never agree with the log about {_difference(derived, wanted)}"
        opened = log.open_at(pointer) if look.model.has_quorums else ()
        if opened != log.opened(replica):
            return f"I1: {name} has written that {log.opened(replica)} are open at {pointer}, the log says {opened}"
        # The replica applies the same entries to its own state, and must come to the table.
        for index, entry in log.since(pointer):
            derived, _ = apply(derived, LogIndex(index), entry, opened=opened)
            opened = open_after(opened, LogIndex(index), entry)
        if derived != log.parts:
            return f"I1: {name} will never agree with the rest of the log about {_difference(derived, log.parts)}"
    return None


def good_replicas(look: Look) -> tuple[str, ...]:
    """Return the replicas that belong to the table and are not lost."""
    return tuple(name for name in look.model.replicas if look.log.is_good(look.log.replica(name)))


def no_process_serves_ahead(look: Look) -> str | None:
    """AHEAD: who serves is not lost, and has exactly the table at its pointer, also after it has recovered."""
    # Where no replica can be ahead of its pointer, I1 asks the same of all of them.
    for seat, name in () if look.model.is_still else look.model.seats:
        replica = look.log.replica(name)
        memory = look.memories[seat]
        if memory.state is not State.ACTIVE or memory.trouble or not look.acts(seat, name):
            continue  # a process in trouble activates again before it serves
        if look.log.mark(replica) not in (None, NOT_LOST):
            return f"AHEAD: {name} serves, and is lost"
        if look.log.is_good(replica):
            registered = tuple(map(parse_part, look.log.registered(replica)))
            queue = tuple((LogIndex(index), entry) for index, entry in look.log.queue(replica))
            derived, wanted = restore(registered, queue)[0], look.log.parts_at(look.log.pointer(replica))
            if derived != wanted:
                return (
                    f"AHEAD: {name} serves, and differs from the table at its pointer in {_difference(derived, wanted)}"
                )
    return None


def pointers_are_valid(look: Look) -> str | None:
    """I4: of every replica that is not lost the entry at its pointer is in the log or is yet to be written."""
    for name in good_replicas(look):
        pointer = look.log.pointer(look.log.replica(name))
        if pointer < look.log.first and name not in look.model.forgiven:
            return f"I4: {name} is not lost and has to pull entry {pointer}, which is gone"
    return None


def somebody_is_good(look: Look) -> str | None:
    """I5: at least one replica is never lost."""
    return None if good_replicas(look) or look.model.is_hopeless else "I5: every replica is lost"


def log_is_dense(look: Look) -> str | None:
    """DENSE: the log has every entry from the first on, and its parent says which one that is."""
    log, comes, since = look.log, 0, declared(look.log.tree)
    if log.tree.exists(layout.dropped(log.table)):
        return None  # its entries go, and then the rest of the table
    present = {index for index, _ in log.present}
    for index, entry in log.raw:
        # The log of a restored table begins anew here; the entries before it are those that the checker remembers.
        if since is not None and since.restored and index == since.at:
            comes = index
        if index != comes or (index > log.first and index not in present):
            return f"DENSE: the log has a hole: {comes} should come, or be there, before {index}"
        # Not always the next number: the entry that closes a parent is followed by the first of the next one.
        comes = next_index(LogIndex(index), entry)
    node = log.tree.get(layout.log(log.table))
    if node is None:
        return None if look.model.is_restoring or look.model.is_remaking else "DENSE: there is no log"
    first = log_start(log.table, node).first
    return None if first == log.first else f"DENSE: the log says that it begins at {first}, it begins at {log.first}"


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
            # The entry was cleaned away, so the answer names no index: the log that the checker remembers has the
            # token.
            case Duplicate(index=None) if request in look.model.tokens:
                index = None
                gone = (entry for at, entry in look.log.inserts if at < look.log.first)
                found = any(repeats(entry, request, look) for entry in gone)
            case Duplicate(index=None):
                index = None
                found = any(_carries(entry, request, look) for _, entry in look.log.raw)
            case Duplicate(index):
                entry = None if index is None else entries.get(index)
                found = isinstance(entry, GetEntry) and repeats(entry, request, look)
            case _:
                continue
        if not found:
            return f"I2: request {request} was acknowledged at {index}, where the log does not have it"
    return None


def _carries(entry: object, request: int, look: Look) -> bool:
    """Whether an entry is what a request asked for."""
    if isinstance(entry, GetEntry):
        return all(request in requests_in(part.content_hash) for part in entry.parts)
    if isinstance(entry, MutateEntry | RewriteEntry | DropEntry | AlterEntry):
        return look.model.ids.get(request) == entry.id
    return False


def inserts_are_applied_once(look: Look) -> str | None:
    """I3: a token is in the log once, or again after all its rows were dropped; with its rows exactly where it is named."""
    tokens, seen = look.model.tokens, dict[str, tuple[int, GetEntry]]()
    for index, entry in look.log.inserts:
        for part in entry.parts:
            rows = [tokens[request] for request in requests_in(part.content_hash)]
            if sorted(rows) != sorted(tokens_of(entry)):
                return f"I3: entry {index} names {', '.join(tokens_of(entry))} and has the rows of {', '.join(rows)}"
        for token in entry.blocks:
            first, earlier = seen.get(token, (index, None))
            # A token may come again only after each part of its earlier insert is gone, in one of these ways.
            if earlier is not None and not all(
                look.log.dropped_between(part.partition, first, index)
                or is_lost_with(first, index, part.partition, look.log)
                or failed_between(first, index, look.log)
                or may_come_again(token, earlier, entry, first, index, look)
                for part in earlier.parts
            ):
                return f"I3: {token} is in the log twice, the second time at {index}"
            seen[token] = (index, entry)
    return None


def parts_have_their_rows(look: Look) -> str | None:
    """ROWS: a registered part has the rows that the log gives it, each once; under one name all have the same content."""
    # Begins with the results that coordination has forgotten: what was published first still binds.
    lineage, agreed = look.log.lineage, look.log.forgotten_results
    for name in look.model.replicas:
        for part, value in look.log.registered(look.log.replica(name)).items():
            result = look.log.tree.get(layout.result(look.log.table, part)) if look.log.lost else None
            if result is not None and result.value == LET_BE and not is_broken(value.encode()):
                return f"ROWS: {name} registered {part}, and did not record its content for the others"
            origin, content = lineage.get(parse_part(part)), content_of(value.encode())
            if origin is not None and has_lost_rows_at_most(origin.rows, content, look.log):
                continue  # `lost_parts_are_empty`: in the end all agree
            if origin is not None and rows_in(content) != origin.rows:
                rows = " and ".join(origin.rows) or "no rows"
                return (
                    f"ROWS: {part} of {name} has {' and '.join(rows_in(content)) or 'no rows'}, it should have {rows}"
                )
            first = agreed.setdefault(part, content)
            if first != content and part not in look.log.lost:
                return f"ROWS: {name} registered {part} with another content than others have"
    return None


def failed_inserts_are_not_there(look: Look) -> str | None:
    """NotInserted means not inserted: no client hears "failed" of rows, or of a command, that its replica put into the log."""
    asked = {ask.request: ask.command.replica for ask in look.model.commands}
    asked |= {rewrite.request: dict(look.model.seats)[rewrite.seat] for rewrite in look.model.rewrites}
    given_up = failed_at(look.log) if look.model.has_quorums else {}
    for request, answer in sorted(look.answers.items()):
        # A rewrite that does not apply is in the log and counts for nothing (`clients_hear_whether_rewrites_apply`).
        if isinstance(answer, NotInserted) and answer.why is not Why.CHANGED:
            for index, entry in look.log.raw:
                if index in given_up:
                    continue  # its quorum failed: it is in the log and does not count
                # Another replica may have given the same command, and has told its client so.
                if asked.get(request, entry.replica) == entry.replica and _carries(entry, request, look):
                    return f"FAILED: request {request} was told that it failed, and is in the log at {index}"
    return None


def no_client_is_left_in_doubt(look: Look) -> str | None:
    """DOUBT: no client hears "unknown" of an insert where every answer of coordination arrives and no session ends."""
    model = look.model
    if model.has_quorums or model.duties or not HARMLESS.issuperset(model.faults):
        return None
    for request, answer in sorted(look.answers.items()):
        if isinstance(answer, MaybeInserted):
            return f"DOUBT: request {request} was told that its outcome is unknown, and no answer was lost"
    return None


def parts_never_overlap(look: Look) -> str | None:
    """I7: the parts of the table share no block, nor do those of a replica, but for parts that another one covers."""
    for name in good_replicas(look):
        registered = sorted(map(parse_part, look.log.registered(look.log.replica(name))))
        for number, one in enumerate(registered):
            for other in registered[number + 1 :]:
                if one.intersects(other) and not one.covers(other) and not other.covers(one):
                    return f"I7: {one.name} and {other.name} of {name} overlap"
    pair = overlapping(look.log.parts)
    return None if pair is None else f"I7: {pair[0].name} and {pair[1].name} of the log overlap"


def registered_parts_are_on_disk(look: Look) -> str | None:
    """File before node: a registered part is on the replica's disk, with that content, unless a visible one covers it."""
    for name in look.model.replicas:
        registered = look.log.registered(look.log.replica(name))
        parts = tuple(map(parse_part, registered))
        for part, content in registered.items():
            if is_broken(content.encode()) or is_fragile(part, look):
                continue
            # A covered part's files may go first: its node is forgotten later, by the keeper.
            own = parse_part(part)
            is_covered = any(other != own and other.covers(own) for other in parts)
            found = look.disk(name).content(part)
            is_lost = found is None and name in look.model.emptied
            if found != content and not is_covered and not is_lost:
                return f"FILES: {name} registered {part}, and its disk does not have it"
    return None


def revealed_parts_are_registered(look: Look, seats: tuple[tuple[str, str], ...] = ()) -> str | None:
    """Node before sight: reads show what is registered or was until its successor was; whole, and never a row twice.

    `seats`: the seats that are looked at; by default all.
    """
    for seat, name in seats or look.model.seats:
        memory = look.memories[seat]
        if memory.state not in (State.ACTIVE, State.READ_ONLY) or not look.acts(seat, name):
            continue
        replica = look.log.replica(name)
        if look.log.mark(replica) is None:
            continue
        registered, pointer = look.log.registered(replica), look.log.pointer(replica)
        new = [part for part in memory.visible if part.name not in registered and look.log.is_good(replica)]
        early = list[str]()
        if new:  # what is in the queue is still to be registered
            known = tuple(map(parse_part, registered))
            queue = tuple((LogIndex(index), entry) for index, entry in look.log.queue(replica))
            to_come = {part for change in restore(known, queue)[1] for part in change.added}
            early = [part.name for part in new if part in to_come or part.block_max >= pointer]
        if early:
            return f"SIGHT: {seat} shows {', '.join(early)}, which it has not registered"
        pair = overlapping(memory.held)
        if pair is not None:
            return f"SIGHT: {seat} shows {pair[0].name} and {pair[1].name}, which overlap"
        shown = (part for part in memory.visible if not is_fragile(part, look))
        lost = [part.name for part in shown if look.disk(name).content(part.name) is None]
        # A rival process of the same replica may remove files under one that does not know yet that it was replaced.
        if lost and memory.state is State.ACTIVE and not look.model.has_rivals:
            return f"SIGHT: {seat} shows {', '.join(lost)}, which its disk does not have"
    return None


def no_process_gives_up(look: Look) -> str | None:
    """No process believes that entries are gone, or that it was replaced, when that is not so."""
    for seat, _ in look.model.seats:
        memory = look.memories[seat]
        if memory.missed is not None and memory.missed >= look.log.first:
            return f"GAP: {seat} believes that entry {memory.missed} is gone"
        may_stop = look.model.has_rivals or look.model.is_dropping or look.model.is_restoring
        if memory.state is State.STOPPED and not may_stop:
            return f"STOP: {seat} stopped although no process replaced it"
    return None


def quiet_states_agree(look: Look) -> str | None:
    """CONVERGES: when nothing is left to do, every active replica has and shows exactly the table."""
    log = look.log
    left = _left_to_do(look)
    if left is not None:
        return f"CONVERGES: {left}"
    for seat, name in look.model.seats:
        memory, replica = look.memories[seat], look.log.replica(name)
        if memory.state is not State.ACTIVE:
            # Without a good replica a process waits for an operator.
            waits = look.model.is_hopeless and not good_replicas(look)
            if memory.is_there and not look.model.has_rivals and seat not in look.model.operators and not waits:
                return f"CONVERGES: {seat} waits and is not active"
            continue
        if look.acts(seat, name) and log.tree.owner(layout.is_active(replica)) != memory.session:
            return f"CONVERGES: {seat} is active, and its session does not hold is_active"
        if look.model.works_to_the_end(seat):
            if log.queue(replica) or log.pointer(replica) != log.end:
                return f"CONVERGES: {seat} waits with entries left to pull or to execute"
            if memory.visible != tuple(log.parts):
                shown = ", ".join(part.name for part in memory.visible) or "nothing"
                return f"CONVERGES: {seat} shows {shown}, the table is {', '.join(part.name for part in log.parts)}"
        wrong = _wrong_leader(look, seat, name) if seat in look.model.candidates else None
        if wrong is not None:
            return f"CONVERGES: {wrong}"
        # Only a keeper forgets covered parts while its process runs.
        strays = set(log.registered(replica)) - {
            part.name for part in maximal(map(parse_part, log.registered(replica)))
        }
        if strays and seat in look.model.keepers:
            return f"CONVERGES: {name} has registered {', '.join(sorted(strays))}, which other parts cover"
        garbage = _garbage(look, name) + needless_old_parts(look, seat)
        if garbage:
            return f"CONVERGES: {name} keeps {', '.join(garbage)}, which nothing needs"
    lost = lost_parts_are_empty(look) if look.model.is_losing else None
    return all_are_counted(look) or fed_rows_are_given(look) or lost


def _left_to_do(look: Look) -> str | None:
    """Return what should have been done to the table."""
    first, cleaned_to = look.log.first, look.model.cleaned_to
    if first < cleaned_to:
        return f"the log still begins at {first}, it should begin at {cleaned_to}"
    servers = (memory for seat, memory in look.memories.items() if seat not in look.model.operators)
    if look.model.is_restoring and not good_replicas(look) and not any(memory.is_there for memory in servers):
        return "the table is not restored, and no process goes on with it"
    return unanswered(look.model, look.answers, look.memories)


def _wrong_leader(look: Look, seat: str, name: str) -> str | None:
    """Return what is wrong with the election for an active replica that stands for leader."""
    tree, parent = look.log.tree, layout.leader_election(look.log.table)
    nodes = [tree.get(f"{parent}/{node}") for node in tree.children(parent) or ()]
    # Children are ascending, and numbered in the order in which they were created: the first one leads.
    standing = [node.value.decode() for node in nodes if node is not None]
    if standing.count(name) != 1:
        return f"{name} stands for leader {standing.count(name)} times"
    if look.memories[seat].leads is not (standing[0] == name):
        return f"{name} believes {'' if look.memories[seat].leads else 'not '}to lead, the first is {standing[0]}"
    return None


def _garbage(look: Look, name: str) -> list[str]:
    """Return the rows that inserts have staged, or published, and that no entry still to be executed needs.

    Results that were made and not registered are left to the next start; so is what was fetched, or published twice.
    """
    if look.model.has_rivals:
        return []
    replica, disk = look.log.replica(name), look.disk(name)
    to_come = (*look.log.queue(replica), *look.log.since(look.log.pointer(replica)))
    wanted = {entry.insert for _, entry in to_come if isinstance(entry, GetEntry | RewriteEntry)}
    staged = [folder.staging for folder in disk.folders if result_of(folder.staging) is None]
    unneeded: list[str] = [staging for staging in staged if staging not in wanted]
    # Parts of own inserts whose rows the table has lost stay until the next start after a lost answer.
    if not HARMLESS.issuperset(look.model.faults) or look.model.duties:
        return unneeded
    log, registered = look.log, look.log.registered(replica)
    own = [
        inserted_part(part.partition, LogIndex(index))
        for index, entry in log.inserts
        if entry.replica == name
        for part in entry.parts
    ]
    gone = [part.name for part in own if log.parts.covering(part) is None and part.name not in registered]
    # What the feed needs stays as an old part: `F8`.
    return unneeded + [part for part in gone if disk.content(part) is not None and part not in disk.old]


Invariant = Callable[[Look], str | None]

READS: dict[Invariant, tuple[str, ...]] = {
    log_and_queue_give_the_table: (),
    pointers_are_valid: (),
    somebody_is_good: (),
    log_is_dense: (),
    inserts_are_applied_once: (),
    commands_are_given_once: (),
    restored_table_is_what_a_disk_had: (),
    tokens_go_with_lost_parts: (),
    nothing_is_made_of_lost_rows: (),
    parts_never_overlap: (),
    parts_have_their_rows: (),
    covered_rows_are_mutated: (),
    rewrites_apply_as_a_whole: (),
    clients_hear_whether_rewrites_apply: ("answers",),
    registered_parts_are_on_disk: ("disks",),
    no_process_gives_up: ("memories",),
    no_process_serves_ahead: ("memories",),
    failed_inserts_are_not_there: ("answers",),
    no_client_is_left_in_doubt: ("answers",),
    acknowledged_inserts_are_in_the_log: ("answers",),
    **dict.fromkeys(OF_ROWS, ("disks",)),
    quorums_end_once: (),
    failed_inserts_free_their_ids: (),
    acknowledged_inserts_are_settled: ("answers",),
    settled_rows_are_on_enough_disks: ("disks",),
    **dict.fromkeys(OF_STREAMS, ()),
}
"""The invariants of states, and what each looks at besides the tree."""

SEAT_READS = (revealed_parts_are_registered,)
"""Invariants that look at coordination, and at memory and disk of one seat after the other."""

NAMES: dict[str, str] = {
    "I1": "registered parts, queue and rest of the log give the fold of the log",
    "I2": "an acknowledged insert is in the log, and a replica has its rows",
    "AHEAD": "a replica that serves has exactly the table at its pointer",
    "I4": "of a replica that is not lost the entry at the pointer is there, or is yet to be written",
    "I5": "at least one replica is not lost",
    "DROPPED": "no replica is dropped while it is active",
    "I6": "no replica takes over the state of a lost or half-built one",
    "DENSE": "the log has every entry from its first one on",
    "I3": "an insert and a command are applied once",
    "I7": "active parts never overlap",
    "ROWS": "a part has the rows that the log gives it, each once, and the same content on every replica",
    "MUTATED": "a mutation changes every earlier row that its condition covers, and no other",
    "REWRITTEN": "a rewrite applies as a whole to the rows that it was made of, or not at all, and its client hears which",
    "SERIAL": "where a rewrite relies on partitions, they have no rows but those that its client has read",
    "WINDOW": "a deduplication id is forgotten only when it is not among the newest, or old",
    "NOTES": "the note of a drop stays as long as it frees an id",
    "KEPT": "what a detach removes is kept by a replica",
    "I8": "a read shows exactly the log below one position, and everything that it was promised to show",
    "I9": "a replaced process changes nothing",
    "QUORUM": "an insert with a quorum is settled or given up once; settled it is on as many disks, acknowledged it is settled",
    "TAGGED": "the parts of a tagged version are on the disk of the replica that made the tag",
    "F7": "what a consumer of the feed keeps is there until its hold ends, and its hold ends visibly",
    "F8": "what the feed tells of an insert is at its writer, although a later entry has removed it",
    "LOST": "no replica has what is declared lost, it is empty everywhere, and its token is free",
    "RESTORED": "a restored table has the parts that were whole on one disk, and all of them",
    "S1": "of the inserts of one batch of a stream at most one takes effect",
    "S2": "the last insert of a stream and the node that names it exist together or not at all",
    "S3": "a batch whose insert was given up is not taken: it may be sent again",
    "FILES": "a registered part is on disk",
    "SIGHT": "a part that reads show is registered and on disk, and reads show no row twice",
    "FAILED": 'no client hears "failed" of an insert that is in the log',
    "DOUBT": 'no client hears "unknown" of an insert where no answer was lost',
    "GAP": "no replica believes that entries are gone which are there",
    "STOP": "no process stops unless it was replaced",
    "CONVERGES": "when nothing is left to do, every replica has and shows the table, and no insert has left files behind",
}
"""Every invariant by the name with which a violation begins."""
