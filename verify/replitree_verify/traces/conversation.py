"""Conversations: what the procedures say and hear in one given order of events, as text.

A conversation is written as blocks: what shall happen, a line of dashes, and then what the procedures did.  The upper half is
written by people, the lower half by `perform`, and reviewed as a diff.  Lines that begin with ``#`` say what it is about.

What can happen::

    replicas r1 r2                       the table is there, these replicas are active
    rival x1 of r1                       a second process of r1, not started yet
    insert r1 a,b [fault=F] [until=V] [quorum=N] [query=Q]
                                         a group of requests with these tokens; F: answer-lost, in-flight, on its commit;
                                         V: stop after the first effect of that kind (stage, commit, publish), or after
                                         the third (commit:3); Q: the token ``s.1`` is batch 1 of stream s, sent by this query
    forget-stream r1 s                   an operator lets the table forget a stream
    go-on r1                             what was stopped goes on; who waits for a quorum in vain loses patience
    merge r1 p,q                         the leader of r1 proposes to merge these parts
    mutate r1 x, drop r1 all             a command
    rewrite r1 p/1~w,q/ [new=2~w+9] [since=N] [fault=F] [until=V]
                                         a rewrite w: which rows the parts p and q have from here on, and which a new part has;
                                         N: the position at which the whole table was read, on which it relies
    pull r1, execute r1 [until=V]        until there is nothing more to do (execute: but for merges and mutations), or V
    make r1 [until=V]                    merges and mutations, until there is nothing more to do, or V (merge, publish)
    kill r1                              the process dies
    start r1 [until=V]                   a process starts, or activates again; V: fetchmany, detach, ...
    stop r1                              the process dies, and its session ends
    new r3                               a replica that has not joined the table; its process is not started yet
    clean r1 keep=A,B [until=V]          r1 cleans the log: A entries stay, who is inactive may be B behind
    drop-replica r1 [until=V]            an operator takes a replica out of the table, or does what is left of it
    roll r1                              r1 lets the log go on below a fresh parent
    forget-ids r1 count=N [until=V]      r1 forgets deduplication ids: the newest N stay
    keep-old                             files of parts that leave the table stay from now on
    tag r1 NAME version=N [until=V]      r1 gives the version at index N a name
    consume r1 NAME begin=N [until=V]    r1 makes a consumer of the change feed that begins at index N
    advance r1 NAME to=N                 r1 moves it there
    expire r1 NAME [until=V]             r1 finds its hold to be over, and marks it
    clear r1 [until=V]                   r1 deletes the old parts that no tag and no consumer keeps
    feed r1 [from=N]                     a reader asks r1 for the change feed, from index N or from its beginning on
    wipe                                 every process dies, and coordination loses everything
    restore r1 [until=V]                 an operator makes the parts on r1's disk the table (kill op: the run is cut off)
    lose r1                              the mark says that a replica is lost
    break r1 p                           a part of r1 rots, and r1 notes in its registration that it is broken
    survive r1                           an operator declares a replica's state the table's
    end-session r1                       coordination gives the session of r1's process up
    late                                 requests in flight are applied, as far as coordination takes them
    state                                the log, the replicas, the clients
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.errors import BadInput, ReplicaUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import EVERY_PARTITION, Command, DropEntry, MergeEntry, MutateEntry, Unchanged
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.membership.table import LOST
from replitree.protocol.program import cleaner, commands, executor, inserter, leader, life, puller, rewriter, tagger
from replitree.protocol.program.stages import AwaitDecided, AwaitPulled, Then
from replitree.protocol.propose.rewrite import Rewriting
from replitree.protocol.upkeep.clean_log import Keep
from replitree.wire.feed_errors import OffsetExpired
from replitree_verify.effects.table import branches
from replitree_verify.engine.initial import table_tree
from replitree_verify.engine.steps import Turn
from replitree_verify.feeds.asking import ask, noted, rows_on, written_in
from replitree_verify.feeds.desk import Standing
from replitree_verify.feeds.rows import emitted
from replitree_verify.outcomes.branch import Branch, Request, Scene
from replitree_verify.outcomes.branches import deliver
from replitree_verify.outcomes.local import Here
from replitree_verify.process import longlife, lost_parts, restore_duties, upkeep
from replitree_verify.process.read_requests import Told
from replitree_verify.process.restore_duties import wiped
from replitree_verify.rules.invariants import Look
from replitree_verify.traces.trace import line_of, state_of
from replitree_verify.world.disk import Disk
from replitree_verify.world.faults import Fault
from replitree_verify.world.history import Log
from replitree_verify.world.kernel import Stage
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import TABLE, Ask, Insert, Model, Rewrite, first_session, me_of
from replitree_verify.world.mutation_scope import has_condition

DASHES = "----"
OPERATOR = "op"

_FATES = {"answer-lost": "applied, answer lost", "in-flight": "no answer"}


@dataclass(slots=True)
class _Stopped:
    """A procedure that stands still, and the outcome that it will hear next; or the effect that it waits for."""

    procedure: fx.Procedure[Any]
    outcome: Any
    effect: Any = None


class Conversation:
    """A cluster in which exactly what is said happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._tree = Tree()
        self._disks: dict[str, Disk] = {}
        self._memories: dict[str, Memory] = {}
        self._replica_of: dict[str, str] = {}
        self._flight: list[Request] = []
        self._answers: dict[int, Told | None] = {}
        self._tokens: dict[int, str] = {}
        self._commands: dict[int, Command] = {}
        self._rewrites: tuple[Rewrite, ...] = ()
        self._stopped: dict[str, _Stopped] = {}
        self._fault: str | None = None
        self._keeps_old = False
        run, replica_of = self._run, self._replica_of
        self._known: dict[str, Callable[..., None]] = {
            "replicas": self._replicas,
            "rival": lambda seat, _of, replica: self._seat(seat, replica),
            "insert": self._insert,
            "go-on": self._go_on,
            "pull": lambda seat: run(seat, puller.pull_next, 1),
            "execute": lambda seat, until=None: run(seat, executor.execute_next, until=until),
            "make": lambda seat, until=None: run(seat, executor.make_next, until=until),
            "merge": lambda seat, parts: run(
                seat, leader.lead, (MergeEntry(replica_of[seat], tuple(parts.split(","))),)
            ),
            "mutate": lambda seat, what: self._ask(seat, MutateEntry(seat, self._new_id(), EVERY_PARTITION, what)),
            "rewrite": self._rewrite,
            "drop": lambda seat, partition: self._ask(seat, DropEntry(seat, self._new_id(), partition)),
            "kill": self._kill,
            "start": self._start,
            "stop": lambda seat: self._kill(seat, with_session=True),
            "new": self._new,
            "clean": lambda seat, keep, until=None: run(
                seat, cleaner.clean_entries, Keep(*map(int, keep.split(","))), until=until
            ),
            "drop-replica": lambda name, until=None: run(self._operator(), longlife.drop_other, name, until=until),
            "roll": lambda seat: run(seat, leader.roll, 0),
            "forget-ids": lambda seat, count, until=None: run(seat, upkeep.forget_ids, int(count), 0, until=until),
            "forget-stream": lambda seat, stream, until=None: run(seat, cleaner.forget_stream, stream, until=until),
            "keep-old": self._keep_old,
            "tag": lambda seat, name, version, until=None: run(
                seat, tagger.make_tag, name, fx.LogIndex(int(version)), until=until
            ),
            "consume": lambda seat, name, begin, until=None: run(
                seat, tagger.make_consumer, name, fx.LogIndex(int(begin)), until=until
            ),
            "advance": lambda seat, name, to: run(seat, tagger.move_consumer, name, fx.LogIndex(int(to))),
            "expire": lambda seat, name, until=None: run(seat, tagger.expire_consumer, name, until=until),
            "clear": lambda seat, until=None: run(seat, tagger.remove_next, until=until),
            "feed": self._feed,
            "wipe": self._wipe,
            "restore": lambda name, until=None: run(self._operator(), restore_duties.restore_disk, name, until=until),
            "lose": self._lose,
            "break": self._break,
            "survive": lambda name: run(self._operator(), longlife.declare_survivor, name),
            "end-session": self._end_session,
            "late": self._late,
            "state": self._state,
        }

    # --- what can happen ------------------------------------------------------------------------------------------------

    def do(self, command: str) -> None:
        """Let one line of a conversation happen.

        Raises
        ------
        BadInput
            It has no meaning.
        """
        verb, *words = command.split()
        told = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        if verb not in self._known:
            raise BadInput(f"{command!r}: use one of {', '.join(self._known)}")
        self._known[verb](*names, **told)

    def _replicas(self, *names: str) -> None:
        self._tree = table_tree(names)
        for name in names:
            self._seat(name, name)
            self._disks[name] = Disk()
            self._run(name, life.become_active, shown=False)
            self.lines.append(f"{name:<3} active, epoch {self._memories[name].epoch}")

    def _keep_old(self) -> None:
        self._keeps_old = True
        self.lines.append("files of parts that leave the table stay")

    def _seat(self, seat: str, replica: str) -> None:
        self._replica_of[seat] = replica
        self._memories[seat] = Memory(0, first_session(len(self._memories)))

    def _insert(
        self,
        seat: str,
        tokens: str,
        fault: str | None = None,
        until: str | None = None,
        quorum: str = "0",
        query: str | None = None,
    ) -> None:
        first = self._new_request()
        requests = tuple(enumerate(tokens.split(","), first))
        self._tokens.update(requests)
        self._fault = None if fault is None else _FATES[fault]
        of_stream: tuple[Any, ...] = ()
        if query is not None:
            stream, _, number = tokens.rpartition(".")
            of_stream = (1, StreamBatch(fx.StreamId(stream), query, int(number)))
        self._run(seat, inserter.accept_insert, requests, (), int(quorum), *of_stream, until=until)

    def _go_on(self, seat: str) -> None:
        stopped = self._stopped.pop(seat)
        outcome = stopped.outcome
        if stopped.effect is not None:
            # It waits for a quorum, and waits no longer, or for a pull: it goes on with what the effect ends with now.
            branch = self._choose(stopped.effect, self._scene(seat))
            assert branch is not None
            outcome = self._take(seat, stopped.effect, branch, shown=True)
        self._drive(seat, stopped.procedure, outcome, until=None, shown=True)

    def _new_id(self) -> fx.EntryId:
        return fx.EntryId(f"e{self._new_request()}")

    def _new_request(self) -> int:
        return len(self._tokens) + len(self._commands) + len(self._rewrites) + 1

    def _ask(self, seat: str, command: Command) -> None:
        request = int(command.id[1:])
        self._commands[request] = command
        self._run(seat, commands.accept_command, fx.RequestId(request), command, has_condition(command))

    def _rewrite(
        self,
        seat: str,
        parts: str,
        new: str = "",
        since: str | None = None,
        fault: str | None = None,
        until: str | None = None,
    ) -> None:
        results = tuple(each.partition("/")[::2] for each in parts.split(","))
        contents = tuple((source, f"{parse_part(source).partition}:{rows}") for source, rows in results)
        request = self._new_request()
        relied = None if since is None else Unchanged((EVERY_PARTITION,), int(since))
        inserts = (("all", f"all:{new}"),) if new else ()
        rewrite = Rewrite(seat, request, fx.EntryId("w"), contents, inserts, relied)
        self._rewrites += (rewrite,)
        self._fault = None if fault is None else _FATES[fault]
        rewriting = Rewriting(rewrite.id, unchanged=relied)
        self._run(seat, rewriter.accept_rewrite, fx.RequestId(request), rewriting, until=until)

    def _kill(self, seat: str, *, with_session: bool = False) -> None:
        old = self._memories[seat]
        self._memories[seat] = Memory(old.incarnation + 1, old.session + 1)
        self._stopped.pop(seat, None)
        # A session that does not end with its process leaves what is ephemeral, and requests in flight may still be applied.
        if with_session:
            self._tree = self._tree.expire(old.session)

    def _start(self, seat: str, until: str | None = None) -> None:
        if self._memories[seat].state is State.OFF:
            self._memories[seat] = replace(self._memories[seat], state=State.STARTING)
        self._run(seat, life.become_active, until=until)

    def _new(self, seat: str) -> None:
        self._seat(seat, seat)
        self._disks[seat] = Disk()

    def _feed(self, seat: str, **told: str) -> None:
        name, log, memory = self._replica_of[seat], Log(self._tree), self._memories[seat]
        assert memory.place is not None
        entries, disk = written_in(log), self._disks[name]
        # A conversation keeps no version log: it is written for each question, from the first entry on.
        known = noted(Standing(name), memory.place.pointer.index, entries)
        try:
            fed = ask(known, memory, disk, entries, fx.LogIndex(int(told["from"])) if "from" in told else None)
        except (OffsetExpired, ReplicaUnavailable) as error:
            self.lines.append(f"{seat:<3} feed      {error}")
            return
        self.lines.append(f"{seat:<3} feed      from {fed.start} up to {fed.reached}")
        for index, us, feed in fed.entries:
            rows = ", ".join(f"{kind} {row}" for kind, row in emitted(feed.units, us, rows_on(disk)).rows)
            self.lines.append(f"  entry {index}   {rows or 'nothing'}")

    def _wipe(self) -> None:
        self._tree = wiped(self._tree, self._disks)
        self._flight = []
        for seat, old in self._memories.items():
            self._memories[seat] = Memory(old.incarnation + 1, old.session + 1, state=State.OFF)

    def _lose(self, name: str) -> None:
        path = layout.is_lost(Replica(TABLE, name))
        self._tree, _ = self._tree.commit((fx.Set(path, LOST, fx.ANY_VERSION),), session=1)

    def _break(self, seat: str, part: str) -> None:
        replica = self._replica_of[seat]
        self._disks[replica] = self._disks[replica].without_parts(part)
        self._run(seat, lost_parts.notes_unsearched, part)

    def _operator(self) -> str:
        if OPERATOR not in self._memories:
            self._new(OPERATOR)
        return OPERATOR

    def _end_session(self, seat: str) -> None:
        memory = self._memories[seat]
        self._tree = self._tree.expire(memory.session)
        # ZooKeeper applies no request of a session after its end.
        self._flight = [request for request in self._flight if request.session != memory.session]
        self._memories[seat] = replace(memory, session=memory.session + 1).with_trouble()

    def _late(self) -> None:
        flight, self._flight = self._flight, []
        for request in flight:
            self._tree, outcome, breach = deliver(request, self._tree)
            assert breach is None, breach
            self._write(request.me.decode()[:-1], Turn(request, outcome))

    def _state(self) -> None:
        inserts = tuple(Insert("", ((request, token),)) for request, token in self._tokens.items())
        commands = tuple(Ask("", request, command) for request, command in self._commands.items())
        seats = tuple((seat, name) for seat, name in self._replica_of.items() if seat != OPERATOR)
        model = Model("", "", seats, inserts, {}, commands=commands, rewrites=self._rewrites)
        self.lines += state_of(Look(model, Log(self._tree), self._answers, self._disks, self._memories))

    # --- procedures -----------------------------------------------------------------------------------------------------

    def _run(self, seat: str, stage: Stage, *arguments: Any, until: str | None = None, shown: bool = True) -> None:
        """Run a thread from a stage on, as long as it does not wait."""
        replica, me = self._place(seat)
        # An activation writes the name of its process to the host node; inserts and commands get it with `Accepted`.
        first = (replica, me) if stage is life.become_active else (replica,)
        self._drive(seat, stage(*first, *arguments), None, until=until, shown=shown)

    def _drive(self, seat: str, procedure: fx.Procedure[Any], outcome: Any, *, until: str | None, shown: bool) -> None:
        kind, _, count = (until or "").partition(":")
        left = int(count or 1)
        while True:
            try:
                effect = procedure.send(outcome)
            except StopIteration as stop:
                if not isinstance(stop.value, Then):
                    return
                procedure, outcome = stop.value.stage(*stop.value.arguments), None
                continue
            branch = self._choose(effect, self._scene(seat))
            if isinstance(effect, AwaitDecided) and (branch is None or not branch.outcome.is_decided):
                self._stopped[seat] = _Stopped(procedure, None, effect)
                return
            if branch is None:
                if isinstance(effect, AwaitPulled):
                    self._stopped[seat] = _Stopped(procedure, None, effect)
                return
            outcome = self._take(seat, effect, branch, shown=shown)
            left -= kind == type(effect).__name__.lower()
            if not left:  # without `until` it counts nothing, and never gets there
                self._stopped[seat] = _Stopped(procedure, outcome)
                return

    def _choose(self, effect: Any, scene: Scene) -> Branch | None:
        """Return how an effect ends: without a fault, or with the one that was asked for; None while it waits."""
        ways = list(branches(effect, scene))
        appends = isinstance(effect, fx.Commit) and any(
            isinstance(each, fx.Create) and each.sequential for each in effect.operations
        )
        # The fault waits for the commit that appends to the log: a procedure may renew its epoch first.
        if self._fault is not None and appends:
            fate, self._fault = self._fault, None
            return next(way for way in ways if way.fate == fate)
        return ways[0] if ways else None

    def _take(self, seat: str, effect: Any, branch: Branch, *, shown: bool) -> Any:
        """Let an effect end as it ends, and write it down if it is to be shown; return its outcome."""
        assert branch.breach is None, branch.breach
        self._tree = branch.here.tree
        self._memories[seat] = branch.here.memory
        self._disks[self._replica_of[seat]] = branch.here.disk
        for request, answer in branch.answers:
            self._answers.setdefault(request, answer)  # a client believes the first answer
        if branch.sent is not None:
            self._flight.append(branch.sent)
        if shown:
            self._write(seat, Turn(effect, branch.outcome, branch.fate))
        return branch.outcome

    def _scene(self, seat: str) -> Scene:
        replica, me = self._place(seat)
        memory, disk = self._memories[seat], self._disks[replica.name]
        here = Here(
            replica,
            me,
            memory,
            disk,
            self._tree,
            self._disks,
            ("all",),
            rewrites=self._rewrites,
            keeps_old=self._keeps_old,
        )
        return Scene(here, None, self._memories, frozenset({Fault.UNKNOWN}))

    def _place(self, seat: str) -> tuple[Replica, bytes]:
        return Replica(TABLE, self._replica_of[seat]), me_of(seat, self._memories[seat].incarnation)

    def _write(self, seat: str, turn: Turn) -> None:
        line = line_of(seat, self._replica_of[seat], turn)
        if line is not None:
            self.lines.append(line)


def perform(text: str) -> str:
    """Return a conversation with its lower halves written anew.

    Parameters
    ----------
    text
        A conversation; what is below the dashes may be missing or wrong.

    Raises
    ------
    BadInput
        A line has no meaning.
    """
    conversation = Conversation()
    blocks = []
    for block in text.strip().split("\n\n"):
        asked = block.split(f"\n{DASHES}")[0].splitlines()
        conversation.lines = []
        commands = [line for line in asked if not line.startswith("#")]
        for command in commands:
            conversation.do(command)
        said = [line.rstrip() for line in conversation.lines]
        blocks.append("\n".join([*asked, *([DASHES, *said] if commands else [])]))
    return "\n\n".join(blocks) + "\n"
