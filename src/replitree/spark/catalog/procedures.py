"""Procedures of the catalog: ``CALL replitree.optimize(table => 'events', final => true)``, and what each returns.

They have the names and the arguments of `replitree.client.table.Table`, and return one row.

Absent on purpose: procedures for what a statement of SQL says, such as ``DELETE FROM`` and ``ALTER TABLE``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from replitree.client.change.command import CommandResult
from replitree.client.connection import Connection
from replitree.client.read.partitions import partitions_of
from replitree.client.table import Table
from replitree.errors import BadInput


class Parameter(NamedTuple):
    """A parameter of a procedure: its name, its type as Spark's DDL has it, and its default in SQL; None: it must be given."""

    name: str
    kind: str = "string"
    default: str | None = None


class Procedure(NamedTuple):
    """A procedure: what it does, the columns of the row that it returns, how it is run, and its parameters after the table."""

    description: str
    columns: str
    run: Callable[..., Sequence[Any]]
    parameters: tuple[Parameter, ...]


def _optimize(table: Table, partition: str | None, final: bool, cleanup: bool) -> Sequence[Any]:
    if partition is not None:
        _check_partition(table, partition)
    result = table.optimize(partition, final=final, cleanup=cleanup)
    return len(result.merges), result.finished, result.reason


def _remove_partition(remove: Callable[[Table, str], CommandResult], table: Table, partition: str) -> Sequence[Any]:
    _check_partition(table, partition)
    result = remove(table, partition)
    return result.index, result.removed


def _freeze(table: Table, name: str, note: str) -> Sequence[Any]:
    made = table.freeze(name, note)
    return made.name, made.replica, made.index, made.parts, made.rows, made.bytes, made.path


def _tag(table: Table, name: str, version: str | None) -> Sequence[Any]:
    made = table.tag(name, None if version is None else _version(version))
    return made.name, made.index, made.rows


def _delete_tag(table: Table, name: str) -> Sequence[Any]:
    table.delete_tag(name)
    return (name,)


def _restore_to(table: Table, version: str) -> Sequence[Any]:
    result = table.restore_to(_version(version))
    return result.index, result.rows


def _version(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


_PARTITION = Parameter("partition")
_DROPPED = "index bigint not null, parts bigint"

PROCEDURES: Mapping[str, Procedure] = {
    "optimize": Procedure(
        "merges parts now; final: each partition into one part, with the table's policy applied; cleanup: without deletions",
        "merges bigint not null, finished boolean not null, reason string not null",
        _optimize,
        (
            _PARTITION._replace(default="null"),
            Parameter("final", "boolean", "false"),
            Parameter("cleanup", "boolean", "false"),
        ),
    ),
    "freeze": Procedure(
        "keeps the parts of now under a name, on one replica's disk",
        "name string not null, replica string not null, index bigint not null, parts bigint not null, rows bigint not null,"
        " bytes bigint not null, path string not null",
        _freeze,
        (Parameter("name"), Parameter("note", default="''")),
    ),
    "drop_partition": Procedure(
        "removes what is in a partition now", _DROPPED, partial(_remove_partition, Table.drop_partition), (_PARTITION,)
    ),
    "detach_partition": Procedure(
        "removes what is in a partition now, and keeps its parts aside on every replica",
        _DROPPED,
        partial(_remove_partition, Table.detach_partition),
        (_PARTITION,),
    ),
    "tag": Procedure(
        "gives a version a name: an index, a time or another tag, by default the present one; its parts stay",
        "name string not null, index bigint not null, rows bigint not null",
        _tag,
        (Parameter("name"), Parameter("version", default="null")),
    ),
    "delete_tag": Procedure("takes a name away", "name string not null", _delete_tag, (Parameter("name"),)),
    "restore_to": Procedure(
        "makes the table what it was at an index, a tag or a time; a sharded one at a cut, and then there is no index",
        "index bigint, rows bigint not null",
        _restore_to,
        (Parameter("version"),),
    ),
}

NAMED_MAX = 3
"""Partitions that an error names."""

OTHER_NAMES = {
    "snapshot": "freeze",
    "compact": "optimize",
    "rewrite_data_files": "optimize",
    "create_tag": "tag",
    "rollback": "restore_to",
}
"""What other table formats call them."""


def described(name: str) -> dict[str, Any]:
    """Return what the JVM learns of a procedure.

    Raises
    ------
    BadInput
        There is none of this name; says which there are.
    """
    procedure = _find(name)
    return {
        "name": name.lower(),
        "description": procedure.description,
        "parameters": [Parameter("table"), *procedure.parameters],
        "columns": procedure.columns,
    }


def call(connection: Connection, name: str, arguments: Sequence[Any]) -> list[Sequence[Any]]:
    """Run a procedure; return its rows.

    Parameters
    ----------
    arguments
        One for each of its parameters, in their order: the table's name first.

    Raises
    ------
    BadInput
        There is no such procedure, or no such partition.
    ReplitreeError
        As the method of `Table` of this name.
    """
    procedure = _find(name)
    for parameter, value in zip((Parameter("table"), *procedure.parameters), arguments, strict=True):
        if value is None and parameter.default != "null":
            raise BadInput(f"{name.lower()} needs a {parameter.name}: it is not null")
    # `default.events` and `replitree.default.events` are how queries name it.
    space, _, table = str(arguments[0]).rpartition(".")
    if space and space.rpartition(".")[2] != "default":
        raise BadInput(f"there is no table {arguments[0]}: the tables of a cluster are in the namespace default")
    return [procedure.run(connection.table(table), *arguments[1:])]


def _find(name: str) -> Procedure:
    lower = name.lower()
    found = PROCEDURES.get(lower)
    if found is not None:
        return found
    near = OTHER_NAMES.get(lower) or next(iter(difflib.get_close_matches(lower, PROCEDURES, n=1)), "")
    hint = f"did you mean {near}? There are" if near else "there are"
    raise BadInput(f"there is no procedure {name}: {hint} {', '.join(PROCEDURES)}")


def _check_partition(table: Table, partition: str) -> None:
    """Refuse the id of a partition that is not there: the command would do nothing."""
    # The command concerns what is there at the end of the log, also what others have inserted.
    known = [each.partition for each in partitions_of(table.snapshot(level="linearizable").parts)]
    if partition in known:
        return
    near = difflib.get_close_matches(partition, known, NAMED_MAX) or known[:NAMED_MAX]
    hint = f"it has {', '.join(map(repr, near))}{', …' if len(known) > len(near) else ''}" if near else "it is empty"
    raise BadInput(f"table {table.name} has no partition {partition!r}: {hint}")


__all__ = ["PROCEDURES", "Parameter", "Procedure", "call", "described"]
