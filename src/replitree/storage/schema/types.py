"""Column types: which Arrow types a table can have, and their text form.

The text form is what the `columns` node and part manifests hold, and what people type::

    boolean  int8 int16 int32 int64  float double  decimal(12,2)  string binary  date
    timestamp[us,UTC]  timestamp[us]  list<string>  struct<a:int64,b:string>  map<string,int64>

Guarantees: `parse_type(format_type(t)) == t` for every type that a table can have, and each has exactly one text.  Spark's
words (`bigint`, `array<…>`, `timestamp_ntz`, …) are understood as input.  A type that Spark and Parquet do not share is
refused with what to use instead.

Everything inside a list, struct or map may be null (map keys may not): that is how Spark reads Parquet.

Absent on purpose: unsigned 64-bit integers (Spark has none, and silently changing their sign or their order would be worse
than refusing), time of day, intervals, and limits on string lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.files.names import format_name
from replitree.storage.schema.type_kinds import DECIMAL_PRECISION_MAX

NESTING_MAX = 32
"""Levels of lists, structs and maps that a type may have."""

TIMESTAMP_UTC = pa.timestamp("us", "UTC")
TIMESTAMP_LOCAL = pa.timestamp("us")
LIST_ELEMENT = "element"
"""Name of a list's field in Parquet, so that a round trip changes no type."""

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp[us,UTC]": TIMESTAMP_UTC,
    "timestamp[us]": TIMESTAMP_LOCAL,
}
TYPE_NAMES: Mapping[pa.DataType, str] = {arrow: text for text, arrow in _SIMPLE.items()}

_WORDS: dict[str, pa.DataType] = _SIMPLE | {
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "uint8": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "uint16": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "uint32": pa.int64(),
    "float32": pa.float32(),
    "real": pa.float32(),
    "float64": pa.float64(),
    "utf8": pa.string(),
    "text": pa.string(),
    "large_string": pa.string(),
    "large_binary": pa.binary(),
    "date32": pa.date32(),
    "timestamp": TIMESTAMP_UTC,
    "timestamp_ltz": TIMESTAMP_UTC,
    "timestamp_ntz": TIMESTAMP_LOCAL,
}

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|'((?:[^'\\]|\\.)*)'|([<>(),:\[\]=])|([^\s<>(),:\[\]=`']+))")


