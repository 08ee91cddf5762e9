"""Checks of a table's definition as a whole: names, types, keys, transforms, policy, settings, history."""

from __future__ import annotations

from msgspec import UNSET

from replitree.errors import BadInput, InvalidName
from replitree.storage.schema.columns import Column, columns_before, columns_ever
from replitree.storage.schema.definition import (
    FIRST_SCHEMA_VERSION,
    WITH_ARGUMENT,
    TableDefinition,
    TableSettings,
    TransformKind,
)
from replitree.storage.schema.merge_policy import check_policy
from replitree.storage.schema.retention import DAY_S
from replitree.storage.schema.type_kinds import MOMENTS, NESTED, WHOLE_NUMBERS, is_plain_text, kind_of

COLUMNS_MAX = 2000
"""Columns of a table: both nodes stay far below ZooKeeper's limit of 1 MB."""

NAME_CHARACTERS_MAX = 100
TRANSFORMS_MAX = 8
BUCKETS_MAX = 1_000_000
SETTING_MAX = (1 << 31) - 1
PARTITIONS_PER_INSERT_MAX = 2_000
"""Partitions of one insert: with the longest names the commits that append and that register it stay below 1 MB."""


def check_definition(definition: TableDefinition) -> None:
    """Do nothing with a definition that a table can have.

    Raises
    ------
    BadInput
        No table can have it; says what to use instead.
    """
    _check_columns(definition)
    _check_unique(list(definition.order_by), "order_by has {} twice")
    for name in definition.order_by:
        column = definition.column(name)
        if kind_of(column.type) in NESTED:
            raise BadInput(f"rows can't be ordered by {name!r}: {column.type} has no order; use a plain column")
    _check_partition(definition)
    types = {column.name: column.type for column in definition.columns}
    check_policy(definition.policy, types, definition.order_by, definition.key_columns)
    _check_ttl(definition)
    _check_unique(list(definition.bloom), "bloom has {} twice")
    for name in definition.bloom:
        column = definition.column(name)
        if kind_of(column.type) not in _BLOOM:
            raise BadInput(
                f"bloom: column {name!r} is {column.type}; Bloom filters are for whole numbers, strings, binaries, dates and"
                " timestamps, whose equal values have equal bytes"
            )
    settings = definition.settings
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        # Settings may come from JSON or from Python, where True is an int.
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadInput(f"setting {name} must be a whole number above 0, not {value!r}")
    if settings.parts_delay > settings.parts_max:
        raise BadInput("setting parts_delay must not be above parts_max: inserts are delayed first, then refused")
    if settings.compression_level > 22:
        raise BadInput("setting compression_level must be 1 to 22")
    # `TableDefinition.at` walks back over the steps in this order.
    versions = [step.version for step in definition.history]
    is_within = all(FIRST_SCHEMA_VERSION <= version < definition.schema_version for version in versions)
    if versions != sorted(versions) or not is_within:
        raise BadInput("the columns' history has versions that the table did not have")
    columns = definition.columns
    for step in reversed(definition.history):
        columns = columns_before(columns, step)
    # With the id: a column that was changed stands in the history under one stored name several times.
    stored = {(c.stored_name.lower(), c.id) for c in columns_ever(definition.columns, definition.history)}
    _check_unique([name for name, _ in sorted(stored)], "two columns are named {} in data files")
    if definition.is_shared:
        check_storage(definition.store_url)


def check_storage(url: str) -> None:
    """Do nothing with the URL of an object store that replicas can share.

    Raises
    ------
    BadInput
        It is no such URL, has credentials, or is of a store that each process has for itself.
    """
    from replitree.storage.objects.location import StoreLocation

    if StoreLocation.parse(url).scheme == "memory":
        raise BadInput(
            f"each process has objects in memory for itself, so replicas can't share {url}; use s3://bucket/prefix or"
            " file:///folder"
        )


def _check_columns(definition: TableDefinition) -> None:
    columns = definition.columns
    if not 1 <= len(columns) <= COLUMNS_MAX:
        raise BadInput(f"a table has 1 to {COLUMNS_MAX} columns, not {len(columns)}")
    for column in columns:
        check_column_name(column.name)
        # Of most columns the text says enough: a reader that loads Arrow only for this check would take twice as long.
        if not (
            is_plain_text(column.type)
            and column.stored_type == column.type
            and column.initial is column.default is UNSET
        ):
            _check_with_arrow(column)
    _check_unique(
        [c.name.lower() for c in columns], "two columns are named {} (Spark does not tell upper from lower case)"
    )
    _check_unique([str(c.id) for c in columns], "two columns have the id {}")


def _check_with_arrow(column: Column) -> None:
    """Check the types of a column, and its defaults."""
    import pyarrow as pa

    from replitree.storage.schema.nested import same_shape
    from replitree.storage.schema.types import format_type, parse_type

    # One text for each type: replicas compare definitions as bytes.
    for text in {column.type, column.stored_type}:
        if format_type(parse_type(text)) != text:
            raise BadInput(f"column {column.name!r}: {text!r} is not the text form of a type")
    if not same_shape(column.arrow_type, parse_type(column.stored_type)):
        raise BadInput(f"column {column.name!r}: its type in data files, {column.stored_type}, is not a {column.type}")
    try:
        # Making the scalars is the check; they are thrown away.
        assert column.initial_scalar.type == column.default_scalar.type
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        raise BadInput(f"column {column.name!r}: its default is not a {column.type}: {error}") from error


