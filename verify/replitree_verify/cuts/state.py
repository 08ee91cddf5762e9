"""The states of a model of cuts, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, SettleEntry, encode_entry, quorum_of
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.stamps import BEFORE_ALL, StampedNode, Zxid
from replitree.protocol.insert.quorum import FIRST_VERSION
from replitree.protocol.sharded.cut import CutEnd, clock
from replitree.protocol.sharded.joint_insert import JointInsert
from replitree.protocol.sharded.prepare import Participant
from replitree_verify.world.faults import Budget

SHARDS = (TablePlace("/c/tables/d~0", incarnation="s0"), TablePlace("/c/tables/d~1", incarnation="s1"))
SEATS = ("a", "b", "c", "d")
# Seats a and c are replicas of the first shard, b and d of the second: the shard of a seat is its number modulo 2.
REPLICAS = tuple(Replica(SHARDS[number % 2], seat) for number, seat in enumerate(SEATS))
PLACE = layout.sharded("/c", "d")
ENSEMBLE = "e"
NOT_BEGUN = -1
EPOCH = fx.Epoch(0)

Rows = tuple[str, ...]
"""What a shard shows: the joint inserts of its parts, each with the command that has changed it last."""


class Heard(NamedTuple):
    """A replica answers a reader."""

    outcome: Any


class Moment(NamedTuple):
    """The tree after a transaction, and the stamps of the logs and the clock in it, ascending."""

    tree: Tree
    stamps: tuple[tuple[str, tuple[Zxid, Zxid]], ...]


class Written(NamedTuple):
    """An entry that has come, at the transaction that appended it."""

    at: fx.LogIndex
    zxid: Zxid
    entry: Entry


class Answered(NamedTuple):
    """A read that has ended.

    Attributes
    ----------
    cut, rows
        What it shows.
    due, promise
        What must be in it, because it was settled when the read began, and the invariant that says so.
    last
        The reader's cut before it; -1: it had none.
    """

    cut: int
    rows: tuple[Rows, ...]
    due: frozenset[str]
    promise: str
    last: int


class Reader(NamedTuple):
    """A reader.

    Attributes
    ----------
    number
        How many of its reads have ended.
    stage, shard, seat, place
        What it waits for, of which replica: `clock`, `seen`, `shards` or `show`; "": it does not read now.
    seen
        What the replicas have answered that it has asked what they have seen.
    ends
        Where the logs ended, if one server was asked for all shards.
    cut, rows
        The cut, and what was shown there so far.
    own, written
        Of a client that reads what it has inserted: the index in each shard, and the transactions that replicas have told.
    due, last, answered
        As of `Answered`; what its last read has shown.
    """

    number: int = 0
    stage: str = ""
    shard: int = 0
    seat: int = 0
    place: int = NOT_BEGUN
    seen: tuple[Zxid, ...] = ()
    ends: tuple[CutEnd, ...] = ()
    cut: int = -1
    rows: tuple[Rows, ...] = ()
    own: tuple[fx.LogIndex | None, ...] = (None, None)
    written: Zxid = BEFORE_ALL
    due: frozenset[str] = frozenset()
    last: int = -1
    answered: Answered | None = None


class CutState(NamedTuple):
    """A state.

    Attributes
    ----------
    first, moments
        The number of the oldest transaction that a session may still see, and the trees from that one on.
    told
        The transaction of which the session of each seat was told.
    ends
        What each seat has seen of its log.
    logs
        All entries that have come to each shard, also those that were removed since.
    inserts, duties
        Where the joint inserts, and those who count themselves and give up, stand.
    readers
        As of the model.
    commands, rolls, cleans
        What is still to come.
    late, budget
        Commits on their way, and faults that may still happen.
    """

    first: int
    moments: tuple[Moment, ...]
    told: tuple[int, ...]
    ends: tuple[CutEnd | None, ...]
    logs: tuple[tuple[Written, ...], ...]
    inserts: tuple[int, ...]
    duties: tuple[int, ...]
    readers: tuple[Reader, ...]
    commands: int
    rolls: tuple[int, ...]
    cleans: tuple[int, ...]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget

    @property
    def key(self) -> CutState:
        """What tells it apart."""
        return self

    @property
    def tree(self) -> Tree:
        """The nodes as they are now."""
        return self.moments[-1].tree

    @property
    def newest(self) -> int:
        """The number of the last transaction."""
        return self.first + len(self.moments) - 1


def read_in_turn(
    state: CutState, paths: tuple[str, ...], oldest: int
) -> Iterator[tuple[tuple[StampedNode | None, ...], int]]:
    """Give each answer to reads one after the other, none of an older state than the one before, and the last state."""

    def stamped(moment: Moment, path: str) -> StampedNode | None:
        node = moment.tree.get(path)
        if node is None:
            return None
        created, changed = dict(moment.stamps)[path]
        return StampedNode(node.value, node.version, created, changed, moment.tree.next_sequence(path) or 0)

    ways: dict[tuple[tuple[StampedNode | None, ...], int], None] = {((), oldest): None}
    for path in paths:
        longer: dict[tuple[tuple[StampedNode | None, ...], int], None] = {}
        for nodes, view in ways:
            for at in range(view, state.newest + 1):
                longer[(*nodes, stamped(state.moments[at - state.first], path)), at] = None
        # Of ways that differ only in the state that was read last, the oldest one can go on as any other.
        ways = {}
        for nodes, view in sorted(longer, key=lambda each: each[1]):
            if all(nodes != known for known, _ in ways):
                ways[nodes, view] = None
    yield from ways


def kept(stamps: Iterable[tuple[str, tuple[Zxid, Zxid]]]) -> tuple[tuple[str, tuple[Zxid, Zxid]], ...]:
    """Return the stamps that are asked for, of the logs, the clock and the map, in the order of their paths."""
    asked = (clock(PLACE), PLACE, layout.shard_map(PLACE))
    return tuple(sorted(each for each in stamps if "/log" in each[0] or each[0] in asked))


def pruned(state: CutState) -> CutState:
    """Return a state without the moments that no session can see any more."""
    spare = min(state.told) - state.first
    return state._replace(first=state.first + spare, moments=state.moments[spare:])


def staging_of(shard: int, number: int) -> fx.StagingId:
    """Return under which id the rows of a joint insert are staged in a shard."""
    return fx.StagingId(f"{SEATS[shard]}-{number}")


def joint_of(tree: Tree, number: int, quorum: int) -> JointInsert:
    """Return a joint insert whose participant has prepared, by replicas that know how far the logs have gone on."""
    rows, start = (fx.StagedPart("all", 1, 1, ""),), fx.LogIndex(0)
    own, other = (
        Participant(here(tree, shard), EPOCH, staging_of(shard, number), rows, start, is_apart=bool(shard))
        for shard in range(len(SHARDS))
    )
    return JointInsert(fx.JointId(f"j{number}"), PLACE, fx.BlockId(f"t{number}"), FIRST_VERSION, (own, other), quorum)


def looked_up(tree: Tree, effect: Any) -> Any:
    """Return the outcome of an effect of a writer."""
    match effect:
        case fx.CurrentEpoch():
            return EPOCH
        case fx.AdoptEpoch():
            return None
    return answer(tree, effect)


def here(tree: Tree, shard: int) -> Replica:
    """Return the replica of a shard that appends below the open parent."""
    marks = tree.children(layout.open_logs(SHARDS[shard])) or ()
    return Replica(SHARDS[shard].below(max(map(layout.parent_named, marks))), SEATS[shard])


def append_of(tree: Tree, shard: TablePlace, entry: Entry) -> fx.Create:
    """Return what appends an entry to the log of a shard."""
    below = here(tree, SHARDS.index(shard)).table
    return fx.Create(layout.log_create(below), encode_entry(entry), sequential=True)


def parent_reached(state: CutState, seat: int) -> TablePlace:
    """Return the shard of a seat with the parent that its replica's pointer has certainly reached."""
    end = state.ends[seat]
    return SHARDS[seat % 2].below(0 if end is None else layout.parent_of(end.index))


