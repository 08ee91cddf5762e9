"""Alters as people write them: the statement of an `Alter`, for the history of a table and for writers that merge schemas.

Guarantees: every change of an `Alter` has words, those of the grammar that `parse_alter` reads.  A default stands as the log
entry has it where its column's type is not in the entry: a date that is set as a default is a number of days.

Absent on purpose: the table's name: a history is that of one table.
"""

from __future__ import annotations

from datetime import date
from typing import assert_never

import msgspec

from replitree.decoding import json_decoder
from replitree.storage.files.names import format_name, format_path
from replitree.storage.schema.columns import Plain
from replitree.storage.sql.evolve import (
    AddColumn,
    Alter,
    Change,
    DropColumn,
    DropDefault,
    DropNotNull,
    RenameColumn,
    SetDefault,
    WidenColumn,
)

_decode = json_decoder(Alter).decode
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def alter_words(command: str) -> str:
    """Return the command of an alter's log entry as the statement that it is; one that can't be read, as it stands.

    >>> alter_words('{"changes":[{"do":"add column","name":"x","type":"int32","default":0}],"format":1}')
    'ADD COLUMN x int32 DEFAULT 0'
    >>> alter_words("of a newer version")
    'of a newer version'
    """
    try:
        return statement(_decode(command))
    except msgspec.MsgspecError:
        # A replica of a later version may have written it.
        return command


def statement(alter: Alter) -> str:
    """Return the SQL of an alter.

    >>> statement(Alter((AddColumn("x", "int32"), WidenColumn("odd name", "int64"))))
    'ADD COLUMN x int32, ALTER COLUMN `odd name` TYPE int64'
    """
    return ", ".join(map(_words, alter.changes))


def _words(change: Change) -> str:
    match change:
        case AddColumn(name=name, type=kind, inside=inside):
            # A nullable column without a default is the rule, so neither is said.
            default = "" if change.default is None else f" DEFAULT {_literal(change.default, kind)}"
            place = " FIRST" if change.first else "" if change.after is None else f" AFTER {format_name(change.after)}"
            return f"ADD COLUMN {format_path((name, *inside))} {kind}{'' if change.nullable else ' NOT NULL'}{default}{place}"
        case DropColumn(name=name, inside=inside):
            return f"DROP COLUMN {format_path((name, *inside))}"
        case RenameColumn(name=name, to=to, inside=inside):
            return f"RENAME COLUMN {format_path((name, *inside))} TO {format_name(to)}"
        case WidenColumn(name=name, type=kind, inside=inside):
            return f"ALTER COLUMN {format_path((name, *inside))} TYPE {kind}"
        case SetDefault(name=name, default=value):
            return f"ALTER COLUMN {format_path((name,))} SET DEFAULT {_literal(value)}"
        case DropDefault(name=name):
            return f"ALTER COLUMN {format_path((name,))} DROP DEFAULT"
        case DropNotNull(name=name):
            return f"ALTER COLUMN {format_path((name,))} DROP NOT NULL"
        case _:
            assert_never(change)


def _literal(value: Plain, kind: str = "") -> str:
    """Return a default as SQL; `kind` is the column's type, empty where the entry does not have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "date" and isinstance(value, int):
        return (
            f"date'{date.fromordinal(_EPOCH_DAY + value)}'"
            if 0 < _EPOCH_DAY + value <= date.max.toordinal()
            else f"{value}"
        )
    if kind.startswith("decimal"):
        return f"{value}"
    if not isinstance(value, str):
        return f"{value}"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"X'{value}'" if kind == "binary" else f"'{quoted}'"
