"""A table's definition: columns, order key, partition transforms, settings, and the two nodes that hold them.

Guarantees: a `TableDefinition` made by `define_table` is valid as a whole, so nothing that uses one checks it again;
`decode_definition(d.encode_metadata(), d.encode_columns()) == d`; what a newer replitree wrote is refused, never half
understood.

Columns have ids that are never used twice in a table, so a column that is dropped and added again is another column.  The node
`metadata` names columns as data files do (see `replitree.storage.schema.columns`), so that a change of the columns
changes the node `columns` alone.

Absent on purpose: where parts lie, replicas, anything that changes with an insert; what is checked
(`replitree.storage.schema.definition_checks`, which needs Arrow's types: a server that starts does not wait for them).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.errors import BadInput, UnsupportedFormat
from replitree.protocol.core.layout import check_table_name
from replitree.protocol.sharded.places import check_hosted_name
from replitree.storage.files.formats import decode_known
from replitree.storage.files.names import format_name, split_list
from replitree.storage.schema.columns import Column, ColumnStep, History, columns_before, columns_ever
from replitree.storage.schema.merge_policy import PLAIN, MergePolicy, parse_policy
from replitree.storage.schema.retention import RowTtl, keep_seconds, parse_feed, parse_keep, parse_ttl, ttl_text
from replitree.storage.schema.storage_policy import LOCAL, StorageKind, StoragePolicy, parse_storage

if TYPE_CHECKING:
    import pyarrow as pa


FORMATS = (1, 2, 3, 4, 5, 6, 7)
"""Known formats of the node `metadata`; 2 has the URL of an object store, 3 a storage policy that is more than that, 4 says how
long old parts stay, 5 has a policy with a delete marker, 6 has a change feed, 7 says when rows go or has Bloom filters."""
COLUMNS_FORMATS = (1, 2)
"""Known formats of the node `columns`; 2 has columns whose insides were altered."""
FIRST_SCHEMA_VERSION = 1

NAMES_LISTED = 20
"""Columns that a message names at most."""
_TABLE_ID = re.compile(r"[0-9a-f]{32}")


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one table, which an operator chooses.

    Attributes
    ----------
    parts_delay
        Parts of one partition from which on inserts into it are delayed.
    parts_max
        Parts of one partition from which on inserts into it are refused.
    partitions_per_insert_max
        Partitions that one insert may write to: more is nearly always a wrong partition key.
    row_group_rows
        Rows of a Parquet row group.
    compression_level
        Level of zstd.
    """

    parts_delay: int = 1000
    parts_max: int = 3000
    partitions_per_insert_max: int = 1000
    row_group_rows: int = 131_072
    compression_level: int = 1


DEFAULT_SETTINGS = TableSettings()


