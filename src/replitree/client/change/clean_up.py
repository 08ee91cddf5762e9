"""Clean-up of deletions: rows that say that their key is deleted go for good, with all that they hide.

A merge keeps such a row (`MergePolicy.deleted`): an older row of its key may lie in a part that is not merged, or come later.
The user says by asking that none comes later.  That none lies elsewhere is proved: a clean-up of a partition is one `rewrite`
of all of its parts, in isolation ``"serializable"``.

1. begin a rewrite of all parts of the partition: they stay as they are for as long as it is made
2. see that the replica lacks no part of it, and read the partition's final rows, without deletions; they take the place of its
   first part, and the other parts lose all rows
3. commit; when rows have come to the partition meanwhile, nothing is changed, and it is begun again (`rewrite.TRIES`)

Guarantees: after it, every final read of the partition shows what it showed before, and no row of a deleted key is left.
A partition without deletions is not touched.

Absent on purpose: a partition with more rows than `ROWS_MAX`.  Its rows would all be in this process's memory.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.client.change.rewrite import RewritePlan, rewrite
from replitree.client.read.scan import LEASE_S
from replitree.errors import BadInput, ConcurrentChange
from replitree.protocol.core.parts import parse_part
from replitree.storage.files.names import format_name
from replitree.storage.sql.predicate_parser import parse_predicate

if TYPE_CHECKING:
    from replitree.client.table import Table
    from replitree.storage.schema.definition import TableDefinition

ROWS_MAX = 50_000_000
"""Rows of one partition that are cleaned up."""


def check_clean_up(definition: TableDefinition) -> str:
    """Return the delete marker of a table's policy.

    Raises
    ------
    BadInput
        The policy has none.
    """
    marker = definition.policy.deleted
    if marker is None:
        raise BadInput(
            f"cleanup=True removes rows that say that their key is deleted: it needs the policy"
            f" replacing(version, is_deleted), and the policy of table {definition.name} is {definition.policy.text!r}"
        )
    return marker


def clean_up(table: Table, partition: str | None, *, timeout_s: float) -> str:
    """Clean up a table, or one partition of it; return why something is left, empty when nothing is.

    Parameters
    ----------
    partition
        Its id; None: every partition that can have deletions.
    timeout_s
        How long replicas may take for each partition, in seconds; reading and writing its rows does not count.

    Raises
    ------
    BadInput
        The policy has no delete marker, or there is too much in a partition.
    Unavailable, OutcomeUnknown
        As `rewrite`.  Partitions that were done before stay done, and the call can be repeated.
    """
    definition = table.refresh()
    marker = check_clean_up(definition)
    is_boolean = definition.column(marker).type == "boolean"
    predicate = parse_predicate(format_name(marker) + ("" if is_boolean else " <> 0"), definition)
    with table.snapshot(level="linearizable", lease_s=LEASE_S, timeout_s=timeout_s) as snapshot:
        snapshot.require(predicate)
        found = []
        for name, parts in groupby(snapshot.parts, key=lambda each: each.manifest.partition):
            # Statistics prove it of most parts.  Of the others the marker is read, which costs less than a rewrite for nothing.
            possible = [each for each in parts if predicate.may_match(each.manifest)]
            if partition in (None, name) and possible and snapshot.count_rows(possible, predicate):
                found.append(name)
    busy = []
    for name in found:
        try:
            rewrite(table, make_final, partitions=(name,), isolation="serializable", timeout_s=timeout_s)
        except ConcurrentChange:
            busy.append(name)
    return (
        f"partition {', '.join(busy)} has changed all the time, or has a part that can't be read: try again"
        if busy
        else ""
    )


def make_final(plan: RewritePlan) -> None:
    """Put the final rows of a partition in the place of all of its parts.

    Raises
    ------
    ConcurrentChange
        The replica has other parts by now, or lacks one.
    BadInput
        There are too many rows.
    """
    sources = sorted(plan.sources, key=lambda each: parse_part(each.part))
    partitions = {parse_part(each.part).partition for each in sources}
    rows = sum(each.manifest.rows for each in sources)
    if rows > ROWS_MAX:
        raise BadInput(
            f"partition {sources[0].manifest.partition} has {rows:,} rows, and a clean-up reads {ROWS_MAX:,} at most: Spark"
            " does it by INSERT OVERWRITE of the partition with its final rows"
        )
    with plan.table.snapshot(plan.index - 1, lease_s=LEASE_S) as shown:
        # A part that the replica had lost, and has again by now, is no source.  What its deletions hide must not come back.
        names = {*(each.part for each in shown.parts), *(each.part for each in shown.unread)}
        if {name for name in names if parse_part(name).partition in partitions} != {each.part for each in sources}:
            raise ConcurrentChange(
                f"the parts of partition {', '.join(partitions)} change, or one can't be read: try again"
            )
        final = replace(shown, definition=plan.definition, index=plan.index, parts=tuple(sources), unread=(), tag="")
        batches = list(final.batches(final=True))
    schema = plan.definition.arrow_schema
    for number, source in enumerate(sources):
        plan.put_result(source.part, pa.Table.from_batches(batches if number == 0 else [], schema))


__all__ = ["ROWS_MAX", "check_clean_up", "clean_up", "make_final"]
