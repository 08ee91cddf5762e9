"""Targets: texts of users: conditions, statements, schemas, names, addresses.  Any text gets an answer soon, or `BadInput`."""

from __future__ import annotations

from collections.abc import Callable

from replitree.cli.tables.statements import change_of, without_comments
from replitree.coordination.url import parse_url
from replitree.errors import BadInput
from replitree.protocol.core.layout import check_replica_name, check_table_name
from replitree.protocol.core.parts import parse_part
from replitree.replica.kit.config import parse_address
from replitree.replica.kit.named_stores import check_stores
from replitree.storage.objects.location import StoreLocation
from replitree.storage.parts.manifest import is_data_file, is_partition_id
from replitree.storage.schema.definition import define_table, parse_transform
from replitree.storage.schema.definition_checks import check_storage
from replitree.storage.schema.merge_policy import parse_policy
from replitree.storage.schema.storage_policy import parse_storage
from replitree.storage.schema.types import format_type, parse_schema, parse_type
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.defaults import sql_default
from replitree.storage.sql.evolve import apply_alter
from replitree.storage.sql.expression_parser import parse_assignment
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.formats.samples import DEFINITION
from tests.fuzz.mutate import Shape
from tests.fuzz.target import Read, Target, reads

_SQL = (
    *(
        "and",
        "or",
        "not",
        "in (",
        "between",
        "is null",
        "is not true",
        "like",
        "ilike",
        "escape",
        "case when",
        "then",
        "else",
    ),
    *(
        "end",
        "cast(",
        "as",
        "date'2018-01-31'",
        "timestamp'0000-00-00'",
        "X'0f'",
        "true",
        "null",
        "<=>",
        "<>",
        "||",
        "%",
        "/",
    ),
    *(
        "i64",
        "s",
        "m",
        "b",
        "y",
        "d",
        "t",
        "n",
        "l",
        "r.a",
        "`odd name`",
        "p",
        "1e400",
        "-1L",
        "0.1BD",
        "'a'",
        "coalesce(",
    ),
    *(
        "startswith(",
        "if(",
        "interval 1 day",
        "select",
        "from t",
        ";",
        "--",
        "/*",
        "*/",
        "{{",
        "}}",
        "?",
        ":a",
        "@x",
        "$$",
        "\\",
    ),
)
_ALTER = (
    *(
        "add column",
        "drop column",
        "rename column",
        "alter column",
        "type",
        "set default",
        "drop default",
        "drop not null",
    ),
    *(
        "alter table every_type",
        "first",
        "after",
        "to",
        "not null",
        "default",
        "comment 'x'",
        ",",
        "(",
        ")",
        "array<",
        ">",
    ),
    *(
        "struct<a:",
        "map<string,",
        "decimal(38,38)",
        "bigint",
        "timestamp[us,",
        "element",
        "key",
        "value",
        "r.a",
        "l",
        "`x`",
    ),
)


def _condition(text: str) -> None:
    predicate = parse_predicate(text, DEFINITION)
    if not predicate.is_computed:  # else it is calculated for rows
        predicate.to_arrow()


def _assignment(text: str) -> bool:
    """Read what some columns could be set to; a text fits few of them."""
    taken = 0
    for name in ("i64", "s", "m", "d", "x", "b"):
        try:
            taken += parse_assignment(text, DEFINITION.column(name), DEFINITION) is not None
        except BadInput:
            continue
    return bool(taken)


def _alter(text: str) -> None:
    apply_alter(DEFINITION, parse_alter(text, DEFINITION))


def _schema(text: str) -> None:
    for field in parse_schema(text):
        assert parse_type(format_type(field.type)) == field.type
    define_table("t", text)


def _name(text: str) -> bool:
    """Read every kind of name, address and one-line setting: at least one of them should take it."""
    taken = 0
    for read in _NAMES:
        try:
            taken += read(text) is not False
        except BadInput:
            continue
    return bool(taken)


_NAMES: tuple[Callable[[str], object], ...] = (
    check_table_name,
    check_replica_name,
    parse_part,
    parse_url,
    lambda text: parse_url(f"zk://{text}"),
    lambda text: parse_address(text, "listen"),
    lambda text: check_stores({text: text}, "server.toml"),
    lambda text: check_storage(f"s3://{text}"),
    StoreLocation.parse,
    lambda text: str(StoreLocation.parse(f"s3://lake/{text}")),
    lambda text: str(StoreLocation.parse(f"gs://lake/{text}")),
    lambda text: str(StoreLocation.parse(f"az://lake/{text}")),
    parse_type,
    parse_transform,
    parse_policy,
    parse_storage,
    is_data_file,
    is_partition_id,
    lambda text: sql_default(text, "decimal(12,2)"),
    lambda text: sql_default(text, "timestamp[us,UTC]"),
    lambda text: define_table("t", "k bigint, s string, d date", order_by=[text], partition_by=text),
)


def _statement(text: str) -> None:
    if without_comments(text):
        change_of(without_comments(text))


def _of_text(read: Callable[[str], object]) -> Read:
    """Return what reads bytes as the text that a user or a client could have sent."""
    return lambda data: read(data.decode(errors="replace"))


def _target(name: str, read: Callable[[str], object], words: tuple[str, ...], share: int) -> Target:
    return Target(name, reads(_of_text(read)), (BadInput,), Shape.TEXT, words, share=share)


TARGETS = (
    _target("condition", _condition, _SQL, 250),
    _target("assignment", _assignment, _SQL, 100),
    _target("alter-text", _alter, _ALTER, 300),
    _target("schema", _schema, _ALTER, 300),
    _target(
        "name", _name, ("zk://", "s3://", "@", ":", "/", "%", "_0_0_0", "tiered(", "older=7d", "bucket(16,", "k"), 200
    ),
    _target("statement", _statement, _SQL, 300),
)
