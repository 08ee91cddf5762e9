"""Final deletes: every version of the keys whose winning row matches a condition, for the policy `replacing(version)`.

An ordinary delete looks at each row by itself, so an older version that does not match comes back.  A final delete has two
steps:

1. read, at one position n of the log, the winning rows that match, with their key and their version v
2. put one ordinary DELETE into the log, with ``key = k AND (version < v OR (version = v AND (condition)))`` for each of them

Guarantees: after it, none of the rows that were in the table at n is left of these keys.  A row that another client inserts
between n and the entry survives exactly when it replaces the row that was read and does not match: one of a higher version
stays, one of a lower version goes, one of the same version stays unless it matches.

Refused, with the reason: a losing row that has the winner's version and does not match, because the DELETE would leave it and
it would win; policies in which no version decides; keys of floating-point numbers; more keys than fit into one mutation.

A row that is a deletion (`MergePolicy.deleted`) matches only when the condition has its delete marker: ``WHERE is_deleted``
removes the deletions themselves, with all that they hide.  A row of such a key that is inserted later is then shown, whatever
its version.

The shards of a sharded table are read at one cut, and one command deletes in all of them.

Rows of several partitions never replace each other.  The DELETE concerns one partition, or has a condition for each, unless the
order key decides the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from replitree.client.read.final import final_batches_of, final_groups
from replitree.errors import BadInput
from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.partition_bounds import bounds_manifest
from replitree.storage.rewrite.read import read_batches
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.columns import arrow_scalar
from replitree.storage.schema.definition import TableDefinition, TransformKind
from replitree.storage.schema.merge_policy import PolicyKind
from replitree.storage.sql.expression import where_true
from replitree.storage.sql.mutation import delete_where
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import TEXT_CHARACTERS_MAX, parse_predicate

if TYPE_CHECKING:
    from replitree.client.read.snapshot import Snapshot, SnapshotPart

FINAL_KEYS_MAX = 10_000
"""Keys that one final delete removes."""

FINAL_CONDITIONS_MAX = 1_000
"""Conditions in one final delete.  Keys that differ only in their last column and have the same version share one.  Every row
of a part that the delete reaches is compared with all of them."""

NOTHING = "false"
"""The condition when no key matches.  It is put into the log, too: a repeated command finds the first one by its id."""


@dataclass(frozen=True, slots=True)
class Winners:
    """The winning rows of one partition that match: columns of the order key, and the version."""

    partition: str
    values: tuple[Scalar, ...]
    rows: pa.Table


def final_delete(
    snapshot: Snapshot, where: str, partition: str | None = None, beside: Sequence[Snapshot] = ()
) -> tuple[str, str | None]:
    """Return the condition of the DELETE that removes whole keys, and the id of the one partition that it concerns, if it does.

    Parameters
    ----------
    snapshot
        A linearizable one.
    where
        Which winning rows are meant.
    partition
        Only in this partition.
    beside
        Of a sharded table: the snapshots of its other shards, at the same cut.  Each key lies in one shard.

    Raises
    ------
    BadInput
        The condition can't be read, or the keys can't be deleted this way; says why and what to do instead.
    """
    definition, policy = snapshot.definition, snapshot.definition.policy
    if policy.kind is PolicyKind.REPLACING and policy.version is None:
        why = (
            "keeps the last inserted row, and a row that is inserted meanwhile can't be told from those that were read."
            " Read the keys (final=True) and delete by key, while no other client inserts them"
        )
        raise BadInput(f"final=True needs the policy replacing(version); {policy.text!r} {why}")
    if policy.kind is not PolicyKind.REPLACING:
        why = "adds rows with equal keys" if policy.kind is PolicyKind.SUMMING else "keeps every row"
        raise BadInput(f"final=True needs the policy replacing(version); {policy.text!r} {why}: leave final out")
    for name in definition.order_by:
        if pa.types.is_floating(definition.arrow_schema.field(name).type):
            raise BadInput(
                f"final=True compares keys exactly, and {name!r} in the order key is a floating-point number:"
                " delete with a condition on the order key, which reaches every version"
            )
    # The condition is read by itself first: `a) OR (b` must not become two conditions.
    delete_where(where, definition, partition=partition)
    predicate = parse_predicate(where, definition)
    found: list[Winners] = []
    for shard in (snapshot, *beside):
        shard.require(predicate)
        found += shard.good(lambda shard=shard: list(_winners(shard, predicate, partition)))  # type: ignore[misc]
    if not found:
        return NOTHING, partition
    one = found[0].partition if len({winners.partition for winners in found}) == 1 else None
    terms = [term for winners in found for term in _terms(winners, definition, where, within=one is None)]
    text = " OR ".join(terms)
    if len(terms) > FINAL_CONDITIONS_MAX or len(text) > TEXT_CHARACTERS_MAX:
        keys = sum(winners.rows.num_rows for winners in found)
        raise BadInput(
            f"{keys:,} keys need {len(terms):,} conditions of {len(text):,} characters in all; a final delete may have"
            f" {FINAL_CONDITIONS_MAX:,} and {TEXT_CHARACTERS_MAX:,}: {_SMALLER}"
        )
    return text, one


_SMALLER = "delete in smaller steps, with a range of the order key in each condition, or partition by partition"


# --- what is read ---------------------------------------------------------------------------------------------------------


def _winners(snapshot: Snapshot, predicate: Predicate, partition: str | None) -> Iterator[Winners]:
    definition = snapshot.definition
    names = _key_and_version(definition)
    schema = pa.schema([definition.arrow_schema.field(name) for name in names])
    count = 0
    for group in final_groups(snapshot.parts, definition, predicate):
        name = parse_part(group[0].part).partition
        if partition not in (None, name):
            continue
        batches = []
        for batch in final_batches_of(
            snapshot.checked(group),
            definition,
            names,
            predicate,
            deletions=definition.policy.deleted in predicate.columns,
        ):
            batches.append(batch)
            count += batch.num_rows
            if count > FINAL_KEYS_MAX:
                raise BadInput(f"the condition matches more than {FINAL_KEYS_MAX:,} keys: {_SMALLER}")
        if batches:
            winners = Winners(name, group[0].manifest.partition_values, pa.Table.from_batches(batches, schema))
            _check_ties(snapshot, group, predicate, winners)
            yield winners


def _check_ties(snapshot: Snapshot, group: Sequence[SnapshotPart], predicate: Predicate, winners: Winners) -> None:
    """Refuse when a losing row has its winner's version and does not match the condition."""
    import pyarrow.compute as pc

    definition = snapshot.definition
    names = _key_and_version(definition)
    if set(predicate.columns) <= set(names):
        # Rows with equal key and version match alike.
        return
    wanted = set(zip(*(column.to_pylist() for column in winners.rows.columns), strict=True))
    needed = list(dict.fromkeys([*names, *predicate.columns]))
    for batch in read_batches(snapshot.checked(group), definition, needed):
        others = batch.filter(pa.array(~where_true(predicate, batch))).select(names)
        # Arrow sorts out most rows here, so that few become Python objects.
        for name in names:
            others = others.filter(pc.is_in(others.column(name), value_set=winners.rows.column(name).combine_chunks()))
        for number, row in enumerate(zip(*(column.to_pylist() for column in others.columns), strict=True)):
            if row not in wanted:
                continue
            *key, version = (column[number] for column in others.columns)
            cells = zip(definition.order_by, key, strict=True)
            shown = " AND ".join(_equals(name, [_literal(value)]) for name, value in cells)
            # The delete would remove the winner and so make the other row the winner.
            raise BadInput(
                f"the key {shown} has two rows of the version {version}: the last one matches {predicate.text!r}, the other"
                " one does not and would come back. Insert the key once more with a higher version and repeat this, or"
                f" delete it by its key, without final: {shown}"
            )