@dataclass(frozen=True, slots=True)
class Token:
    """One word, quoted name, text or sign; `quoted` tells a name in backquotes from a word."""

    text: str
    quoted: bool = False
    comment: bool = False


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One column of a schema as it was written."""

    name: str
    type: pa.DataType
    nullable: bool


# --- text to type -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def parse_type(text: str) -> pa.DataType:
    """Read a column type.

    Parameters
    ----------
    text
        The text form of this module, or Spark's.

    Raises
    ------
    BadInput
        Not a type that a table can have; says where the text is wrong or what to use instead.

    Examples
    --------
    >>> format_type(parse_type("array<struct<a: bigint, b: decimal(12, 2)>>"))
    'list<struct<a:int64,b:decimal(12,2)>>'
    """
    parser = SchemaParser(text)
    found = parser.type(NESTING_MAX)
    parser.end()
    return found


def parse_schema(text: str) -> tuple[SchemaField, ...]:
    """Read columns as Spark writes them in DDL: ``a bigint not null, b string, `odd name` array<int>``.

    Raises
    ------
    BadInput
        The text is not a list of columns.
    """
    parser = SchemaParser(text)
    fields = [parser.column()]
    while parser.accept(","):
        fields.append(parser.column())
    parser.end()
    return tuple(fields)


class SchemaParser:
    """Recursive descent over the tokens of one type or schema; `replitree.storage.sql.alter_parser` adds statements."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def error(self, problem: str) -> BadInput:
        """Make the error that says what is wrong with this text."""
        return BadInput(f"can't read the type or schema {self._text!r}: {problem}")

    def peek(self) -> Token | None:
        """Give the next token, or None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def next(self, expected: str) -> Token:
        """Take the next token; `expected` says in the error what should have stood at the end."""
        token = self.peek()
        if token is None:
            raise self.error(f"expected {expected} at the end")
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Take the next tokens if they are exactly these words (in any case)."""
        ahead = self._tokens[self._at : self._at + len(words)]
        if len(ahead) == len(words) and all(
            not t.quoted and t.text.lower() == w for t, w in zip(ahead, words, strict=True)
        ):
            self._at += len(words)
            return True
        return False

    def expect(self, sign: str) -> None:
        """Take a sign that must come now."""
        if not self.accept(sign):
            found = self.peek()
            raise self.error(f"expected {sign!r}, found {found.text!r}" if found else f"expected {sign!r} at the end")

    def end(self) -> None:
        """Make sure that nothing is left."""
        left = self.peek()
        if left is not None:
            raise self.error(f"{left.text!r} is left over")

    def name(self) -> str:
        """Take a column's or field's name."""
        token = self.next("a name")
        if not token.quoted and (token.comment or token.text in "<>(),:[]="):
            raise self.error(f"expected a name, found {token.text!r}")
        return token.text

    def number(self) -> int:
        """Take a whole number."""
        token = self.next("a number")
        if not token.text.isascii() or not token.text.isdigit():
            raise self.error(f"expected a number, found {token.text!r}")
        return int(token.text)

    def column(self) -> SchemaField:
        """Take a column as DDL has it."""
        name = self.name()
        self.accept(":")
        found = self.type(NESTING_MAX)
        nullable = not self.accept("not", "null")
        self.comment()
        return SchemaField(name, found, nullable)

    def comment(self) -> None:
        """Take a comment, if one comes."""
        if self.accept("comment") and not self.next("a comment in quotes").comment:
            raise self.error("expected a comment in quotes")

    def type(self, depth: int) -> pa.DataType:
        """Take a type that has at most `depth` levels."""
        if depth == 0:
            raise self.error(f"more than {NESTING_MAX} levels")
        token = self.next("a type")
        word = token.text.lower()
        builder = _BUILDERS.get(word)
        # A name in backquotes is never a type.
        if builder is not None and not token.quoted:
            return builder(self, depth)
        if token.quoted or word not in _WORDS:
            raise self.error(_unknown_type(token.text))
        return _WORDS[word]

    def decimal(self, _: int) -> pa.DataType:
        """Take what follows ``decimal``."""
        precision, scale = 10, 0
        if self.accept("("):
            precision = self.number()
            scale = self.number() if self.accept(",") else 0
            self.expect(")")
        return _decimal(precision, scale)

    def timestamp(self, _: int) -> pa.DataType:
        """Take what follows ``timestamp``."""
        if not self.accept("["):
            return TIMESTAMP_UTC
        unit = self.next("a unit").text
        if unit not in {"s", "ms", "us", "ns"}:
            raise self.error(f"{unit!r} is not a unit of time: use us")
        zone = None
        if self.accept(","):
            # Arrow prints a zone as `tz=UTC`.
            self.accept("tz", "=")
            zone = self.next("a time zone").text
        self.expect("]")
        return TIMESTAMP_UTC if zone is not None else TIMESTAMP_LOCAL

    def list(self, depth: int) -> pa.DataType:
        """Take what follows ``list``."""
        self.expect("<")
        element = self.type(depth - 1)
        self.expect(">")
        return list_of(element)

    def map(self, depth: int) -> pa.DataType:
        """Take what follows ``map``."""
        self.expect("<")
        key = self.type(depth - 1)
        self.expect(",")
        value = self.type(depth - 1)
        self.expect(">")
        return pa.map_(key, value)

    def struct(self, depth: int) -> pa.DataType:
        """Take what follows ``struct``."""
        self.expect("<")
        fields = [self.field(depth)]
        while self.accept(","):
            fields.append(self.field(depth))
        self.expect(">")
        return _struct(fields)

    def field(self, depth: int) -> pa.Field:
        """Take one field of a struct."""
        name = self.name()
        self.accept(":")
        found = self.type(depth - 1)
        self.accept("not", "null")  # the inside of a column is always nullable
        self.comment()
        return pa.field(name, found)


_BUILDERS: dict[str, Callable[[SchemaParser, int], pa.DataType]] = {
    "decimal": SchemaParser.decimal,
    "dec": SchemaParser.decimal,
    "numeric": SchemaParser.decimal,
    "decimal128": SchemaParser.decimal,
    "timestamp": SchemaParser.timestamp,
    "list": SchemaParser.list,
    "array": SchemaParser.list,
    "map": SchemaParser.map,
    "struct": SchemaParser.struct,
}


