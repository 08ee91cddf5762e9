"""Cut: a read of several shards at one transaction of coordination.

All that one commit appends, to however many logs, has one transaction number (`protocol.core.stamps`).  So a number z is a
position in every log: that of the first entry whose number is above z.  What a shard shows at the cut z are the settled parts
of its fold below that position (`shown_at`).  A joint insert, and the end of its quorum, are in every cut whole or not (D2).

===============  ===========================================================================================================
level            z
===============  ===========================================================================================================
``consistent``   the lowest of what one replica of each shard has seen (`seen_here`), and not below the client's last cut
``linearizable`` the transaction of a write to ``sharded/<D>/clock`` after the read began (`advance_clock`)
``eventual``     none: each shard shows what is there, and a joint insert may be torn
===============  ===========================================================================================================

*Seen.*  A replica has seen z if coordination had told its session of z *before* it asked for the end of its log: the end that
it then hears lies above every entry up to z, because the reads of a session never go back (`read_end`).  What the answer
itself tells does not count, because it may be newer than what the answer shows; nor does what a later answer tells.

*Order in one request*: the clock first, then the end of the log.  A replica that finds the clock at z or above has every
commit up to z in all that it reads after.  Reads of one request are done one after the other.

*One session.*  The replicas of one server have one session, so one request asks for the ends of all their logs, and for the map
(`see_shards`).  What the session had been told before it is a cut of them all, and the map is not older.

*Own writes.*  A client knows at which index of a shard's log its insert, or the end of its quorum, or its command is.  The
replica tells the transaction of that entry, which is the same in all shards, and the cut of the client's next read is not
before it.

*Position.*  The replica compares the numbers of the entries from the end of the log backwards (`index_at`).  Entries that were
removed have no number any more; but they came before the commit that removed them, and that one is known: it has written the
node ``log``.

*Open inserts.*  An insert with a quorum that is open at the cut is not shown there, also when the replica knows already that a
later entry has settled it.

*Other ensemble.*  Numbers of one ensemble say nothing in another one.  So a cut has the id of its ensemble, which is written
once beside all tables (`name_ensemble`): an ensemble that was set up anew, whatever was restored into it, has another one.

Absent on purpose: time limits, and which replicas are asked; a read that has waited too long fails, or asks others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry
from replitree.protocol.core.fold import apply, open_after, settled
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, Stamped, StampedNode, Zxid
from replitree.protocol.core.values import decode_value

CutLevel: TypeAlias = Literal["eventual", "consistent", "linearizable"]
"""What a read of a sharded table is promised."""

CUT_LEVELS: tuple[CutLevel, ...] = get_args(CutLevel)
"""All of them, the weakest first."""

ENSEMBLE_FORMAT = 1
"""Format of the node that names the ensemble."""

WINDOW = 16
"""Entries at the end of the log whose numbers are read in one request."""

ENDS_MAX = 8
"""How often the end of a log is asked for until the session has been told of the cut."""


# --- values -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """A position in all logs of an ensemble: everything that its transactions up to `zxid` have changed.

    Attributes
    ----------
    ensemble
        The id of the ensemble.
    zxid
        The last transaction that is in it.
    """

    ensemble: str
    zxid: Zxid

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return it as clients write it.

        >>> str(Cut("5f0c", Zxid(8589934612)))
        '5f0c@8589934612'
        """
        return f"{self.ensemble}@{self.zxid}"


def parse_cut(text: str) -> Cut:
    """Return the cut that `str` has written.

    Raises
    ------
    BadInput
        It is none.

    >>> parse_cut("5f0c@8589934612")
    Cut(ensemble='5f0c', zxid=8589934612)
    """
    ensemble, _, zxid = text.partition("@")
    # A transaction has 64 bits; `isdigit` alone takes digits that `int` does not.
    if not (text.isascii() and ensemble.isalnum() and zxid.isdigit() and len(zxid) <= len(str(1 << 63))):
        raise BadInput(
            f"{text[:100]!r} is no cut: use one that a snapshot of the table has told, such as 5f0c@8589934612"
        )
    return Cut(ensemble, Zxid(int(zxid)))


@dataclass(frozen=True, slots=True)
class CutEnd:
    """Where a log ended when it was asked for.

    Attributes
    ----------
    index
        Where it ended.
    seen
        Every entry whose transaction is this one or an earlier one is below `index`.
    written
        A cut that is not before this one has the entry that the reader asked about; `BEFORE_ALL`: it asked about none.
    """

    index: fx.LogIndex
    seen: Zxid
    written: Zxid = BEFORE_ALL


