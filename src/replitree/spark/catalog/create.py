"""``CREATE TABLE`` of the catalog: columns, partition transforms and table properties become a table's definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from replitree.client.connection import Connection
from replitree.errors import BadInput
from replitree.storage.schema.definition import TableSettings
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.storage_policy import LOCAL

FROM_SPARK = frozenset({"provider", "owner"})
"""Properties that Spark adds, and that say nothing of a table here."""

DEFINITION = ("order_by", "policy", "storage")


def create(
    connection: Connection, name: str, columns: str, partition_by: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Create a table.

    Parameters
    ----------
    columns
        As Spark's DDL.
    partition_by
        Transforms, as Spark writes them: ``months(d)``, ``bucket(16, k)``.
    properties
        ``order_by``, ``policy``, ``storage``, and settings of `TableSettings`.

    Raises
    ------
    BadInput
        A property is unknown or has a wrong value, or the definition makes no sense.
    TableExists
        There is a table of this name.
    """
    settings = {field.name for field in msgspec.structs.fields(TableSettings)}
    given = {key: value for key, value in properties.items() if key not in FROM_SPARK}
    for key, value in given.items():
        if key not in settings and key not in DEFINITION:
            known = ", ".join([*DEFINITION, *sorted(settings)])
            raise BadInput(f"a table has no property {key!r}; it has {known}")
        if key in settings and not value.isdecimal():
            raise BadInput(f"property {key} is a whole number, not {value!r}")
    connection.create_table(
        name,
        columns,
        order_by=given.get("order_by", ""),
        partition_by=list(partition_by),
        policy=given.get("policy", PLAIN.text),
        storage=given.get("storage", LOCAL),
        settings={key: int(value) for key, value in given.items() if key in settings} or None,
    )