class TransformKind(Enum):
    """Iceberg's names of the functions from a value to its partition."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    TRUNCATE = "truncate"


WITH_ARGUMENT = frozenset({TransformKind.BUCKET, TransformKind.TRUNCATE})
"""Those that take a number."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A function of one column whose value names a row's partition; `argument` only for `bucket` and `truncate`."""

    kind: TransformKind
    column: str
    argument: int | None = None

    @property
    def text(self) -> str:
        """The transform as SQL writes it; `parse_transform` reads it."""
        name = format_name(self.column)
        return f"{self.kind.value}({name})" if self.argument is None else f"{self.kind.value}({self.argument},{name})"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """Everything that the rows of a table depend on.  Made by `define_table` or `decode_definition`."""

    name: str
    table_id: str
    columns: tuple[Column, ...]
    schema_version: int = FIRST_SCHEMA_VERSION
    order_by: tuple[str, ...] = ()
    partition_by: tuple[Transform, ...] = ()
    settings: TableSettings = DEFAULT_SETTINGS
    policy: MergePolicy = PLAIN
    history: History = ()
    storage: str = LOCAL
    keep: str = ""
    feed: str = ""
    ttl: RowTtl | None = None
    bloom: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether the data files of its parts may lie in an object store, which the replicas share."""
        return self.storage != LOCAL

    @property
    def keep_s(self) -> int | None:
        """For how many seconds a part that has left the table stays; None: as each replica's own setting says."""
        return keep_seconds(self.keep)

    @property
    def feed_s(self) -> int | None:
        """For how many seconds the change feed is kept; None: it is off."""
        return keep_seconds(self.feed)

    @property
    def placement(self) -> StoragePolicy:
        """Where the data files of its parts belong."""
        return parse_storage(self.storage)

    @property
    def store_url(self) -> str:
        """URL of the object store in which data files may lie; empty when there is none."""
        return self.placement.url

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema that every table of rows has, exactly."""
        return _arrow_schema(self.columns)

    @property
    def folder_name(self) -> str:
        """Name of the table's folder on a disk: a table that is dropped and created again gets another one."""
        return f"{self.name}-{self.table_id[:8]}"

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Columns that parts keep statistics of: the order key's, then the partition transforms'."""
        return tuple(dict.fromkeys((*self.order_by, *(t.column for t in self.partition_by))))

    def column(self, name: str) -> Column:
        """Give a column by its exact name.

        Raises
        ------
        BadInput
            There is none; names the nearest one and those there are.
        """
        for column in self.columns:
            if column.name == name:
                return column
        names = [column.name for column in self.columns]
        by_lower = {known.lower(): known for known in names}
        near = [by_lower[found] for found in difflib.get_close_matches(name.lower(), by_lower, n=1)]
        hint = f"did you mean {near[0]!r}? " if near else ""
        more = f" and {len(names) - NAMES_LISTED} more" if len(names) > NAMES_LISTED else ""
        listed = f"{', '.join(names[:NAMES_LISTED])}{more}"
        raise BadInput(f"table {self.name} has no column {name!r}; {hint}it has {listed}")

    def selected(self, names: Sequence[str] | None) -> tuple[Column, ...]:
        """Give the columns of these names in this order; all columns if `names` is None.

        Raises
        ------
        BadInput
            There is no such column, or `names` is one text instead of a list.
        """
        # Python takes a text for a sequence of one-letter names.
        # A text is a sequence, too: its letters would be taken for names.
        if isinstance(names, str):
            raise BadInput(f"columns are a list of names, as in [{names!r}], not the text {names!r}")
        return self.columns if names is None else tuple(self.column(name) for name in names)

    @property
    def stored(self) -> TableDefinition:
        """Return this table with its columns named as in data files: whatever writes or reads part files works with it."""
        if not self.history:
            return self
        history = tuple(
            (step if step.before is None else msgspec.structs.replace(step, before=step.before.as_stored()))
            for step in self.history
        )
        return self.with_columns(tuple(c.as_stored() for c in self.columns), self.schema_version, history)

    def at(self, version: int) -> TableDefinition:
        """Return this table with the columns of an older schema version.

        Raises
        ------
        BadInput
            The table has not, or not yet, had this version.
        """
        if not FIRST_SCHEMA_VERSION <= version <= self.schema_version:
            raise BadInput(f"table {self.name} has schema versions 1 to {self.schema_version}, not {version}")
        if version == self.schema_version:
            return self
        columns = self.columns
        kept = tuple(step for step in self.history if step.version < version)
        for step in reversed(self.history[len(kept) :]):
            columns = columns_before(columns, step)
        return self.with_columns(columns, version, kept)

    def evolved(self, columns: tuple[Column, ...], steps: Sequence[ColumnStep]) -> TableDefinition:
        """Return this table with the columns of the next schema version; keys and policy follow their columns.

        Parameters
        ----------
        columns
            The new ones.
        steps
            How to get back from them, the change that was made first first.

        Raises
        ------
        BadInput
            The table can't have these columns.
        """
        found = self.with_columns(columns, self.schema_version + 1, (*self.history, *steps))
        _check(found)
        return found

    def with_columns(self, columns: tuple[Column, ...], version: int, history: History) -> TableDefinition:
        """Return this table with other columns, unchecked; the key columns must be among them, by their ids."""
        # Keys follow their columns by id: a name may belong to another column by then.
        by_id = {column.id: column.name for column in columns}
        names = {column.name: by_id.get(column.id, column.name) for column in self.columns}
        return replace(
            self,
            columns=columns,
            schema_version=version,
            history=history,
            order_by=tuple(names[name] for name in self.order_by),
            partition_by=tuple(replace(t, column=names[t.column]) for t in self.partition_by),
            policy=replace(self.policy, columns=tuple(names[name] for name in self.policy.columns)),
            # A key column is in every version, which a column with a Bloom filter need not be.
            ttl=None if self.ttl is None else replace(self.ttl, column=names[self.ttl.column]),
            bloom=tuple(by_id[column.id] for column in map(self.column, self.bloom) if column.id in by_id),
        )

    def with_settings_of(self, other: TableDefinition) -> TableDefinition:
        """Return this table with what an operator can change of another version of it: storage, retention, Bloom filters."""
        other = other.with_columns(self.columns, self.schema_version, self.history)
        return replace(self, storage=other.storage, keep=other.keep, feed=other.feed, ttl=other.ttl, bloom=other.bloom)

    def encode_metadata(self) -> bytes:
        """Bytes of the node `metadata`: all but the columns."""
        stored = self.stored
        partition_by = tuple(t.text for t in stored.partition_by)
        # The lowest format that says everything: older replicas read all tables that do not need a newer one.
        version = 1 if not self.is_shared else 2 if self.placement.kind is StorageKind.SHARED else 3
        version = 4 if self.keep else version
        version = 5 if self.policy.deleted is not None else version
        version = 6 if self.feed else version
        version = 7 if self.ttl is not None or self.bloom else version
        policy = stored.policy.text
        return _encoder.encode(
            _Metadata(
                version,
                self.name,
                self.table_id,
                stored.order_by,
                partition_by,
                self.settings,
                policy,
                self.storage,
                self.keep,
                self.feed,
                ttl_text(stored.ttl),
                stored.bloom,
            )
        )

    def encode_columns(self) -> bytes:
        """Bytes of the node `columns`."""
        # The lowest format that says everything: older replicas read a table until it uses what they do not know.
        is_reshaped = any(c.stored_type != c.type for c in columns_ever(self.columns, self.history))
        version = COLUMNS_FORMATS[is_reshaped]
        return _encoder.encode(_Columns(version, self.schema_version, self.columns, self.history or UNSET))


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    format: int
    name: str
    table_id: str
    order_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    settings: TableSettings
    policy: str = PLAIN.text  # left out when plain: older versions read such tables
    storage: str = LOCAL
    keep: str = ""
    feed: str = ""
    ttl: str = ""
    bloom: tuple[str, ...] = ()


class _Columns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    schema_version: int
    columns: tuple[Column, ...]
    history: History | UnsetType = UNSET


_encoder = msgspec.json.Encoder(order="deterministic")
_metadata_decoder = json_decoder(_Metadata)
_columns_decoder = json_decoder(_Columns)


# --- making one -----------------------------------------------------------------------------------------------------------


def define_table(  # noqa: PLR0913 - each is an option of one table
    name: str,
    schema: pa.Schema | str,
    *,
    order_by: str | Sequence[str] = (),
    partition_by: str | Transform | Sequence[str | Transform] = (),
    settings: TableSettings | None = None,
    policy: str | MergePolicy = PLAIN,
    storage: str = LOCAL,
    keep: str = "",
    feed: str = "",
    ttl: str = "",
    bloom: str | Sequence[str] = (),
    table_id: str | None = None,
) -> TableDefinition:
    """Check a new table's definition as a whole.

    Parameters
    ----------
    name
        Letters, digits and ``_``; a letter first.
    schema
        An Arrow schema, or Spark's DDL: ``"d date, k bigint not null, tags array<string>"``.
    order_by
        Columns that rows are sorted by inside a part: ascending, nulls first.  May be empty; a text with commas is a list.
    partition_by
        Transforms such as ``"month(d)"``, ``"bucket(16,k)"`` or a plain column name.  Likewise.
    settings
        See `TableSettings`.
    policy
        What merges make of rows with equal order keys, such as ``"replacing(version)"``; see
        `replitree.storage.schema.merge_policy`.
    storage
        ``"local"``, the URL of the object store that the replicas share, or ``"tiered(URL, older=7d)"``; see
        `replitree.storage.schema.storage_policy`.
    keep
        For how long parts that have left the table stay, such as ``"7 days"``; empty: as each replica's own setting says.
    feed
        For how long the change feed is kept, such as ``"24h"``; empty or ``"off"``: there is none.
    ttl
        When rows are removed, such as ``"at + 90 days"``; empty or ``"off"``: never.
    bloom
        Columns whose values Bloom filters in the data files tell readers; a text with commas is a list.
    table_id
        32 hexadecimal digits; a fresh one by default.

    Raises
    ------
    BadInput
        Something is wrong; says what to use instead.  `InvalidName` when it is the table's name.
    """
    columns = _columns_of(schema)
    known = {column.name for column in columns}
    order_by = names_in(order_by, known)
    for key in order_by:
        column, _, direction = str(key).rpartition(" ")
        if key not in known and column in known and direction.lower() in {"asc", "desc"}:
            raise BadInput(
                f"order_by names columns only, and rows are always in ascending order: leave out {direction!r}"
            )
    given = split_list(partition_by) if isinstance(partition_by, str) else partition_by
    transforms = (given,) if isinstance(given, Transform) else given
    definition = TableDefinition(
        name=check_table_name(name),
        table_id=_check_table_id(uuid4().hex if table_id is None else table_id),
        columns=columns,
        order_by=tuple(order_by),
        partition_by=tuple(parse_transform(item) if isinstance(item, str) else item for item in transforms),
        settings=settings or DEFAULT_SETTINGS,
        policy=parse_policy(policy) if isinstance(policy, str) else policy,
        storage=parse_storage(storage).text,
        keep=parse_keep(keep),
        feed=parse_feed(feed),
        ttl=parse_ttl(ttl),
        bloom=tuple(names_in(bloom, known)),
    )
    _check(definition)
    from replitree.storage.schema.definition_checks import check_new_settings

    check_new_settings(definition.settings)
    return definition


def check_new(definition: TableDefinition) -> TableDefinition:
    """Return a definition that a table can have from now on.

    Raises
    ------
    BadInput
        No table can have it; says what to use instead.
    """
    _check(definition)
    return definition


def decode_definition(metadata: bytes, columns: bytes) -> TableDefinition:
    """Read a definition from the values of its two nodes.

    Raises
    ------
    UnsupportedFormat
        Written by a newer replitree, or not by one.
    """
    definition = decode_unchecked(metadata, columns)
    check_decoded(definition)
    return definition


def check_decoded(definition: TableDefinition) -> None:
    """Do nothing with a definition that was read and that this replitree understands.  Raises as `decode_definition`."""
    try:
        # Both forms: a name may be free among the shown columns and taken among the stored ones.
        _check(definition.stored)
        _check(definition)
    except BadInput as error:
        raise _not_understood(error) from error


def decode_unchecked(metadata: bytes, columns: bytes) -> TableDefinition:
    """Read a definition; whether a table can have it is left to `check_decoded`.  Raises as `decode_definition`."""
    head = decode_known(_metadata_decoder, metadata, "the table's metadata node", FORMATS)
    body = decode_known(_columns_decoder, columns, "the table's columns node", COLUMNS_FORMATS)
    try:
        stored = TableDefinition(
            name=check_hosted_name(head.name),
            table_id=_check_table_id(head.table_id),
            columns=tuple(column.as_stored() for column in body.columns),
            order_by=head.order_by,
            partition_by=tuple(parse_transform(text) for text in head.partition_by),
            settings=head.settings,
            policy=parse_policy(head.policy),
            storage=parse_storage(head.storage).text,
            keep=parse_keep(head.keep),
            feed=parse_feed(head.feed),
            ttl=parse_ttl(head.ttl),
            # A column that was dropped needs no filter any more; the node `metadata` did not change with it.
            bloom=tuple(name for name in head.bloom if any(name == column.stored_name for column in body.columns)),
        )
        # `with_columns` looks these up by name: a key without its column must be refused before.
        ttl_columns = () if stored.ttl is None else (stored.ttl.column,)
        for name in (*stored.key_columns, *stored.policy.columns, *ttl_columns):
            stored.column(name)
    except BadInput as error:
        raise _not_understood(error) from error
    history = () if isinstance(body.history, UnsetType) else body.history
    return stored.with_columns(body.columns, body.schema_version, history)


def _not_understood(error: BadInput) -> UnsupportedFormat:
    return UnsupportedFormat(f"the table's definition is not one that this replitree understands: {error}")


def _check(definition: TableDefinition) -> None:
    from replitree.storage.schema.definition_checks import check_definition

    check_definition(definition)


def names_in(given: str | Sequence[str], known: Collection[str]) -> Sequence[str]:
    """Return the column names of a list; a text that is no column's name is a list of them, with commas.

    >>> names_in("k, `a b`", {"k", "a b"}), names_in("a,b", {"a,b"}), names_in(["k"], ())
    (['k', 'a b'], ('a,b',), ['k'])
    """
    if not isinstance(given, str):
        return given
    return (given,) if given in known else [name.strip("`") for name in split_list(given)]


def parse_transform(text: str) -> Transform:
    """Read a partition transform.

    Raises
    ------
    BadInput
        Not a transform; lists those there are.

    Examples
    --------
    >>> parse_transform("bucket( 16, k )").text
    'bucket(16,k)'
    >>> parse_transform("k").text
    'identity(k)'
    """
    # Text with parentheses is a transform, anything else a column: a misspelt transform is never taken for a column.
    call = re.fullmatch(r"\s*([A-Za-z]+)\s*\((.*)\)\s*", text, re.DOTALL)
    if call is None:
        return Transform(TransformKind.IDENTITY, _column_name(text))
    # Spark and Iceberg write `days(ts)`, too.
    word, inside = call.group(1).lower().removesuffix("s"), call.group(2)
    if word not in TransformKind._value2member_map_:
        kinds = ", ".join(kind.value for kind in TransformKind)
        raise BadInput(f"{text!r} is not a partition transform: use a column or one of {kinds}")
    kind = TransformKind(word)
    if kind not in WITH_ARGUMENT:
        return Transform(kind, _column_name(inside))
    argument, comma, column = inside.partition(",")
    if not comma or re.fullmatch(r"\s*[0-9]{1,9}\s*", argument) is None:
        raise BadInput(f"{text!r}: {kind.value} takes a number and a column, as in {kind.value}(16,k)")
    return Transform(kind, _column_name(column), int(argument))


def _column_name(text: str) -> str:
    name = text.strip()
    if len(name) >= 2 and name[0] == name[-1] == "`":
        return name[1:-1].replace("``", "`")
    if not name:
        raise BadInput("a partition transform needs a column")
    return name


def _columns_of(schema: pa.Schema | str) -> tuple[Column, ...]:
    import pyarrow as pa

    from replitree.storage.schema.types import SchemaField, format_type, parse_schema, storable_type

    if isinstance(schema, str):
        fields = parse_schema(schema)
    elif isinstance(schema, pa.Schema):
        fields = ()
        for field in schema:
            try:
                fields = (*fields, SchemaField(field.name, storable_type(field.type), field.nullable))
            except BadInput as error:
                raise BadInput(f"column {field.name!r}: {error}") from error
    else:
        raise BadInput(
            f"a schema is a pyarrow.Schema or text such as 'd date, k bigint'; this is a {type(schema).__name__}"
        )
    return tuple(Column(i, f.name, format_type(f.type), f.nullable) for i, f in enumerate(fields, start=1))


def _check_table_id(table_id: str) -> str:
    if _TABLE_ID.fullmatch(table_id) is None:
        raise BadInput(f"{table_id!r} is not a table id: 32 hexadecimal digits")
    return table_id


@lru_cache(maxsize=256)
def _arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(c.name, c.arrow_type, c.nullable) for c in columns])