@dataclass(frozen=True, slots=True)
class ShardsSeen:
    """A cut of several shards, and where their logs ended: one session was told of all of it by one request.

    Attributes
    ----------
    cut
        The cut: everything up to there is below the ends, and the map is not older.
    ends
        Where each log ended.
    nodes
        The node of the sharded table, its map, and the node of the table again: as of `GetStamped`.
    """

    cut: Zxid
    ends: tuple[CutEnd, ...]
    nodes: tuple[StampedNode | None, ...]


@dataclass(frozen=True, slots=True)
class CutNotYet:
    """The replica has not heard of the cut so far, or its table is gone: ask again, or ask another replica."""


@dataclass(frozen=True, slots=True)
class CutGone:
    """Where the cut lies in this log can't be told any more: its entries were removed, or the table was made anew since."""


@dataclass(frozen=True, slots=True)
class OtherEnsemble:
    """The replicas, or the client's last cut, are of different ensembles: no cut has them all."""


@dataclass(frozen=True, slots=True)
class AwaitExecuted(fx.Effect):
    """Wait until everything below `index` is pulled and executed here, merges and open inserts excepted.

    Outcome: the replica's pointer, which is not below `index`.  A caller that has waited too long closes the procedure.
    """

    index: fx.LogIndex


class EnsembleValue(msgspec.Struct, frozen=True):
    """Value of the node that names the ensemble; `id` is random."""

    id: str
    format: int = ENSEMBLE_FORMAT


