"""What must hold while a simulation runs, and at its end.

The observer sees every change of coordination, every answer, everything that is removed from a disk and everything that a read
shows, and checks what that could break (I2, I3, I8, I9, QUORUM, LOST, "failed", file before node, node before sight).  At the
end every invariant of `invariants` is checked in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from msgspec import UNSET

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ClientAnswer, Duplicate, Inserted, LogIndex, NotInserted, RequestId, Why
from replitree.protocol.core.entries import (
    AlterEntry,
    Command,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MutateEntry,
    RewriteEntry,
    SettleEntry,
    decode_entry,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.propose.propose import command_block
from replitree.protocol.state.registration import is_broken
from replitree.protocol.upkeep.consumers import NO_FLOOR, decode_consumer
from replitree_verify.engine.steps import Turn
from replitree_verify.process.lost_parts import kept_rows
from replitree_verify.process.read_requests import Shown, ShowRows, Told
from replitree_verify.rules.invariants import (
    READS,
    SEAT_READS,
    Invariant,
    Look,
    log_and_queue_give_the_table,
    log_is_dense,
    parts_have_their_rows,
    pointers_are_valid,
    quiet_states_agree,
    revealed_parts_are_registered,
    somebody_is_good,
)
from replitree_verify.rules.lost import is_lost_with
from replitree_verify.rules.quorum import (
    acknowledged_inserts_are_settled,
    failed_at,
    failed_between,
    failed_inserts_free_their_ids,
    quorums_end_once,
    settled_rows_are_on_enough_disks,
)
from replitree_verify.rules.rewrites import clients_hear_whether_rewrites_apply, rewrites_apply_as_a_whole
from replitree_verify.rules.rows import (
    consumers_have_their_feed,
    detached_rows_are_kept,
    inserted_rows_are_there,
    tagged_parts_are_there,
)
from replitree_verify.rules.streams import OF_STREAMS
from replitree_verify.simulation.options import Options
from replitree_verify.world.disk import Disk, requests_in
from replitree_verify.world.history import Log, tokens_of
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import TABLE, Ask, Duty, Insert, Model, Rewrite
from replitree_verify.world.windows import forgotten_between


class Violated(Exception):
    """An invariant does not hold."""


class Observer:
    """Checks a run, and counts the rare branches that it takes.

    Parameters
    ----------
    replicas, options
        Their names, and what the seed drew.
    tree, disks
        Coordination at the beginning, and the disks, which change in place.
    table
        Where the nodes of the table are.
    """

    def __init__(
        self,
        replicas: tuple[str, ...],
        options: Options,
        tree: Tree,
        disks: dict[str, Disk],
        table: TablePlace = TABLE,
    ) -> None:
        self.replicas, self._options, self.table = replicas, options, table
        self.tree = tree
        self.disks = disks
        self.tokens: dict[int, str] = {}
        self._inserts: dict[int, Insert] = {}
        self.commands: dict[int, Command] = {}
        self.rewrites: dict[int, Rewrite] = {}
        self.killed: set[str] = set()
        self._requests_of: dict[str, list[int]] = {}
        self._command_at: dict[str, int] = {}
        self.answers: dict[int, ClientAnswer] = {}
        self.told: dict[int, Told | None] = {}
        """What clients have heard: answers, and what reads have shown."""
        self.quorums: dict[int, int] = {}
        self.probes: Counter[str] = Counter()
        self.full: set[str] = set()
        self._rotten: dict[Part, str] = {}
        self._fragile: set[str] = set()
        self.on_answer: Callable[[int, Told], None] = lambda _request, _answer: None
        self.on_shown: Callable[[ShowRows, Shown], None] | None = None
        self.on_turn: Callable[[int, str, Turn], None] | None = None
        self.on_change: Callable[[Tree], None] | None = None
        self._log, self._killed = Log(tree, table, self.killed), 0
        self._registered: dict[str, frozenset[str]] = dict.fromkeys(replicas, frozenset())
        self._shown: dict[str, PartSet] = {}
        self._start_and_marks: tuple[object, ...] = ()
        self.is_dropping = False
        self.end = LogIndex(0)
        """The index of the entry that comes next."""
        self._at: dict[int, int] = {}
        self._blocks: dict[int, tuple[str, ...]] = {}
        self._batches: dict[int, StreamBatch] = {}
        self._token_at: dict[str, int] = {}
        self._removed: dict[str, set[str]] = {}

    def add(self, replica: str) -> None:
        """Look at one more replica."""
        self.replicas = (*self.replicas, replica)
        self._registered[replica] = frozenset()

    def is_needed(self, replica: str) -> bool:
        """Whether rows of the table may be on a replica's disk only."""
        others = {name: Disk() if name == replica else disk for name, disk in self.disks.items()}
        return not self.has_all_rows(others) or self.rotten_rows_are_kept(others) is not None

    def has_all_rows(self, disks: Mapping[str, Disk]) -> bool:
        """Whether these disks have all rows of the table that are not lost."""
        return inserted_rows_are_there(replace(self.look({}, ()), disks=dict(disks))) is None

    def seen(self, probe: str) -> None:
        """Count a rare branch."""
        self.probes[probe] += 1

    def rotted(self, part: Part, holder: str) -> None:
        """Expect the rows of an insert's part on one disk only; on none without a holder."""
        self.seen("rows left on one disk" if holder else "rows lost everywhere")
        self._rotten[part] = holder
        self._forgive()

    def _forgive(self) -> None:
        """Expect of a lost replica, which takes over another one's state, only that it keeps the rows that were left on it."""
        log = self._log_now()
        for part, holder in self._rotten.items():
            if not holder or not log.is_good(Replica(self.table, holder)):
                self._fragile.add(part.name)

    def rotten_rows_are_kept(self, disks: Mapping[str, Disk]) -> str | None:
        """KEPT: rows that were left on one disk are on some disk, in whatever form, as long as the table has them."""
        log = self._log_now()
        contents = [content for disk in disks.values() for content in (*disk.aside, *(each for _, each in disk.parts))]
        for part, holder in self._rotten.items():
            covering, requests = log.parts.covering(part), _requests(log, part)
            if not holder or covering is None or not requests <= _requests(log, covering):
                continue  # dropped, or no rows were left
            of_partition = (content for content in contents if content.startswith(f"{part.partition}:"))
            if not any(requests <= {*requests_in(content)} for content in of_partition):
                return f"KEPT: no replica has kept the rows of {part.name}, which were left on {holder}"
        return None

    def turn(self, now: int, who: str, turn: Turn) -> None:
        """Pass a turn on to the writer of the trace."""
        if self.on_turn is not None:
            self.on_turn(now, who, turn)

    def is_full(self, replica: str) -> bool:
        """Whether a replica's disk takes no more."""
        return replica in self.full

    # --- coordination ---------------------------------------------------------------------------------------------------

    def changed(self, tree: Tree, who: str, breach: str | None) -> None:
        """Check a change of coordination."""
        before, self.tree = self.tree, tree
        if self.on_change is not None and not self.is_dropping:
            self.on_change(tree)
        if breach is not None:
            raise Violated(breach)
        if self.is_dropping:
            return  # what is left of the table binds no process any more
        self._read_log(before)
        self._check_registered(tree, who)
        # The log's beginning and the marks of lost replicas change rarely: what depends on them is checked only then.
        marks = tuple(tree.get(layout.is_lost(Replica(self.table, name))) for name in self.replicas)
        start_and_marks = (tree.get(layout.log(self.table)), marks)
        if start_and_marks != self._start_and_marks:
            self._start_and_marks = start_and_marks
            self._forgive()
            self._refuse(pointers_are_valid, somebody_is_good, log_is_dense, log_and_queue_give_the_table)

    def _read_log(self, before: Tree) -> None:
        """Check the entries that are new."""
        while (node := self.tree.get(path := layout.log_entry(self.table, self.end))) is not None:
            entry, index = decode_entry(node.value, path), self.end
            self.end = next_index(index, entry)
            self._appended(before, entry, index)

    def _appended(self, before: Tree, entry: Entry, index: LogIndex) -> None:
        self._blocks[index] = tokens_of(entry) if isinstance(entry, GetEntry) else ()
        if isinstance(entry, GetEntry) and entry.stream is not UNSET:
            self._batches[index] = entry.stream
        if isinstance(entry, LostEntry):
            wrong = kept_rows(entry.part, Replica(self.table, entry.replica), before, self.disks)
            if wrong is not None:
                raise Violated(wrong)
            # A replica may have its rows on disk, not registered: it sets them aside (`rotten_rows_are_kept`).
            self._fragile.add(entry.part)
        if not isinstance(entry, GetEntry):
            self._check_command(index, entry)
            return
        for token in entry.blocks:
            first = self._token_at.get(token)
            may_come = first is None or forgotten_between(self.tree, token, first, index)
            if first is not None and not may_come and not self._was_dropped(first, index):
                raise Violated(f"I3: {token} is in the log twice, at {self._token_at[token]} and at {index}")
            self._token_at[token] = index
        if entry.stream is not UNSET:
            self._token_at[tokens_of(entry)[0]] = index
            self._refuse(*OF_STREAMS)
        requests = requests_in(entry.parts[0].content_hash)
        if sorted(self.tokens[request] for request in requests) != sorted(tokens_of(entry)):
            raise Violated(f"I3: entry {index} does not have the rows of the tokens that it names")
        for request in requests:
            self._at[request] = index
            if isinstance(self.answers.get(request), NotInserted):
                raise Violated(f"FAILED: request {request} was told that it failed, and is in the log at {index}")
        folder = self.disks[entry.replica].folder(entry.insert)
        if folder is None or folder.torn:
            raise Violated(f"I2: no replica has the rows of entry {index}")

    def _check_command(self, index: int, entry: Entry) -> None:
        """Check an entry that inserts nothing: a command is in the log once, and its clients did not hear that it failed."""
        if isinstance(entry, MutateEntry | RewriteEntry | DropEntry | AlterEntry):
            first = self._command_at.setdefault(entry.id, index)
            if first != index and not forgotten_between(self.tree, command_block(entry.id), first, index):
                raise Violated(f"I3: {entry.id} is in the log twice, at {first} and at {index}")
            for request in self._requests_of.get(entry.id, ()):
                own = request in self.rewrites or self.commands[request].replica == entry.replica
                if own or first == index:
                    self._at[request] = index
                if own and isinstance(self.answers.get(request), NotInserted):
                    raise Violated(f"FAILED: request {request} was told that it failed, and is in the log at {index}")
        if isinstance(entry, RewriteEntry):
            folder = self.disks[entry.replica].folder(entry.insert)
            if folder is None or folder.torn:
                raise Violated(f"I2: no replica has the rows of the rewrite {entry.id}")
            self._refuse(rewrites_apply_as_a_whole)
        if isinstance(entry, SettleEntry | FailEntry):
            self.seen("quorum settled" if isinstance(entry, SettleEntry) else "quorum failed")
            self._refuse(quorums_end_once, failed_inserts_free_their_ids, *OF_STREAMS)
            if not self.probes["part broken"] and not self._rotten:  # what has rotted is fetched again, some time
                self._refuse(settled_rows_are_on_enough_disks)

    def _refuse(self, *invariants: Invariant) -> None:
        look = self.look({}, ())
        for invariant in invariants:
            wrong = invariant(look)
            if wrong is not None:
                raise Violated(wrong)

    def _was_dropped(self, first: int, index: int) -> bool:
        log = Log(self.tree, self.table)
        if failed_between(first, index, log):
            return True
        (entry,) = (entry for at, entry in log.inserts if at == first)
        return all(
            log.dropped_between(part.partition, first, index) or is_lost_with(first, index, part.partition, log)
            for part in entry.parts
        )

    def _check_registered(self, tree: Tree, who: str) -> None:
        replica = Replica(self.table, who)
        if who not in self._registered:
            return
        names = tree.children(layout.parts(replica)) or ()
        known = self._registered[who]
        if len(names) == len(known) and known.issuperset(names):
            return
        self._registered[who] = frozenset(names)
        self._refuse(log_and_queue_give_the_table, parts_have_their_rows)
        for name in names:
            if name in known or self.disks[who].content(name) is not None:
                continue
            node = tree.get(layout.part(replica, name))
            assert node is not None
            # A recovery registers as broken what is broken at its source, too; what is lost may rot before it is registered.
            part = parse_part(name)
            if not is_broken(node.value) and not any(part.intersects(each) for each in self._rotten):
                raise Violated(f"FILES: {who} registered {name}, and its disk does not have it")

    # --- clients, disks, memory -----------------------------------------------------------------------------------------

    def asked(self, request: int, token: str, quorum: int = 0, batch: StreamBatch | None = None) -> None:
        """Note a client's request."""
        self.tokens[request] = token
        self._inserts[request] = Insert(self.replicas[0], ((request, token),), quorum=quorum, batch=batch)
        if quorum:
            self.quorums[request] = quorum

    def index_of(self, request: int) -> int | None:
        """Return where the log has what was asked for; None where it does not."""
        return self._at.get(request)

    def not_taken(self, request: int) -> None:
        """Forget a request that no replica takes: in a long run there are a great many."""
        del self.tokens[request], self._inserts[request]
        self.quorums.pop(request, None)

    def commanded(self, request: int, command: Command) -> None:
        """Note a client's command."""
        self.commands[request] = command
        self._requests_of.setdefault(command.id, []).append(request)
        if command.id in self._command_at:
            self._at[request] = self._command_at[command.id]

    def rewriting(self, rewrite: Rewrite) -> None:
        """Note a client's rewrite."""
        self.rewrites[rewrite.request] = rewrite
        self._requests_of.setdefault(rewrite.id, []).append(rewrite.request)

    def _repeats(self, request: RequestId, index: int) -> bool:
        """Return whether an entry has what was asked for: of a batch, that batch or a later one of its stream and query."""
        asked, found = self._inserts[request].batch, self._batches.get(index)
        if asked is not None and found is not None and asked.batch < found.batch:
            return (asked.stream, asked.query) == (found.stream, found.query)
        return self.tokens[request] in self._blocks.get(index, ())

    def answered(self, request: RequestId, answer: ClientAnswer) -> None:
        """Check an answer; the first one counts."""
        if request in self.answers or self.is_dropping:  # the log of a dropped table is not followed any more
            return
        self.answers[request] = self.told[request] = answer
        if self.quorums and isinstance(answer, Inserted | Duplicate):
            self._refuse(acknowledged_inserts_are_settled)
        if request in self.rewrites:
            self._refuse(clients_hear_whether_rewrites_apply)
        command = self.commands.get(request)
        # A command whose id was forgotten may be in the log again; the first one is an answer, too.
        places = (self._at.get(request), None if command is None else self._command_at.get(command.id))
        match answer:
            case NotInserted(why=Why.CHANGED):
                pass
            case Inserted(index) if index not in places:
                raise Violated(f"I2: request {request} was acknowledged at {index}, where the log does not have it")
            case Duplicate(None) if self._token_at.get(self.tokens.get(request, ""), 0) >= self._log_now().first:
                raise Violated(
                    f"I2: request {request} is said to be a duplicate of an insert that is gone, which it is not"
                )
            case Duplicate(int(index)) if not self._repeats(request, index):
                raise Violated(f"I2: request {request} is said to be a duplicate of {index}, which it is not")
            case NotInserted() if request in self._at:
                log, at, command = self._log_now(), self._at[request], self.commands.get(request)
                (entry,) = (entry for index, entry in log.raw if index == at)
                # A command may be in the log because the client gave it to another replica, too.
                is_own = command is None or entry.replica == command.replica
                if is_own and at not in failed_at(log):
                    raise Violated(f"FAILED: request {request} was told that it failed, and is in the log")
        self.on_answer(request, answer)

    def shown(self, effect: ShowRows, told: Told, breach: str | None) -> None:
        """Check what a read shows."""
        if self.on_shown is not None and isinstance(told, Shown):
            self.on_shown(effect, told)
        if breach is not None:
            raise Violated(breach)
        if isinstance(told, Shown):
            self.seen(f"{effect.level} read")
        self.told[effect.number] = told
        self.on_answer(effect.number, told)

    def removed(self, replica: str, before: Disk) -> None:
        """Check that what a replica has removed from its disk, which was so before, was not the last of its kind."""
        gone = {name for name, _ in before.parts} - {name for name, _ in self.disks[replica].parts}
        look = self.look({}, ())
        # An entry that is executed in part has taken out some of its sources.  They may go while no consumer reads the entry.
        # One that is made later, and before the entry is executed to its end, was never promised them.
        place, consumers = look.log.replica(replica), layout.consumers(look.log.table)
        queued = {index for index, _ in look.log.queue(place)} if self.tree.exists(layout.log_pointer(place)) else set()
        names = self.tree.children(consumers) or () if self.tree.exists(consumers) else ()
        nodes = (self.tree.get(f"{consumers}/{name}") for name in names)
        values = [decode_consumer(node.value, consumers) for node in nodes if node is not None]
        held_from = min((value.index for value in values if not value.expired), default=NO_FLOOR)
        unread = (parts for at, parts in look.log.fed_from(0).items() if at in queued and at < held_from)
        self._removed.setdefault(replica, set()).update(gone.difference(*unread))
        wrong = inserted_rows_are_there(look) or detached_rows_are_kept(look) or tagged_parts_are_there(look)
        wrong = wrong or consumers_have_their_feed(look)
        wrong = wrong or self.rotten_rows_are_kept(self.disks)
        if wrong is not None:
            raise Violated(wrong)

    def revealed(self, who: str, memory: Memory) -> None:
        """Check that a process shows only what it has registered."""
        if memory.held is not self._shown.get(who):
            self._shown[who] = memory.held
            # What rots just before it is shown is noticed a little later.
            look = self.look({who: memory}, (), (who,), fragile=self._fragile.union(part.name for part in self._rotten))
            wrong = revealed_parts_are_registered(look)
            if wrong is not None:
                raise Violated(wrong)

    # --- the whole ------------------------------------------------------------------------------------------------------

    def look(
        self,
        memories: Mapping[str, Memory],
        workers: tuple[str, ...],
        replicas: tuple[str, ...] | None = None,
        fragile: Collection[str] | None = None,
    ) -> Look:
        """Return the present state for the invariants."""
        inserts = tuple(self._inserts.values())
        seats = tuple((name, name) for name in replicas or self.replicas)
        commands = tuple(Ask(self.replicas[0], request, command) for request, command in self.commands.items())
        rot = sorted(self._fragile if fragile is None else fragile)
        duties = [Duty(self.replicas[0], "clean")]  # the log may be, and replicas may recover
        duties += (Duty(self.replicas[0], name, (part,)) for part in rot for name in ("break", "lose"))
        duties += [Duty(self.replicas[0], "clear")] if self._options.tags else []
        rewrites = tuple(replace(each, seat=self.replicas[0]) for each in self.rewrites.values())
        model = Model(
            "simulation", "", seats, inserts, {}, workers=workers, commands=commands, rewrites=rewrites, duties=tuple(duties),
            candidates=workers if self._options.elects else (), window=self._options.window,
        )  # fmt: skip
        answers: dict[int, ClientAnswer | None] = dict(self.answers)
        return Look(model, self._log_now(), answers, dict(self.disks), dict(memories), removed=self._removed)

    def _log_now(self) -> Log:
        """Return what coordination says now, and what was worked out of it already."""
        if self._log.tree is not self.tree or len(self.killed) != self._killed:
            self._log, self._killed = Log(self.tree, self.table, self.killed), len(self.killed)
        return self._log

    def check_all(self, memories: Mapping[str, Memory]) -> None:
        """Check every invariant, and that nothing is left to do."""
        look = self.look(memories, self.replicas)
        # Rows that have rotted since their insert was settled are on fewer disks, or on none.
        left_out = {settled_rows_are_on_enough_disks} if self._rotten else set()
        for invariant in (each for each in (*READS, *SEAT_READS, quiet_states_agree) if each not in left_out):
            wrong = invariant(look)
            if wrong is not None:
                raise Violated(wrong)


def _requests(log: Log, part: Part) -> frozenset[int]:
    return frozenset(int(row.partition("~")[0]) for row in log.lineage[part].rows)