_BLOOM = WHOLE_NUMBERS | MOMENTS | {"string", "binary"}
"""Kinds of types that have Bloom filters: 0.0 and -0.0 are equal and have two hashes, and writers of decimals differ."""


def _check_ttl(definition: TableDefinition) -> None:
    ttl = definition.ttl
    if ttl is None:
        return
    column = definition.column(ttl.column)
    if kind_of(column.type) not in MOMENTS:
        raise BadInput(f"ttl {ttl.text}: column {ttl.column!r} is {column.type}; use a date or timestamp column")
    if kind_of(column.type) == "date" and ttl.seconds % DAY_S:
        raise BadInput(f"ttl {ttl.text}: {ttl.column!r} is a date; use whole days")
    # Parts keep the bounds of key columns alone.  Without bounds each round would read every row of the table.  Key columns
    # are never dropped, and no update changes them, so what a partition's values say of its rows holds for good.
    if ttl.column not in definition.key_columns:
        raise BadInput(
            f"ttl {ttl.text}: column {ttl.column!r} must be in order_by or partition_by, as in"
            f" partition_by='day({ttl.column})': parts keep the bounds of these columns alone"
        )


def check_column_name(name: str) -> None:
    """Do nothing when a column, or a field inside one, can have this name.

    Raises
    ------
    InvalidName
        It can't.
    """
    if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable() or name != name.strip():
        raise InvalidName(f"{name!r} can't be a column's name: use 1 to {NAME_CHARACTERS_MAX} printable characters")


def _check_partition(definition: TableDefinition) -> None:
    transforms = definition.partition_by
    if len(transforms) > TRANSFORMS_MAX:
        raise BadInput(f"partition_by has {len(transforms)} transforms; at most {TRANSFORMS_MAX} are possible")
    # Two equal transforms would name every partition twice over.
    _check_unique([t.text for t in transforms], "partition_by has {} twice")
    for transform in transforms:
        column = definition.column(transform.column)
        if kind_of(column.type) not in _TAKES[transform.kind]:
            raise BadInput(
                f"{transform.text}: {transform.kind.value} can't take a {column.type}; {_HINT[transform.kind]}"
            )
        if (transform.argument is None) == (transform.kind in WITH_ARGUMENT):
            raise BadInput(f"{transform.text}: only bucket and truncate take a number")
        if transform.argument is not None and not 1 <= transform.argument <= _ARGUMENT_MAX[transform.kind]:
            raise BadInput(f"{transform.text}: the number must be 1 to {_ARGUMENT_MAX[transform.kind]}")


_TRUNCATED = WHOLE_NUMBERS | {"decimal", "string", "binary"}
_TAKES = {
    TransformKind.IDENTITY: _TRUNCATED | MOMENTS | {"boolean"},
    TransformKind.YEAR: MOMENTS,
    TransformKind.MONTH: MOMENTS,
    TransformKind.DAY: MOMENTS,
    TransformKind.HOUR: frozenset({"timestamp"}),
    TransformKind.BUCKET: _TRUNCATED | MOMENTS,
    TransformKind.TRUNCATE: _TRUNCATED,
}
"""Kinds of types that a transform takes."""
_HINT = {
    TransformKind.IDENTITY: "equal floating-point or nested values make no partitions",
    TransformKind.YEAR: "use a date or timestamp column",
    TransformKind.MONTH: "use a date or timestamp column",
    TransformKind.DAY: "use a date or timestamp column",
    TransformKind.HOUR: "use a timestamp column",
    TransformKind.BUCKET: "use integers, decimals, strings, binaries, dates or timestamps",
    TransformKind.TRUNCATE: "use integers, decimals, strings or binaries",
}
_ARGUMENT_MAX = {TransformKind.BUCKET: BUCKETS_MAX, TransformKind.TRUNCATE: 999_999_999}


def check_new_settings(settings: TableSettings) -> None:
    """Do nothing with settings that a new table may have; what a table has that is there already is not asked.

    Raises
    ------
    BadInput
        One is too large.
    """
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if value > SETTING_MAX:
            raise BadInput(f"setting {name} must be at most {SETTING_MAX:,}, not {value}")
    if settings.partitions_per_insert_max > PARTITIONS_PER_INSERT_MAX:
        raise BadInput(
            f"setting partitions_per_insert_max must be at most {PARTITIONS_PER_INSERT_MAX:,}, not"
            f" {settings.partitions_per_insert_max}: an insert is one commit, and ZooKeeper takes no larger one"
        )


def _check_unique(names: list[str], problem: str) -> None:
    # The set decides first: counting each of 2,000 names takes four million steps.
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise BadInput(problem.format(repr(twice[0])))