_decode = json_decoder(EnsembleValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


# --- nodes ------------------------------------------------------------------------------------------------------------------


def clock(place: str) -> str:
    """Return the node that is written to get a linearizable cut of the sharded table at `place`."""
    return f"{place}/clock"


def ensemble(root: str) -> str:
    """Return the node that names the ensemble, for all tables below a root.

    >>> ensemble("/replitree"), ensemble("/")
    ('/replitree/ensemble', '/ensemble')
    """
    return f"{root.rstrip('/')}/ensemble"


def name_ensemble(root: str, fresh: str) -> fx.Procedure[str | None]:
    """Return the id of the ensemble; the first process that asks gives it one.  None: it is in doubt, ask again.

    Parameters
    ----------
    root
        The node below which all tables are; it exists.
    fresh
        A random id: letters and digits.
    """
    assert fresh.isalnum()
    path = ensemble(root)
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        # However this ends: what is there afterwards is the id, for good.
        yield fx.Commit(fx.Create(path, _encode(EnsembleValue(fresh))))
        node = yield fx.Get(path)
    return None if node is None else decode_value(_decode, node.value, path, ENSEMBLE_FORMAT).id


# --- the client: which cut ----------------------------------------------------------------------------------------------------


def cut_of(seen: Sequence[Cut], last: Cut | None = None, written: Zxid = BEFORE_ALL) -> Cut | OtherEnsemble:
    """Return the cut of a consistent read.

    Parameters
    ----------
    seen
        What a replica of each shard has seen (`seen_here`).
    last
        The highest cut that the client has read; None: it has read none.
    written
        The highest `CutEnd.written` of what the client has written since; `BEFORE_ALL`: nothing.

    >>> cut_of([Cut("e", Zxid(7)), Cut("e", Zxid(5))]), cut_of([Cut("e", Zxid(5))], Cut("e", Zxid(6)))
    (Cut(ensemble='e', zxid=5), Cut(ensemble='e', zxid=6))
    """
    known = (*seen, *(() if last is None else (last,)))
    if len({each.ensemble for each in known}) > 1:
        return OtherEnsemble()
    lowest = min(each.zxid for each in seen)
    # A replica that is asked for more than it has seen waits until it has.
    return Cut(seen[0].ensemble, Zxid(max(lowest, written, BEFORE_ALL if last is None else last.zxid)))


def advance_clock(place: str) -> fx.Procedure[Zxid | None]:
    """Return a transaction that comes after everything that was committed before this began; None: in doubt, ask again.

    Parameters
    ----------
    place
        The path of a sharded table (`layout.sharded`).
    """
    path, session = clock(place), (yield fx.CurrentSession())
    if not (yield from _write_clock(path)):
        return None
    # Of this write, or of one that came after it.  In this session only: the next one may begin behind it.
    found: Stamped = yield GetStamped((path,))
    node = found.nodes[0]
    return None if node is None or (yield fx.CurrentSession()) != session else node.changed


def _write_clock(path: str) -> fx.Procedure[bool]:
    """Write a clock; False: in doubt."""
    written: fx.Committed = yield fx.Commit(fx.Set(path, b"", fx.ANY_VERSION))
    if isinstance(written, fx.Refused):
        # The table's first linearizable read makes it; the number of its creation is as good.
        written = yield fx.Commit(fx.Create(path))
    return isinstance(written, fx.Applied)


# --- the replica: where the cut lies in its log -------------------------------------------------------------------------------


def read_end(table: TablePlace, place: str | None = None) -> fx.Procedure[CutEnd | None]:
    """Return where the log ends, and which transactions are certainly below; None: there is no such table.

    Parameters
    ----------
    table
        The shard, with a parent that its log has reached.
    place
        The path of the sharded table if its clock is to be read, too; it may tell of a later transaction than the session knew.
    """
    parent = table.parent
    while True:
        # The clock first: what it tells holds for the end that is read after it.
        ends = layout.log_parent(table, parent), layout.log_parent(table, parent + 1)
        found: Stamped = yield GetStamped(ends if place is None else (clock(place), *ends))
        *clocks, node, following = found.nodes
        if node is None:
            return None
        if following is None:
            told = [each.changed for each in clocks if each is not None]
            return CutEnd(fx.LogIndex(parent * layout.PARENT_ENTRIES + node.number), max(found.seen, *told, BEFORE_ALL))
        parent += 1


def see_shards(tables: Sequence[TablePlace], place: str, *, by_clock: bool) -> fx.Procedure[ShardsSeen | None]:
    """Return a cut of several shards, and where their logs ended, for replicas that share a session.

    None: in doubt; or a log goes on below another parent, or is gone.  Then each shard is asked for by itself.

    Parameters
    ----------
    tables
        The shards, each with a parent that its log has reached.
    place
        The path of their sharded table.
    by_clock
        Whether the cut is to have everything that was committed before this began: then the clock is written.
    """
    session = yield fx.CurrentSession()
    if by_clock and not (yield from _write_clock(clock(place))):
        return None
    # The clock first, as in `read_end`: what it tells holds for all that is read after it, the map, too.
    clocks = (clock(place),) if by_clock else ()
    ends = tuple(layout.log_parent(each, each.parent + more) for each in tables for more in (0, 1))
    found: Stamped = yield GetStamped((*clocks, *ends, place, layout.shard_map(place), place))
    told, rest = found.nodes[: len(clocks)], found.nodes[len(clocks) :]
    logs, nodes = rest[: len(ends)], rest[len(ends) :]
    if None in told or any(logs[1::2]) or (yield fx.CurrentSession()) != session:
        return None
    # Of this write, or of one that came after it.
    cut = told[0].changed if told and told[0] is not None else found.seen
    shown = max(found.seen, cut)
    seen = tuple(
        CutEnd(fx.LogIndex(each.parent * layout.PARENT_ENTRIES + log.number), shown)
        for each, log in zip(tables, logs[::2], strict=True)
        if log is not None
    )
    return ShardsSeen(cut, seen, nodes) if len(seen) == len(tables) else None


def seen_here(
    table: TablePlace, written: fx.LogIndex | None = None, known: CutEnd | None = None
) -> fx.Procedure[CutEnd | CutNotYet]:
    """Return what the replica has seen of its log when everything in it is executed: it can show any cut up to `CutEnd.seen`.

    Parameters
    ----------
    table
        The shard, with the parent that the replica's pointer has reached.
    written
        The entry at this index must be in the reader's cut: `CutEnd.written` tells from which cut on it is.  None: no entry.
    known
        Where the log ended, as another reader has heard who asked later than this one; None: it is asked now.
    """
    end = known if known is not None else (yield from read_end(table))
    if written is not None:
        for _ in range(ENDS_MAX):
            if end is None or end.index > written:
                break
            # The reader knows of the entry, so the member of the ensemble that this session is with is behind.
            yield fx.Sync(layout.log(table))
            end = yield from read_end(table)
    if end is None:
        return CutNotYet()
    if written is not None:
        if end.index <= written:
            return CutNotYet()
        # In this order: an entry that is not found was removed by a commit that has written the node `log` before.
        found: Stamped = yield GetStamped((layout.log_entry(table, written), layout.log(table)))
        entry, log = found.nodes
        if log is None:
            return CutNotYet()
        end = replace(end, written=log.changed if entry is None else entry.created)
    yield AwaitExecuted(end.index)
    return end


def position_at(
    table: TablePlace, zxid: Zxid, known: CutEnd | None = None, place: str | None = None
) -> fx.Procedure[fx.LogIndex | CutNotYet | CutGone]:
    """Return the position of a cut in the replica's log when everything below is executed: the read stands there.

    Parameters
    ----------
    table
        The shard, with the parent that the replica's pointer has reached.
    zxid
        The cut.
    known
        What the replica has seen for an earlier question; None: nothing.
    place
        Of a linearizable read: the path of the sharded table, whose clock was written.
    """
    end = known if known is not None and known.seen >= zxid else (yield from _reach(table, zxid, place))
    if end is None:
        return CutNotYet()
    position = yield from index_at(table, end, zxid)
    # Only after the numbers are compared: what lies above the cut need not be executed.
    if not isinstance(position, CutGone):
        yield AwaitExecuted(position)
    return position


def _reach(table: TablePlace, zxid: Zxid, place: str | None) -> fx.Procedure[CutEnd | None]:
    """Ask for the end of a log until the session has been told of a transaction before it asked; None: it was not."""
    for attempt in range(ENDS_MAX):
        end = yield from read_end(table, place)
        if end is None or end.seen >= zxid:
            return end
        # The first answer may have told of the transaction; otherwise the member of the ensemble is behind.
        if attempt:
            yield fx.Sync(layout.log(table))
    return None


def index_at(table: TablePlace, end: CutEnd, zxid: Zxid) -> fx.Procedure[fx.LogIndex | CutGone]:
    """Return the index of the first entry whose transaction comes after a cut, or the end of the log.

    Parameters
    ----------
    table
        The shard.
    end
        Where the log ended when everything up to the cut was in it.
    zxid
        The cut.
    """
    assert end.seen >= zxid
    # The position is not above `index`, and the entry before it lies just below `above`; below a fresh parent that is another
    # number, because the log has left out those between.
    index = above = end.index
    while True:
        parent = layout.parent_of(above)
        start = parent * layout.PARENT_ENTRIES
        if above == start and parent:
            earlier: Stamped = yield GetStamped((layout.log_parent(table, parent - 1),))
            closed = earlier.nodes[0]
            above = fx.LogIndex(above if closed is None else start - layout.PARENT_ENTRIES + closed.number)
            if above == start:
                # Of a table that was restored the log begins here; of another one the earlier entries were removed.
                return (yield from _below_all(table, index, zxid)) if closed is None else CutGone()
            continue
        window = range(max(start, above - WINDOW), above)
        found = (yield GetStamped(tuple(layout.log_entry(table, each) for each in window))) if window else None
        nodes: tuple[StampedNode | None, ...] = () if found is None else found.nodes
        for at, node in zip(reversed(window), reversed(nodes), strict=True):
            if node is None:
                return (yield from _below_all(table, index, zxid))
            if node.created <= zxid:
                return index
            index = above = fx.LogIndex(at)
        if not window:
            return (yield from _below_all(table, index, zxid))


def _below_all(table: TablePlace, index: fx.LogIndex, zxid: Zxid) -> fx.Procedure[fx.LogIndex | CutGone]:
    """Return the position of a cut that is before every entry which the log still has from `index` on."""
    found: Stamped = yield GetStamped((layout.log(table),))
    log = found.nodes[0]
    # The commit that removed the entries below `index` has written this node, and they are older than it.  A table that was
    # made anew since the cut has another node.
    return CutGone() if log is None or log.changed > zxid else index


def shown_at(log: Iterable[tuple[fx.LogIndex, Entry]], position: fx.LogIndex) -> PartSet:
    """Return what a shard shows at a position: the settled parts of its fold.  A replica keeps this up to date instead.

    Parameters
    ----------
    log
        Its entries, from the first one on.
    position
        That of the cut (`index_at`).
    """
    parts, opened = PartSet(), tuple[fx.LogIndex, ...]()
    for index, entry in log:
        # What a later entry settles is open here.
        if index >= position:
            break
        parts, _ = apply(parts, index, entry, opened=opened)
        opened = open_after(opened, index, entry)
    return settled(parts, opened)
