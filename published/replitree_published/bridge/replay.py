"""Replay what a running cluster did at coordination, commit by commit, and follow it on the packed models.

Every commit of the traces is done again on a tree in memory, and must end there as it ended then.  What the table looks like
after each is followed on cleaning as a whole (`cleaning`), and for each insert by itself on quorum inserts (`quorum`) and on
replication (`lives`): what these packed models do to all inserts they do to each, so a run of the whole is a run of each.
Answers to clients are steps of their inserts; an answer for which no trace has an insert is wrong.

*What no trace says.*  A commit without an answer took place or not; a session ends when coordination says so.  So when a commit
does not end as it did, or has no way, the replay looks whether it would after one of these, or a few; the fewest count.  It may
be needed long after its last chance (what a killed process registered is seen when the next one takes it away): then everything
is replayed once more, with it at its last chance.  Where there are too many to try them all, it is undecided.

*What is not there.*  Traces have to begin before the table's first insert and before its replicas join.  Commands that change
coordination themselves (`table create`, the drop of a replica) leave no trace: of the table's first nodes the replay takes for
granted that they were there, anything else is a change that nobody has made, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from operator import itemgetter

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import decode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree_published.bridge.cleaning import CLEANING
from replitree_published.bridge.explored import wrong_step
from replitree_published.bridge.lives import Lives
from replitree_published.bridge.mapping import Follower, Undecided
from replitree_published.bridge.outline import Outline, outline_of
from replitree_published.bridge.single import Inserts
from replitree_published.bridge.traces import Done, Heard, Traces

GUESSES_MAX = 5
"""Commits without an answer, and ends of sessions, of which all choices are tried; of more, only those of up to `FEW`."""

FEW = 3
MISSED_MAX = 4
MISSED_FEW = 2
"""The same for those that missed their last chance: each choice is a replay of everything."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The end of a session, of which no trace says when it was."""

    session: int