def _tokens(text: str) -> Iterator[Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadInput(f"can't read the type or schema {text!r}: unexpected {text[at]!r} at position {at}")
        quoted, comment, sign, word = found.groups()
        if quoted is not None:
            yield Token(quoted.replace("``", "`"), quoted=True)
        elif comment is not None:
            yield Token(comment, comment=True)
        else:
            yield Token(sign or word)
        at = found.end()


def _unknown_type(word: str) -> str:
    lower = word.lower()
    if lower in {"uint64", "ubigint"}:
        return "Spark has no unsigned 64-bit integers: use int64, or decimal(20,0) for values of 2^63 and more"
    if lower in {"varchar", "char", "character"}:
        return f"use string instead of {word}: lengths are not limited"
    return f"{word!r} is not a column type; use one of {', '.join(_SIMPLE)}, decimal(p,s), list<…>, struct<…>, map<…>"


# --- type to text ---------------------------------------------------------------------------------------------------------


def format_type(arrow: pa.DataType) -> str:
    """Write a column type in the text form of this module.

    Examples
    --------
    >>> format_type(pa.map_(pa.string(), pa.timestamp("us", "UTC")))
    'map<string,timestamp[us,UTC]>'
    """
    return write_type(arrow, TYPE_NAMES, "list")


def write_type(arrow: pa.DataType, names: Mapping[pa.DataType, str], list_name: str) -> str:
    """Write a column type with the given names of types without parameters, and of lists."""
    kinds, write = pa.types, partial(write_type, names=names, list_name=list_name)
    if arrow in names:
        return names[arrow]
    if kinds.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if kinds.is_map(arrow):
        return f"map<{write(arrow.key_type)},{write(arrow.item_type)}>"
    if kinds.is_list(arrow):
        return f"{list_name}<{write(arrow.value_type)}>"
    if kinds.is_struct(arrow):
        return f"struct<{','.join(f'{format_name(f.name)}:{write(f.type)}' for f in arrow)}>"
    raise BadInput(f"a column can't have the type {arrow}")


# --- from any Arrow type to one that a table can have -----------------------------------------------------------------


def storable_type(arrow: pa.DataType, depth: int = NESTING_MAX) -> pa.DataType:
    """Give the column type that holds every value of an Arrow type.

    Layouts of one kind (large, view, dictionary, run-end encoded) become the plain one; unsigned 8, 16 and 32-bit integers
    the next wider signed one; timestamps get microseconds, and UTC if they have a zone.

    Raises
    ------
    BadInput
        No column type holds it; says what to use instead.
    """
    if depth == 0:
        raise BadInput(f"a type may have at most {NESTING_MAX} levels")
    # Most types are plain: a look in a table, before a dozen questions to Arrow.
    if arrow in TYPE_NAMES:
        return arrow
    simple = _storable_simple(arrow)
    if simple is not None:
        return simple
    kinds = pa.types
    if kinds.is_map(arrow):
        return pa.map_(storable_type(arrow.key_type, depth - 1), storable_type(arrow.item_type, depth - 1))
    if is_list_like(arrow):
        return list_of(storable_type(arrow.value_type, depth - 1))
    if kinds.is_struct(arrow):
        return _struct([pa.field(f.name, storable_type(f.type, depth - 1)) for f in arrow])
    if is_encoded(arrow):
        return storable_type(arrow.value_type, depth - 1)
    if isinstance(arrow, pa.BaseExtensionType):
        return storable_type(arrow.storage_type, depth - 1)
    if kinds.is_uint64(arrow):
        raise BadInput(_unknown_type("uint64"))
    if kinds.is_null(arrow):
        raise BadInput("a column of nulls only has no type: give it one")
    if kinds.is_time(arrow) or kinds.is_duration(arrow):
        raise BadInput(f"Spark and Parquet share no type for {arrow}: use int64 microseconds or a timestamp")
    raise BadInput(f"a column can't have the type {arrow}: Spark and Parquet share no such type")


def _storable_simple(arrow: pa.DataType) -> pa.DataType | None:
    kinds = pa.types
    if kinds.is_timestamp(arrow):
        return TIMESTAMP_UTC if arrow.tz is not None else TIMESTAMP_LOCAL
    if kinds.is_decimal(arrow):
        return _decimal(arrow.precision, arrow.scale)
    for accepts, target in _WIDENED:
        if accepts(arrow):
            return target
    return None


_WIDENED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_uint8, pa.int16()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date64, pa.date32()),
)


def is_list_like(arrow: pa.DataType) -> bool:
    """Tell whether values are lists, in any of Arrow's layouts (maps are not)."""
    kinds = pa.types
    return bool(
        kinds.is_list(arrow)
        or kinds.is_large_list(arrow)
        or kinds.is_fixed_size_list(arrow)
        or kinds.is_list_view(arrow)
        or kinds.is_large_list_view(arrow)
    )


def is_encoded(arrow: pa.DataType) -> bool:
    """Tell whether values are kept by reference or by run, with their type in `value_type`."""
    return bool(pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow))


def is_nested(arrow: pa.DataType) -> bool:
    """Tell whether a column type has other types inside."""
    return bool(pa.types.is_nested(arrow))


def list_of(element: pa.DataType) -> pa.DataType:
    """Give the list type whose field has Parquet's name."""
    return pa.list_(pa.field(LIST_ELEMENT, element))


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        raise BadInput(f"decimal({precision},{scale}): Spark takes 1 to 38 digits, of which 0 to all after the point")
    return pa.decimal128(precision, scale)


def _struct(fields: list[pa.Field]) -> pa.DataType:
    if not fields:
        raise BadInput("a struct must have at least one field: Parquet can't hold an empty one")
    # Spark finds a field whatever the case of its letters.
    names = [f.name.lower() for f in fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise BadInput(f"a struct has two fields named {twice[0]!r}; Spark does not tell upper from lower case")
    return pa.struct(fields)
