"""What a sharded table has as a whole beside its rows: its status, versions, streams, tags and history, and whether it merges.

Streams and tags are nodes below ``sharded/<D>``.  A replica of any shard forgets a stream.  A tag is made in three steps
(`replitree.protocol.upkeep.named_cuts`): the client takes a snapshot at a cut, the replicas that have it keep its parts, each
under a tag of its shard, and one commit of the client makes the tag that readers find.
"""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.command import COMMAND_S, check_id
from replitree.client.change.streams import Stream, check_stream, read_known
from replitree.client.insert.terms import TIMEOUT_S, InsertResult
from replitree.client.read.as_of import AsOf
from replitree.client.read.scan import LEASE_S
from replitree.client.read.table_log import as_time
from replitree.client.sharded.cut_reads import CutOptions
from replitree.client.sharded.sharded_catalog import read_map, sharded
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.table import Table
from replitree.errors import BadInput, OutcomeUnknown, ReplicaUnavailable, SnapshotExpired, Unavailable
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.sharded.cut import CutLevel, parse_cut
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.shard_map import Shard
from replitree.protocol.upkeep.cut_tags import CUT_TAGS, CutTagValue, decode_cut_tag
from replitree.protocol.upkeep.named_cuts import (
    CutName,
    CutOutcome,
    CutThere,
    CutTorn,
    CutValue,
    KeepShard,
    KeptShard,
    TakeCut,
    delete_named_cut,
    make_named_cut,
)
from replitree.protocol.upkeep.named_nodes import NotChanged
from replitree.protocol.upkeep.tags import check_tag_name

if TYPE_CHECKING:
    from replitree.client.sharded.cut_reads import Shards
    from replitree.client.sharded.insert.joint import JointInsertResult
    from replitree.client.sharded.shard_table import ShardTable
    from replitree.client.sharded.sharded_history import ShardedHistoryEntry
    from replitree.client.sharded.sharded_status import ShardedStatus
    from replitree.client.sharded.union import ShardedSnapshot

_T = TypeVar("_T")
_Value = TypeVar("_Value", bound=CutValue)

TAG_LEASE_S = 600.0
"""How long a snapshot is kept until it has a tag, in seconds."""


class CutTag(msgspec.Struct, frozen=True, kw_only=True):
    """A cut of a sharded table that has a name.

    Attributes
    ----------
    name
        What reads call it: ``as_of=name``.
    cut
        The cut.
    time
        When the tag was made, in UTC, by coordination's clock.
    replica
        The replicas that keep it for certain, with commas between them.
    shards
        (shard, index): exactly what each log has below this index.
    parts, rows, bytes
        What the cut has: parts, rows, and bytes of part files.
    """

    name: str
    cut: str
    time: datetime
    replica: str
    shards: tuple[tuple[str, int], ...]
    parts: int
    rows: int
    bytes: int

    @property
    def version(self) -> str:
        """The version as text, as people copy it into commands."""
        return self.cut

    @property
    def index(self) -> int:
        """The number of the cut's transaction, where a number stands for a version."""
        return parse_cut(self.cut).zxid