@dataclass(slots=True)
class Replay:
    """The replay of one table.

    Attributes
    ----------
    table, names
        Where it lies, and its replicas.
    cleaning, inserts, lives
        Who follows it.
    tree
        Coordination so far.
    forced
        Commits without an answer that took place just before an event, by the event's number.
    missed
        Those that were not needed when they had their last chance, each with the number of the event that took it.
    """

    table: TablePlace
    names: tuple[str, ...]
    cleaning: Follower
    inserts: Inserts
    lives: Lives
    tree: Tree = field(default_factory=Tree)
    forced: Mapping[int, tuple[Done, ...]] = field(default_factory=dict)
    missed: list[tuple[int, Done]] = field(default_factory=list)
    _doubts: list[Done] = field(default_factory=list)
    _met: set[str] = field(default_factory=set)
    _offsets: dict[str, int] = field(default_factory=dict)

    def follow(self, traces: Traces) -> tuple[int, str | None]:
        """Replay everything; return how many events there were up to the end or the first that is wrong, and what is wrong."""
        forced = {each for some in self.forced.values() for each in some}
        self._doubts = [each for each in traces.doubts if each.table == self.table.path and each not in forced]
        for number, event in enumerate(traces.events):
            wrong = None
            if isinstance(event, Heard):
                wrong = self.inserts.hear(event.told) if event.told.table == self.table.path else None
            elif event.table == self.table.path:
                wrong = self._explain(event, self.forced.get(number, ()))
                self._take_chances(number)
            if wrong is not None:
                return number + 1, f"{wrong} ({event.place})"
        return len(traces.events), None

    def _take_chances(self, number: int) -> None:
        """Note which commits without an answer can't take place any more after an event."""
        late = [each for each in self._doubts if self._is_too_late(each)]
        self.missed += [(number, each) for each in late]
        self._doubts = [each for each in self._doubts if each not in late]

    # --- one commit, and what may have happened before it -----------------------------------------------------------------

    def _explain(self, event: Done, forced: tuple[Done, ...]) -> str | None:
        """Replay a commit; if it can't be, with as few as possible of the things before it that may have happened."""
        first = self._try((*forced, event))
        if first is None or forced:
            return first
        candidates = self._candidates(event.zxid)
        is_all = len(candidates) <= GUESSES_MAX
        for count in range(1, (len(candidates) if is_all else FEW) + 1):
            for chosen in combinations(candidates, count):
                for order in permutations(chosen):
                    if self._try((*order, event)) is None:
                        self._doubts = [each for each in self._doubts if each not in chosen]
                        return None
        if is_all:
            return first
        raise Undecided(
            f"{event.place}: any of {len(candidates)} things may have happened before, and no {FEW} explain it"
        )

    def _candidates(self, zxid: int) -> list[Done | Expired]:
        doubts = [each for each in self._doubts if each.zxid < zxid]
        owners = {self.tree.owner(layout.is_active(Replica(self.table, name))) for name in self.names}
        sessions = [Expired(owner) for owner in sorted(owner for owner in owners if owner)]
        return [*sessions, *sorted(doubts, key=lambda each: each.zxid)]

    def _is_too_late(self, doubt: Done) -> bool:
        """Whether a commit can't take place any more: the version of a node has gone beyond what it asks for."""
        for operation in map(self._as_here, doubt.operations):
            node = self.tree.get(operation.path)
            if node is not None and not isinstance(operation, fx.Create) and node.version > operation.version >= 0:
                return True
        return False

    def _try(self, steps: tuple[Done | Expired, ...]) -> str | None:
        """Do these steps, all or none; return what is wrong with one."""
        kept = self.tree, set(self._met), dict(self._offsets)
        self.inserts.stay()
        self.lives.stay()
        for step in steps:
            wrong = self._step(step)
            if wrong is not None:
                self.tree, self._met, self._offsets = kept
                self.inserts.go_back()
                self.lives.go_back()
                return wrong
        return None

    def _step(self, step: Done | Expired) -> str | None:
        before = self.tree
        created: tuple[str, ...] = ()
        if isinstance(step, Expired):
            self.tree = before.expire(step.session)
        else:
            created_here = {each.path for each in step.operations if isinstance(each, fx.Create)}
            for operation in step.operations:
                if (
                    isinstance(operation, fx.Create) or operation.path not in created_here
                ):  # else it was not there before
                    self._meet(operation)
            before = self.tree
            operations = tuple(self._as_here(operation) for operation in step.operations)
            after, outcome = before.commit(operations, step.session)
            if not isinstance(outcome, fx.Applied):
                return f"TRACE: what was done can't be done: {outcome.reason.value} of {outcome.operation.path}"
            if step.created is not None and outcome.created != step.created:
                made = ", ".join(sorted({*step.created} - {*outcome.created}))
                return f"TRACE: {made} was made, of which what comes before is in no trace"
            self.tree, created = after, outcome.created
            self._note(step.operations, created)
        return self._judge(before, step, created)

    def _judge(self, before: Tree, step: Done | Expired, created: tuple[str, ...]) -> str | None:
        was, here = self._outline(before), self._outline(self.tree)
        if was is not None and here is not None and was != here:
            wrong = wrong_step(self.cleaning, was, here)
            if wrong is not None:
                return wrong
        operations = () if isinstance(step, Expired) else step.operations
        values = dict(zip(created, (op.value for op in operations if isinstance(op, fx.Create)), strict=True))
        for path, value in sorted(values.items()):
            if "/log-" in path and value:
                self.inserts.note(layout.index_of(self.table, path), decode_entry(value, path))
        return self.inserts.look(self.tree) or self.lives.look(self.tree)

    def _outline(self, tree: Tree) -> Outline | None:
        """Return the outline; None before the table is there."""
        return outline_of(tree, self.table, self.names) if tree.exists(layout.log(self.table)) else None

    # --- what was there before ----------------------------------------------------------------------------------------------

    def _meet(self, operation: fx.Operation) -> None:
        """Take for granted that a node of the table itself was there, when it is first spoken of."""
        path = operation.path.rpartition("/")[0] if isinstance(operation, fx.Create) else operation.path
        if path in self._met or not self._is_given(path):
            return
        given = [part for part in _with_parents(path) if not self.tree.exists(part)]
        value = encode_log(self.table)
        operations = [fx.Create(part, value if part == layout.log(self.table) else b"") for part in given]
        self.tree, _ = self.tree.commit(operations, session=1)
        self._met.update(given)
        if isinstance(operation, fx.Check | fx.Set | fx.Delete) and operation.version > 0:
            self._offsets[path] = operation.version

    def _is_given(self, path: str) -> bool:
        """Whether a node is there from the table's creation on."""
        inside = path.removeprefix(self.table.path)
        return inside.count("/") <= 1 or inside in ("/quorum/status", "/open/log")

    def _as_here(self, operation: fx.Operation) -> fx.Operation:
        """Return an operation with the version that its node has here."""
        if isinstance(operation, fx.Create) or operation.version < 0:
            return operation
        version = operation.version - self._offsets.get(operation.path, 0)
        if isinstance(operation, fx.Set):
            return fx.Set(operation.path, operation.value, version)
        return type(operation)(operation.path, version)

    def _note(self, operations: tuple[fx.Operation, ...], created: tuple[str, ...]) -> None:
        self._met.update(path for path in created if self._is_given(path))
        for operation in operations:
            if isinstance(operation, fx.Delete):
                self._offsets.pop(operation.path, None)


