"""Layout: where a reader's columns are in the files of a part that was written with an older schema version.

Guarantees: rows of any older version become rows of the definition that is asked for: a column that was renamed is found by its
stored name, one that was widened is cast without loss, one that was dropped is left out, and one that was added since shows the
default that it was added with.  So are the fields inside structs; one that was added since is null.  Nothing depends on what a
file happens to contain: the part's schema version decides.

Two versions that differ only in columns' names have equal layouts, so their parts are read as one.

Rows in memory (merges, mutations) are brought to the columns by `replitree.storage.schema.adapt`; scans put the same into their
projections and filters (`replitree.storage.rewrite.read`), and Spark into its own (`replitree.spark.read.read`).

Absent on purpose: newer versions than the definition's.  A caller that meets one reads the definition again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from replitree.errors import StoreError
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.type_kinds import NESTED, kind_of

if TYPE_CHECKING:
    # Which files have the columns as they are is asked before Arrow is needed, and often it is not needed then.
    import pyarrow as pa
    import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the values of one column come from.

    Attributes
    ----------
    column
        The column as readers see it.
    stored_type
        Text form of the type that it has in the files, under its stored name; None: it is not in them, and every row shows the
        column's `initial`.
    """

    column: Column
    stored_type: str | None

    @property
    def is_plain(self) -> bool:
        """Whether the files have exactly this column."""
        return (
            self.stored_type == self.column.type
            and self.column.stored_name == self.column.name
            and not self.is_reshaped
        )

    @property
    def is_reshaped(self) -> bool:
        """Whether the files have the column with other fields inside, or with other names or types of them."""
        if self.stored_type is None or kind_of(self.column.type) not in NESTED:
            return False
        return not self.stored_type == self.column.stored_type == self.column.type

    @property
    def stored_field(self) -> pa.Field | None:
        """The column as the files have it, or None."""
        if self.stored_type is None:
            return None
        import pyarrow as pa

        from replitree.storage.schema.types import parse_type

        return pa.field(self.column.stored_name, parse_type(self.stored_type))

    def expression(self, inside: Sequence[str] = ()) -> pc.Expression:
        """Give the column, or a field inside its structs, for Arrow's scanner of the files.

        What is nested comes as it is in the files: where `is_reshaped`, `shown` makes the column of it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from replitree.storage.schema.nested import field_inside, stored_path
        from replitree.storage.schema.types import is_nested, parse_type

        column = self.column
        arrow = field_inside(column.arrow_type, inside)
        assert arrow is not None
        if self.stored_type is None:
            # A field inside has no default of its own, and the default of a nested column can only be null.
            return pc.scalar(pa.scalar(None, arrow) if inside else column.initial_scalar)
        path = stored_path(column.arrow_type, parse_type(column.stored_type), inside)
        found = field_inside(parse_type(self.stored_type), path)
        if found is None:  # added later
            return pc.scalar(pa.scalar(None, arrow))
        field = pc.field(column.stored_name, *path)
        # The scanner can't cast what is nested: `shown` does it after the scan.
        return field if found == arrow or is_nested(arrow) else field.cast(arrow)

    def shown(self, values: pa.Array) -> pa.Array:
        """Give a column as readers see it from one of files that `is_reshaped`."""
        from replitree.storage.schema.nested import reshape
        from replitree.storage.schema.types import parse_type

        return reshape(values, parse_type(self.column.stored_type), self.column.arrow_type)


Layout: TypeAlias = tuple[Origin, ...]
"""One origin per column of the definition, in its order."""


def layout_of(definition: TableDefinition, written: int) -> Layout:
    """Say where a table's columns are in the files of a part.

    Parameters
    ----------
    definition
        The table as readers want it; with `TableDefinition.stored`, the columns keep their stored names.
    written
        The part's schema version.

    Raises
    ------
    StoreError
        The part is newer than the definition.
    """
    # A newer version may have dropped or added anything: a guess would show wrong rows.
    if written > definition.schema_version:
        raise StoreError(
            f"a part of table {definition.name} has schema version {written}, and {definition.schema_version} is known here: "
            "read the table's definition again"
        )
    # By id, not by name: a column that was dropped and added again is another one.
    then = {column.id: column.stored_type for column in definition.at(written).columns}
    return tuple(Origin(column, then.get(column.id)) for column in definition.columns)


def layouts_of(definition: TableDefinition, versions: Iterable[int]) -> dict[int, Layout]:
    """Give the layout of each of these schema versions."""
    return {version: layout_of(definition, version) for version in sorted(set(versions))}


def is_plain(layout: Layout) -> bool:
    """Tell whether files of this layout have all columns as readers see them."""
    return all(origin.is_plain for origin in layout)


def has_other_names(definition: TableDefinition) -> bool:
    """Tell whether data files have a column, or a field inside one, under another name than readers see.

    A column that has the name of one that was dropped is such a column.
    """
    return any(column.stored_name != column.name or column.stored_type != column.type for column in definition.columns)


def stored_schema(layout: Layout) -> pa.Schema:
    """Give the schema of the files as far as readers need it; every column may be null, as Parquet readers have it."""
    import pyarrow as pa

    return pa.schema([field for origin in layout if (field := origin.stored_field) is not None])