@check_arguments
class ShardedWholeTable(Table):
    """The part of a `replitree.client.sharded.sharded_table.ShardedTable` that changes nodes of the whole table."""

    _beside: SideBySide

    @abstractmethod
    def find(self, where: str | None) -> Shards:
        """Return the shards that can have rows for a condition, and all others, by the map that this handle knows."""

    @abstractmethod
    def _cut_at(self, as_of: AsOf | None) -> str | None:
        """Return the cut that a read's `as_of` means."""

    @abstractmethod
    def _taken(self, options: CutOptions) -> ShardedSnapshot:
        """Return a snapshot of each shard that can have rows for a condition."""

    @abstractmethod
    def _shard(self, shard: Shard) -> ShardTable:
        """Return a shard as a table of its own."""

    @property
    def _place(self) -> TablePlace:
        """Where the nodes of the whole table are."""
        return TablePlace(layout.sharded(self._catalog.root, self.name))

    @override
    def status(self) -> ShardedStatus:  # type: ignore[override]
        """Return how the table and each of its shards is, asked now.

        Raises
        ------
        TableNotFound
            The table was dropped.
        CoordinationUnavailable
            Coordination can't be asked.
        """
        from replitree.client.sharded.sharded_status import sharded_status

        return sharded_status(self._catalog, self._http, sharded(self._catalog, self.name))

    # --- versions -----------------------------------------------------------------------------------------------------

    @override
    def index_of(self, as_of: AsOf) -> int:
        """Return the number of the transaction that a time, the name of a tag, or a cut means.

        It is the number of `ShardedHistoryEntry.index`; reads take the whole cut: see `cut_of`.

        Parameters
        ----------
        as_of
            As of `cut_of`, and errors, too.
        """
        return parse_cut(self.cut_of(as_of)).zxid

    def cut_of(self, as_of: AsOf | None = None, *, token: str | None = None) -> str:
        """Return the cut that a time, the name of a tag, or the token of an insert means: ``as_of=`` it reads the table there.

        Parameters
        ----------
        as_of
            A time, or the name of a tag, as of `snapshot`.
        token
            Of an insert: the first cut that has it.  With a quorum, that is where it settled.

        Raises
        ------
        BadInput
            Not exactly one of both was given; there is no such tag; the time is not over; or no insert is known by the token.
        SnapshotExpired
            The entries that tell it are not in coordination any more.
        Unavailable
            Coordination can't be asked, or a replica that may know when earlier entries were written.
        """
        if (as_of is None) == (token is None):
            raise BadInput("give either a time, a tag or a cut, or the token of an insert")
        if token is None:
            cut = self._cut_at(as_of)
            assert cut is not None, "only of None there is no cut"
            return cut
        from replitree.client.sharded.cut_times import cut_of_insert

        beside = self._catalog.place(self.find(None).all[0].name)
        return str(cut_of_insert(self._catalog, self.name, beside, token))

    @override
    def streams(self) -> tuple[Stream, ...]:
        """Return the streams that write into the table, by their ids: the last batch of each, and when it came.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        found = self._catalog.run(read_known(self._place, is_sharded=True))
        if not found:
            read_map(self._catalog, self.name)
        return found

    @override
    def drop_stream(self, stream: str, *, timeout_s: float = COMMAND_S) -> None:
        """Let the table forget a stream; all as of `Table.drop_stream`, over all shards."""
        check_stream(self.name, stream, self.streams())
        self._ask_any("DELETE", f"streams/{quote(stream, safe='')}", dict[str, bool], timeout_s=timeout_s)

    # --- writing in the place of rows -----------------------------------------------------------------------------------

    @override
    def emptied(self, result: InsertResult, timeout_s: float = TIMEOUT_S) -> JointInsertResult:
        """Finish an insert that replaces the whole table, as of `Table.emptied`: without rows, all shards are emptied."""
        from replitree.client.sharded.insert.joint import JointInsertResult

        if isinstance(result, JointInsertResult) and result.outcome != "empty":
            return result
        command_id = f"empty-{result.token}" if result.token else None
        emptied = self.truncate(command_id=command_id, timeout_s=timeout_s)
        return JointInsertResult(None, 0, "empty", result.token, shards=emptied.shards)

    @override
    def restore_to(self, version: AsOf, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> InsertResult:
        """Make the table what it was at a cut, by one commit over all shards: an insert in the place of everything.

        The rows are read at the cut, of all shards, and are split by the map of now: it does not matter which buckets were
        moved since.  Spark restores a large table faster, by ``INSERT OVERWRITE t SELECT * FROM t VERSION AS OF …``.

        Parameters
        ----------
        version
            A cut, a tag, or a time.
        token, timeout_s
            As of `Table.restore_to`; errors, too.
        """
        with self.snapshot(as_of=version, lease_s=LEASE_S, timeout_s=timeout_s) as earlier:
            known_as = secrets.token_hex(16) if token is None else token
            return self.insert(earlier.scan().to_reader(), known_as, overwrite="all", timeout_s=timeout_s)

    # --- the logs -----------------------------------------------------------------------------------------------------

    @override
    def history(self, limit: int = 100) -> tuple[ShardedHistoryEntry, ...]:  # type: ignore[override]
        """Return what happened to the table, the newest transaction first, as far as the logs in coordination tell.

        Parameters
        ----------
        limit
            Transactions to return at most, from 1 to `HISTORY_MAX`.

        Raises
        ------
        TableNotFound
            The table was dropped.
        CoordinationUnavailable
            Coordination can't be read.
        """
        from replitree.client.sharded.sharded_history import read_transactions

        read_map(self._catalog, self.name)
        return read_transactions(self._catalog, self.name, self.find(None).all, self._beside, limit)

    # --- merges -------------------------------------------------------------------------------------------------------

    @override
    def pause_merges(self) -> tuple[str, ...]:
        """Stop merging by itself in all shards, on every replica, until `resume_merges` or a restart.

        Returns
        -------
        tuple[str, ...]
            The replicas that paused.

        Raises
        ------
        ReplicaUnavailable
            An active replica of a shard does not answer, or none of a shard is active; others paused: try again.
        """
        return self._all_of(lambda shard: shard.pause_merges())

    @override
    def resume_merges(self) -> tuple[str, ...]:
        """Merge again in all shards, on every replica; results and errors as `pause_merges`."""
        return self._all_of(lambda shard: shard.resume_merges())

    def _all_of(self, names: Callable[[ShardTable], tuple[str, ...]]) -> tuple[str, ...]:
        """Return all names that a call tells of the shards, ascending."""
        found = self._beside.each(names, self.find(None).all)
        return tuple(sorted({name for each in found for name in each}))

    # --- tags ---------------------------------------------------------------------------------------------------------

    @override
    def tag(  # type: ignore[override]  # a tag of a cut, not of an index
        self, name: str, as_of: AsOf | None = None, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CutTag:
        """Give a cut of the table a name; what it has in each shard stays until the tag is deleted.

        Parameters
        ----------
        name, command_id, timeout_s
            As of `Table.tag`.
        as_of
            A cut, a time or another tag, as of `ShardedTable.snapshot`.  By default the table with everything that any client
            was told of before this call.

        Raises
        ------
        BadInput
            There is a tag of this name, or the name can't be one.
        SnapshotExpired
            What the cut has is gone.
        Unavailable
            There is no tag: a shard can't be asked, or another client has deleted the tag before it was whole; try again.
        OutcomeUnknown
            There may be one: repeat it with the same id.
        """
        check_tag_name(name)
        known_as, shards = EntryId(check_id(command_id)), self.find(None).all
        deadline, incarnation = time.monotonic() + timeout_s, read_map(self._catalog, self.name).incarnation
        level: CutLevel | None = "linearizable" if as_of is None else None
        steps = make_named_cut(self._tag_name(name), incarnation, known_as, [shard.name for shard in shards])

        def take(held: ExitStack) -> CutTagValue:
            options = CutOptions(level, self._cut_at(as_of), timeout_s=timeout_s, lease_s=TAG_LEASE_S)
            taken = held.enter_context(self._taken(options))
            assert taken.cut is not None, "it is no eventual read"
            tagged = tuple(KeptShard(each.definition.name, each.index, each.replica) for each in taken.shards)
            parts = [part.manifest.bytes for shard in taken.shards for part in shard.parts]
            return CutTagValue(taken.cut, known_as, tagged, len(parts), taken.rows, sum(parts))

        def keep(each: KeptShard) -> None:
            body = {"name": name, "id": known_as, "as_of": each.index}
            at = self._shard(shard_number(each.shard)).replica(each.replica).commander
            left = max(1.0, deadline - time.monotonic())
            at.ask("POST", "tags", dict[str, int], body, timeout_s=left, known_as=known_as)

        with ExitStack() as held:

            def perform(effect: fx.Effect) -> Any:
                match effect:
                    case TakeCut():
                        return take(held)
                    case KeepShard(shard):
                        return keep(shard)
                return self._catalog.perform(effect)

            made = told_of("tag", run(steps, perform), known_as)
        found = None if made is None else self._find_tag(name)
        if made is None or found is None:
            raise BadInput(f"tag {name!r} was made, and deleted by another client a moment later")
        if made.id != known_as:
            raise BadInput(
                f"there is a tag {name!r} already, of the cut {made.cut}: delete it first, or give another name"
            )
        return found

    @override
    def tags(self) -> tuple[CutTag, ...]:  # type: ignore[override]
        """Return the tags, the oldest cut first; raises as `streams`."""
        parent = layout.tags(self._place)
        self._catalog.perform(fx.Sync(parent))
        names: tuple[str, ...] = self._catalog.perform(fx.Children(parent)) or ()
        if not names:
            read_map(self._catalog, self.name)
        found = (self._find_tag(name) for name in names)
        return tuple(
            sorted((tag for tag in found if tag is not None), key=lambda tag: (parse_cut(tag.cut).zxid, tag.name))
        )

    @override
    def delete_tag(self, name: str, *, timeout_s: float = COMMAND_S) -> None:
        """Delete a tag in all shards at once; also what was left of one that was cut off while it was made.

        Parameters and errors as of `Table.delete_tag`.

        Raises
        ------
        OutcomeUnknown
            It may be deleted; try again.
        """
        del timeout_s
        names = [shard.name for shard in self.find(None).all]
        deleted = self._catalog.run(delete_named_cut(self._tag_name(check_tag_name(name)), names))
        if told_of("tag", deleted, "") is None:
            others = ", ".join(tag.name for tag in self.tags())
            raise BadInput(f"table {self.name} has no tag {name!r}; it has {others or 'none'}")

    def tagged(self, cut: str) -> Sequence[tuple[ShardTable, int]] | None:
        """Return which shards a tag keeps what they had at a cut for, and the index of each; None: no tag does.

        Raises
        ------
        SnapshotExpired
            A shard that the cut has had rows there, and was removed.
        """
        kept = next((tag for tag in self.tags() if tag.cut == cut), None)
        if kept is None:
            return None
        found = self.find(None)
        there = {shard.name: shard for shard in found.all}
        for name, _ in kept.shards:
            if name not in there and parse_cut(cut).zxid < found.since:
                raise SnapshotExpired(f"tag {kept.name!r} of {self.name} needs shard {name}, which was removed since")
        # Another shard that was removed had no rows at the cut.
        return [(there[name], index) for name, index in kept.shards if name in there]

    def cut_of_tag(self, name: str) -> str:
        """Return the cut that a tag names.

        Raises
        ------
        BadInput
            There is no such tag.
        """
        found = self._find_tag(check_tag_name(name))
        if found is None:
            others = ", ".join(tag.name for tag in self.tags())
            raise BadInput(f"table {self.name} has no tag {name!r}; it has {others or 'none'}")
        return found.cut

    def _tag_name(self, name: str) -> CutName[CutTagValue]:
        return CutName(CUT_TAGS, self._catalog.root, self.name, name)

    def _find_tag(self, name: str) -> CutTag | None:
        path = layout.tag(self._place, name)
        self._catalog.perform(fx.Sync(path))
        node = self._catalog.perform(fx.Get(path))
        if node is None:
            return None
        value = decode_cut_tag(node.value, path)
        return CutTag(
            name=name,
            cut=value.cut,
            time=as_time(node.changed_ms),
            replica=", ".join(sorted({each.replica for each in value.shards})),
            shards=tuple((each.shard, each.index) for each in value.shards),
            parts=value.parts,
            rows=value.rows,
            bytes=value.bytes,
        )

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask_any(
        self, method: str, verb: str, kind: type[_T], body: dict[str, Any] | None = None, *, timeout_s: float
    ) -> _T:
        """Ask a replica of any shard for something that does no harm when it is asked for again.

        Raises
        ------
        Unavailable
            No replica of any shard takes it.
        """
        refused: Unavailable = ReplicaUnavailable(f"table {self.name} has no shard")
        shards = self.find(None).all
        for shard in sorted(shards, key=lambda each: not any(replica.active for replica in each.replicas())):
            try:
                return shard.commander.ask(method, verb, kind, body, timeout_s=timeout_s)[1]
            except Unavailable as error:
                refused = error
        raise refused


def told_of(what: str, outcome: CutOutcome[_Value], known_as: str) -> _Value | None:
    """Return what a change of a named cut has found, or raise what became of the change.

    Parameters
    ----------
    what
        What has the name: "tag".
    outcome, known_as
        What became of the change, and the id of the command.

    Raises
    ------
    ReplicaUnavailable
        Nothing was changed.
    OutcomeUnknown
        It may be changed.
    """
    match outcome:
        case CutThere(value):
            return value
        case CutTorn(shard):
            raise ReplicaUnavailable(
                f"no {what} was made or moved: another client has deleted it in shard {shard} meanwhile; try again"
            )
        case NotChanged(reason):
            raise ReplicaUnavailable(f"no {what} was changed: {reason}")
    raise OutcomeUnknown(
        f"the answer of coordination was lost: the {what} may be changed; try again with the same id", known_as
    )


__all__ = ["CutTag", "ShardedWholeTable", "told_of"]