def _with_parents(path: str) -> Iterator[str]:
    for end, letter in enumerate(path):
        if letter == "/" and end:
            yield path[:end]
    yield path


def replay_table(traces: Traces, path: str) -> tuple[int, Replay, str | None]:
    """Replay one table; return how many events there were, who followed them, and what is wrong.

    If no guess about commits without an answer explains everything, the answer is that of the guess that comes furthest.

    Raises
    ------
    BadInput
        The table was made anew, its log goes on below a second parent, or an insert needs more replicas than the packed
        model has.
    Undecided
        A search for a way has reached its limit.
    """
    done = [*(each for each in traces.events if isinstance(each, Done)), *traces.doubts]
    spoken_of = re.compile(rf"{re.escape(path)}/{layout.REPLICAS}-?(\w*)/([^/]+)")
    found = [spoken_of.match(operation.path) for each in done for operation in each.operations]
    replicas = {(each[1], each[2]) for each in found if each is not None}
    incarnations = {incarnation for incarnation, _ in replicas}
    if len(incarnations) > 1:
        raise BadInput(f"{path} was made anew while it was traced, by a drop or a restore: trace each table by itself")
    table, names = TablePlace(path, incarnation="".join(incarnations)), tuple(sorted(name for _, name in replicas))
    first = furthest = _replay(table, names, traces, {})
    _, replay, wrong = first
    if wrong is None or not replay.missed:
        return first
    is_all = len(replay.missed) <= MISSED_MAX
    for count in range(1, (len(replay.missed) if is_all else MISSED_FEW) + 1):
        for chosen in combinations(replay.missed, count):
            again = _replay(table, names, traces, _by_event(chosen))
            if again[2] is None:
                return again
            furthest = max(furthest, again, key=itemgetter(0))  # a wrong guess ends early, at what a right one explains
    if is_all:
        return furthest
    raise Undecided(
        f"{wrong}; unless some of {len(replay.missed)} commits without an answer took place, and no {MISSED_FEW} do"
    )


def _replay(
    table: TablePlace, names: tuple[str, ...], traces: Traces, forced: Mapping[int, tuple[Done, ...]]
) -> tuple[int, Replay, str | None]:
    followed = Follower(CLEANING, len(names)), Inserts.of(table, names), Lives.of(table, names)
    replay = Replay(table, names, *followed, forced=forced)
    count, wrong = replay.follow(traces)
    return count, replay, wrong


def _by_event(chosen: Sequence[tuple[int, Done]]) -> dict[int, tuple[Done, ...]]:
    """Group commits by the event before which they took place, each group in the order in which it was sent."""
    found: dict[int, tuple[Done, ...]] = {}
    for number, doubt in sorted(chosen, key=lambda each: each[1].zxid):
        found[number] = (*found.get(number, ()), doubt)
    return found
