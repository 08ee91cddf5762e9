"""What is kept aside of a sharded table: frozen snapshots, each of one cut in all shards, and detached parts.

A partition is detached in all shards by one command (`replitree.protocol.propose.shards`); the replicas of each shard keep its
parts.  Attaching a part inserts its rows anew: the client reads them, splits them by the map of now, and inserts them by one
commit.  So they come to the shards that own their buckets, wherever these lay when the part was detached.  The insert has a
token that names the shard, the part and its content: a part that lies aside on two replicas is attached once.

A snapshot is frozen in steps: the client takes a snapshot of all shards at one cut, with leases; then in each shard the replica
that has it links its parts at the index that the cut has there.  The steps are no commit: when a shard fails, what the others
have made is removed again.  If the client dies between them, the name is taken in some shards, and `frozen` shows in which.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.change_results import DetachedPart, Frozen
from replitree.client.change.changing import LOOK_S
from replitree.client.change.command import COMMAND_S
from replitree.client.insert.terms import InsertResult, Terms
from replitree.client.sharded.cut_reads import CutOptions
from replitree.client.sharded.whole_table import TAG_LEASE_S, ShardedWholeTable
from replitree.client.transport.routing import Router
from replitree.errors import BadInput, ReplitreeError, Unavailable
from replitree.protocol.sharded.places import shard_number

if TYPE_CHECKING:
    from replitree.client.change.command import Commander
    from replitree.client.read.snapshot import Snapshot
    from replitree.client.sharded.shard_table import ShardTable
    from replitree.client.transport.catalog import ReplicaInfo

_T = TypeVar("_T")


class ShardedFrozen(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen snapshot of all shards of a table.

    Attributes
    ----------
    name, note
        As of `Frozen`.
    cut
        What it has: all shards at this cut.
    parts, rows, bytes
        How much that is in all shards.
    shards
        What lies where, in the order of the shards.
    """

    name: str
    cut: str
    parts: int
    rows: int
    bytes: int
    shards: tuple[Frozen, ...]
    note: str = ""