def _key_and_version(definition: TableDefinition) -> list[str]:
    version = definition.policy.version
    assert version is not None
    return [*definition.order_by, version]


# --- what is written ------------------------------------------------------------------------------------------------------


def _terms(winners: Winners, definition: TableDefinition, where: str, *, within: bool) -> Iterator[str]:
    """Give the conditions of one partition's keys; `within`: others have keys, too."""
    version = definition.column(_key_and_version(definition)[-1])
    name, nullable = _name(version.name), version.nullable
    grouped: dict[tuple[str | None, ...], list[str | None]] = {}
    columns = [[_literal(value) for value in column] for column in winners.rows.columns]
    for *firsts, last, newest in zip(*columns, strict=True):
        grouped.setdefault((newest, *firsts), []).append(last)
    # Conditions that only rows of this partition meet.
    place: list[str] = []
    bounds = bounds_manifest(definition, winners.partition, winners.values).columns if within else {}
    for transform, value in zip(definition.partition_by, winners.values, strict=True) if within else ():
        column, known = transform.column, bounds.get(transform.column)
        # The conditions on the keys decide these columns already.
        if column in definition.order_by:
            continue
        if value is None:
            place.append(_equals(column, [None]))
            continue
        if known is None or known.low is None or known.high is None or transform.kind in _UNNAMED:
            raise BadInput(
                f"keys in several partitions match, and no condition says which rows {transform.text} puts into one:"
                " give partition=, one after the other; `replitree table partitions` shows them"
            )
        arrow = definition.arrow_schema.field(column).type
        low, high = (_literal(arrow_scalar(arrow, bound)) for bound in (known.low, known.high))
        ends = f"{_name(column)} >= {low} AND {_name(column)} <= {high}"
        place.append(_equals(column, [low]) if low == high else ends)
    for (newest, *firsts), lasts in grouped.items():
        each = [[value] for value in firsts] + [lasts]
        keys = [_equals(column, values) for column, values in zip(definition.order_by, each, strict=True)]
        # In versions, null is below every value.
        if newest is None:
            doomed = f"{name} IS NULL AND ({where})"
        else:
            older = f"{name} IS NULL OR {name} < {newest}" if nullable else f"{name} < {newest}"
            doomed = f"({older} OR ({name} = {newest} AND ({where})))"
        yield f"({' AND '.join([*place, *keys, doomed])})"