def without(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    """Return some values without one of them."""
    return tuple(each for each in values if each != value)


def opened_in(state: CutState, shard: int) -> tuple[fx.LogIndex, GetEntry] | tuple[()]:
    """Return the first insert of a shard whose quorum is open."""
    ended = {each.entry.insert for each in state.logs[shard] if isinstance(each.entry, SettleEntry | FailEntry)}
    for index, _, entry in state.logs[shard]:
        if isinstance(entry, GetEntry) and quorum_of(entry) and entry.insert not in ended:
            return index, entry
    return ()


def rows_of(log: tuple[Written, ...], parts: PartSet) -> Rows:
    """Return the rows of the parts of a shard."""
    joints = {each.at: each.entry.joint for each in log if isinstance(each.entry, GetEntry)}
    return tuple(sorted(f"{joints[fx.LogIndex(part.block_min)]}{'m' if part.mutation else ''}" for part in parts))


def own_indexes(state: CutState) -> tuple[fx.LogIndex | None, ...]:
    """Return what a client knows of its inserts, which were answered: the last index in the log of each shard.

    Of the end of a quorum it knows the index in the first shard.
    """
    kinds = ((GetEntry, SettleEntry), (GetEntry,))
    return tuple(
        max((each.at for each in log if isinstance(each.entry, kind)), default=None)
        for log, kind in zip(state.logs, kinds, strict=True)
    )


def settled_now(state: CutState) -> frozenset[str]:
    """Return the joint inserts that are settled now, in both shards."""
    found = list[frozenset[str]]()
    for log in state.logs:
        ended = {each.entry.index for each in log if isinstance(each.entry, SettleEntry)}
        gets = (each for each in log if isinstance(each.entry, GetEntry))
        found.append(
            frozenset(
                str(each.entry.joint)
                for each in gets
                if isinstance(each.entry, GetEntry) and (not quorum_of(each.entry) or each.at in ended)
            )
        )
    return found[0] & found[1]
