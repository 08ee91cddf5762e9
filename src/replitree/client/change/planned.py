"""Planned merges: what `optimize` would merge, for a caller that makes the results elsewhere.

The order; a caller that dies on the way leaves an upload that the replica removes, and parts that it merges later by itself:

1. *plan*      a replica, the leader if it answers, chooses the merges and keeps their parts for us, by a lease
2. *make*      the results, in an upload each (`replitree.storage.rewrite.merge.merge_range`)
3. *publish*   one after the other: the replica reads the files, or looks at them where they are in its object store, proposes
               the merge, and uses them when it executes it

Guarantees: a result that was published is the result of exactly that merge, with these sources and these columns.  If the parts
have changed meanwhile, the merge is not done, and nothing is lost.

Absent on purpose: making results here; `replitree.spark.merge.optimize` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from replitree.client.change.change_results import Merged, OptimizeResult
from replitree.client.change.reserved import Reservation, reserve
from replitree.client.insert.stored_upload import PutParts
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.lease import Lease
from replitree.errors import Unavailable
from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.manifest import FileEntry
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from replitree.client.table import Table

READ_BYTES_PER_S = 20_000_000
"""How fast a replica surely reads a result."""


class PlannedMerge(msgspec.Struct, frozen=True):
    """A merge: its sources in their order, and the schema version of its result."""

    sources: tuple[SnapshotPart, ...]
    schema_version: int

    @property
    def partition(self) -> str:
        """The partition of all sources."""
        return parse_part(self.sources[0].part).partition

    @property
    def bytes(self) -> int:
        """Size of all data files."""
        return sum(source.manifest.bytes for source in self.sources)


class _PlanAnswer(Reservation, frozen=True, kw_only=True):
    """What a replica answers to a plan."""

    merges: tuple[PlannedMerge, ...] = ()
    busy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Merges that one replica keeps for us.

    Attributes
    ----------
    table
        The table at this replica.
    definition
        The table, with the columns of the results.
    machine
        Where the replica runs.
    merges
        What is to be merged, at most one merge for each partition.
    busy
        Partitions that have parts of which something else is being made.
    lease
        Keeps the parts; None when there are no merges.
    """

    table: Table
    definition: TableDefinition
    machine: str
    merges: tuple[PlannedMerge, ...]
    busy: tuple[str, ...]
    lease: Lease | None

    def check(self) -> None:
        """Do nothing, unless the lease is lost.

        Raises
        ------
        LeaseLost
            The parts may go at any time, and others may merge them.
        """
        if self.lease is not None:
            self.lease.check()


@contextmanager
def planned_merges(table: Table, partition: str | None, *, final: bool, timeout_s: float) -> Iterator[MergePlan]:
    """Have merges planned, and keep their parts until the end.

    Parameters
    ----------
    table
        The table.
    partition, final, timeout_s
        As `Table.optimize`.

    Raises
    ------
    Unavailable
        No replica answers, or the columns are being changed at the same time.
    """
    body: dict[str, Any] = {"partition": partition, "final": final}
    planner, plan, lease = reserve(table, "merges/plan", _PlanAnswer, body, timeout_s=timeout_s)
    try:
        definition = table.refresh()
        versions = sorted({definition.schema_version, *(merge.schema_version for merge in plan.merges)})
        if len(versions) > 1:
            raise Unavailable(
                f"the columns of {table.name} are being changed, versions {versions} are in use: try again"
            )
        for source in (source for merge in plan.merges for source in merge.sources):
            source.check(plan.replica)
        yield MergePlan(planner, definition, plan.machine, plan.merges, plan.busy, lease)
    finally:
        if lease is not None:
            lease.release()


def publish_result(
    plan: MergePlan,
    merge: PlannedMerge,
    upload: str,
    files: Sequence[FileEntry],
    *,
    timeout_s: float,
    stored: PutParts | None = None,
) -> Merged:
    """Have a result published.

    Parameters
    ----------
    upload
        Id of the upload with its data files.
    files
        These, in the order of the rows, at least one.
    timeout_s
        How long to wait for it, in seconds, beside the time that the replica needs to read the files.
    stored
        The manifest of the result, and what the store said of its files, when they were put into the object store.

    Raises
    ------
    SnapshotExpired
        The parts have changed meanwhile; nothing was merged.
    BadInput
        The files are not a possible result; nothing was merged.
    Unavailable
        It is not known whether it was published: publish it again, which does no harm.
    """
    body: dict[str, Any] = {
        "upload": upload,
        "sources": [source.part for source in merge.sources],
        "schema_version": merge.schema_version,
        "files": [msgspec.to_builtins(file) for file in files],
    }
    if stored is not None:
        body |= {"manifest": msgspec.to_builtins(stored.manifests[0]), "tags": stored.tags[merge.partition]}
    wait_s = timeout_s + sum(file.bytes for file in files) / READ_BYTES_PER_S
    _, merged = plan.table.commander.ask("POST", "merges/result", Merged, body, timeout_s=wait_s)
    return merged


def published(outcomes: Sequence[Merged], reasons: Sequence[str]) -> OptimizeResult:
    """Tell what became of all merges of a plan; one that came too late for its parts was not made.

    Parameters
    ----------
    outcomes
        What `publish_result` returned.
    reasons
        Why other merges of the plan were not published.
    """
    late = [
        f"partition {merge.partition}: its parts were dropped, changed or merged by others before this merge was in the log, "
        "so it was not made; say optimize again"
        for merge in outcomes
        if merge.applied is False
    ]
    merged = tuple(merge for merge in outcomes if merge.applied is not False)
    why = [*late, *reasons]
    return OptimizeResult(merged, not why and all(merge.finished for merge in merged), why[0] if why else "")