@check_arguments
class ShardedAsideTable(ShardedWholeTable):
    """The part of a `replitree.client.sharded.sharded_table.ShardedTable` that keeps something aside."""

    # --- detached parts -----------------------------------------------------------------------------------------------

    @override
    def detached(self) -> tuple[DetachedPart, ...]:
        """Return the detached parts of any shard, on any replica; errors as `detached_everywhere`."""
        return self.detached_everywhere()[0]

    @override
    def detached_everywhere(self) -> tuple[tuple[DetachedPart, ...], dict[str, str]]:
        """Return the detached parts of all shards and replicas, as `Table.detached_everywhere`.

        Returns
        -------
        tuple
            The name of each is ``<shard>/<name>``.  Of replicas that can't be asked as `frozen_everywhere`.
        """
        parts, silent = self._of_all(lambda each: each.detached_everywhere())
        named = (msgspec.structs.replace(each, shard=shard, name=f"{shard}/{each.name}") for shard, each in parts)
        return tuple(named), silent

    @override
    def attach(self, name: str, *, timeout_s: float = COMMAND_S) -> InsertResult:
        """Insert the rows of a detached part again, into the shards that own them now, and remove it from what lies aside.

        The rows are held in memory.

        Parameters
        ----------
        name
            From `detached`: ``<shard>/<name>``.
        timeout_s
            How long the insert may take, in seconds.

        Raises
        ------
        BadInput
            No such part lies aside, or it does not fit the table any more.
        OutcomeUnknown
            It may have been attached: attach it again, and it is not inserted twice.
        """
        import pyarrow as pa

        from replitree.storage.parts.content_hash import content_hash

        its = self._detached_as(name)
        first, folder = its[0], name.partition("/")[2]
        route = f"/v1/tables/{quote(first.shard)}/detached/{quote(folder)}/rows"

        def read(replica: ReplicaInfo, left: float) -> bytes:
            return self._http.request(replica.address, "GET", route, timeout_s=left).body

        body = Router(self._catalog, first.shard, first.replica).ask(read, timeout_s=timeout_s, attempt_s=timeout_s)
        rows = pa.ipc.open_stream(body).read_all()
        content = content_hash(rows, self._definition.arrow_schema)
        token = f"attach {first.shard} {first.part} {content}"
        done = self.insert_on_terms(rows, Terms(token, timeout_s, fires_views=False))
        for each in its:
            # One that stays aside can be attached again, and is a duplicate then.
            with suppress(Unavailable):
                self._remove_part(each)
        return done

    @override
    def remove_detached(self, name: str) -> None:
        """Delete a detached part for good, on every replica that has it.

        Parameters
        ----------
        name
            From `detached`: ``<shard>/<name>``.

        Raises
        ------
        BadInput
            No replica that can be asked has it.
        Unavailable
            A replica that has it can't be asked; it may be gone elsewhere: remove it again.
        """
        for each in self._detached_as(name):
            self._remove_part(each)

    def _detached_as(self, name: str) -> list[DetachedPart]:
        """Return what lies aside under a name, on each replica that has it."""
        parts = self.detached()
        its = [each for each in parts if each.name == name]
        if not its:
            others = ", ".join(sorted({each.name for each in parts})) or "none"
            raise BadInput(
                f"no detached part {name!r} of {self.name} lies on a replica that can be asked: there are {others}"
            )
        return its

    def _remove_part(self, part: DetachedPart) -> None:
        route = f"detached/{quote(part.name.partition('/')[2])}"
        self._at(part.shard, part.replica).ask("DELETE", route, dict[str, Any], timeout_s=LOOK_S)

    # --- frozen snapshots ---------------------------------------------------------------------------------------------

    @override
    def freeze(  # type: ignore[override]
        self, name: str, note: str = "", *, timeout_s: float = COMMAND_S
    ) -> ShardedFrozen:
        """Keep the parts of all shards as they are at one cut under a name, as hard links on one replica's disk of each.

        It has everything that any client was told of before this call.

        Parameters
        ----------
        name, note
            As of `Table.freeze`.
        timeout_s
            How long the snapshot, and each replica, may take, in seconds.

        Raises
        ------
        BadInput
            A snapshot of this name lies in some shard, or it is no name.
        Unavailable
            A shard can't be asked; nothing is left of this snapshot where that can be told.
        OutcomeUnknown
            A shard may have it: `frozen` tells.
        """
        there, _ = self.frozen_everywhere()
        if any(each.name == name for each in there):
            raise BadInput(
                f"there is a frozen snapshot {name!r} of {self.name} already: remove it first, or give another name"
            )
        options = CutOptions("linearizable", timeout_s=timeout_s, lease_s=TAG_LEASE_S)
        made = list[Frozen]()
        with self._taken(options) as taken:
            assert taken.cut is not None, "it is no eventual read"
            try:
                for each in taken.shards:
                    made.append(self._freeze_shard(each, name, note, timeout_s))
            except ReplitreeError:
                for done in made:
                    with suppress(ReplitreeError):
                        self._remove(done)
                raise
        return ShardedFrozen(
            name=name,
            cut=taken.cut,
            note=note,
            parts=sum(each.parts for each in made),
            rows=sum(each.rows for each in made),
            bytes=sum(each.bytes for each in made),
            shards=tuple(made),
        )

    def _freeze_shard(self, taken: Snapshot, name: str, note: str, timeout_s: float) -> Frozen:
        """Freeze a shard where a snapshot of it was taken, at its index."""
        shard, index = taken.definition.name, taken.index
        body = {"name": name, "note": note, "index": index}
        hint = "`replitree table frozen`, or frozen(), tells"
        at = self._at(shard, taken.replica)
        _, made = at.once("freeze", body, Frozen, hint, timeout_s=timeout_s, min_index=str(index))
        return msgspec.structs.replace(made, replica=taken.replica, shard=shard)

    @override
    def frozen(self) -> tuple[Frozen, ...]:
        """Return what was frozen in any shard, on any replica; errors as `frozen_everywhere`."""
        return self.frozen_everywhere()[0]

    @override
    def frozen_everywhere(self) -> tuple[tuple[Frozen, ...], dict[str, str]]:
        """Return the frozen snapshots of all shards and replicas, by shard, as `Table.frozen_everywhere`.

        Returns
        -------
        tuple
            `Frozen.shard` says of which shard each is.  A replica that can't be asked of a shard is named
            ``<shard> at <replica>``.
        """
        snapshots, silent = self._of_all(lambda each: each.frozen_everywhere())
        return tuple(msgspec.structs.replace(each, shard=shard) for shard, each in snapshots), silent

    def _of_all(
        self, look: Callable[[ShardTable], tuple[tuple[_T, ...], dict[str, str]]]
    ) -> tuple[list[tuple[str, _T]], dict[str, str]]:
        """Return what all shards have aside, with the name of the shard, and which replicas can't be asked."""
        shards = self.find(None).all
        found, silent = list[tuple[str, _T]](), dict[str, str]()
        for shard, (its, missing) in zip(shards, self._beside.each(look, shards), strict=True):
            found += [(shard.name, each) for each in its]
            silent |= {f"{shard.name} at {replica}": why for replica, why in missing.items()}
        return found, silent

    @override
    def remove_frozen(self, name: str) -> None:
        """Delete a frozen snapshot in all shards, on every replica that has it.

        Parameters
        ----------
        name
            From `frozen`.

        Raises
        ------
        BadInput
            No replica that can be asked has it.
        Unavailable
            A replica that has it can't be asked; it may be gone elsewhere: remove it again.
        """
        its = [each for each in self.frozen() if each.name == name]
        if not its:
            raise BadInput(f"there is no frozen snapshot {name!r} of {self.name}")
        for each in its:
            self._remove(each)

    def _remove(self, frozen: Frozen) -> None:
        at = self._at(frozen.shard, frozen.replica)
        at.ask("DELETE", f"frozen/{quote(frozen.name)}", dict[str, Any], timeout_s=LOOK_S)

    def _at(self, shard: str, replica: str) -> Commander:
        """Return what asks one replica of a shard."""
        return self._shard(shard_number(shard)).replica(replica).commander


__all__ = ["ShardedAsideTable", "ShardedFrozen"]
