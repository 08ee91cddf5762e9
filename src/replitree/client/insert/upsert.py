"""Upserts: whether an insert into a table replaces the rows that have equal keys.

A table with the policy ``replacing`` keeps one of several rows with equal order keys, so an insert into it *is* an upsert,
under the conditions that are checked here.  Final reads show it at once, other reads after a merge.

Absent on purpose: reading the versions that are there.  Two writers would choose the same next version, and a version that
depends on a clock may be below one that is there already: so the caller gives the versions.
"""

from __future__ import annotations

from collections.abc import Collection

from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PolicyKind


def check_upsert(definition: TableDefinition, columns: Collection[str]) -> None:
    """Do nothing when rows with these columns replace those that have equal keys.

    Parameters
    ----------
    definition
        The table.
    columns
        Columns that the rows have.

    Raises
    ------
    BadInput
        They would not, or not always; says what to do.
    """
    policy = definition.policy
    if policy.kind is not PolicyKind.REPLACING:
        raise BadInput(
            f"table {definition.name} has the policy {policy.text}, which keeps rows with equal keys beside each other or adds"
            " them up: upsert is for tables made with policy='replacing' or 'replacing(version)'"
        )
    partitioned = {transform.column for transform in definition.partition_by} - {*definition.order_by}
    if partitioned:
        # A policy works inside of a partition: a row whose partition has changed would not replace the earlier one.
        raise BadInput(
            f"table {definition.name} is partitioned by {', '.join(sorted(partitioned))}, which is not in its order key, so"
            " rows with equal keys may lie in several partitions and all stay: use insert if keys never change partitions"
        )
    there = {name.lower() for name in columns}
    needed = [*definition.order_by, *([policy.version] if policy.version is not None else [])]
    missing = [name for name in needed if name.lower() not in there]
    if missing:
        raise BadInput(
            f"the rows have no column {missing[0]!r}: an upsert into {definition.name} needs the order key"
            f" ({', '.join(definition.order_by)})"
            + (
                f" and the version ({policy.version}), higher than that of the rows to replace"
                if policy.version
                else ""
            )
        )