_UNNAMED = (TransformKind.BUCKET, TransformKind.TRUNCATE)


def _equals(column: str, values: Sequence[str | None]) -> str:
    given = [value for value in values if value is not None]
    null = f"{_name(column)} IS NULL"
    if not given:
        return null
    among = f"{_name(column)} IN ({', '.join(given)})" if len(given) > 1 else f"{_name(column)} = {given[0]}"
    return among if len(given) == len(values) else f"({among} OR {null})"


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _literal(value: pa.Scalar) -> str | None:
    """Write a value of a key or a version as SQL that `replitree.storage.sql.predicate_parser` reads as exactly this value."""
    if not value.is_valid:
        return None
    kinds = pa.types
    try:
        known: Any = value.as_py()
    except (ValueError, OverflowError) as error:
        # Python's years are 1 to 9999.
        raise BadInput(
            f"the date or time {value.value} (since 1970) of a key can't be written as SQL: {error}"
        ) from error
    if kinds.is_date(value.type) or kinds.is_timestamp(value.type):
        return f"'{known.isoformat()}'"
    if kinds.is_binary(value.type):
        return f"X'{known.hex()}'"
    if kinds.is_string(value.type):
        escaped: str = known.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    # Python's `True` is SQL's `true`.
    return format(known, "f") if kinds.is_decimal(value.type) else str(known).lower()


__all__ = ["FINAL_CONDITIONS_MAX", "FINAL_KEYS_MAX", "final_delete"]
