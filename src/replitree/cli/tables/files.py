"""Rows out of the files that people have: CSV, JSON lines, Parquet, Arrow, plain or compressed, from a path or from a pipe.

Guarantees: the same bytes give the same slices, always; memory is bounded by a slice and a block of the file; a file that can't
be read is a `BadInput` that names the file and what was wrong.

CSV has a header; an empty field without quotes is null, or the empty text where the table's column has no nulls.  A time
without a zone is in the caller's zone, UTC by default, whatever the format.  A number beyond the range of its column's type is
refused; only the word makes infinity.

Absent on purpose: what happens to the rows (`replitree.cli.tables.load`).
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from typing_extensions import override

from replitree.errors import BadInput

BLOCK_BYTES = 4 << 20
"""Bytes of CSV or JSON that are parsed at once; no row may be longer."""

_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


class FileFormat(StrEnum):
    """What a file's bytes are."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


_SUFFIXES = {
    ".csv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".arrow": FileFormat.ARROW,
    ".arrows": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".ipc": FileFormat.ARROW,
}


@dataclass(frozen=True, slots=True)
class RowSource:
    """Where rows come from.

    Attributes
    ----------
    path
        None is standard input.
    format
        What the bytes are.
    codec
        How they are compressed, or None.
    """

    path: Path | None
    format: FileFormat
    codec: str | None = None

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return "standard input" if self.path is None else str(self.path)

    @property
    def bytes_total(self) -> int | None:
        """Size of the file; None when it is not known."""
        return None if self.path is None else self.path.stat().st_size


@dataclass(frozen=True, slots=True)
class OpenedRows:
    """An opened source.

    Attributes
    ----------
    schema
        An Arrow schema: what the file says, or what was found in its first block.
    batches
        Record batches, to be read once.
    bytes_read
        Tells how much of the file was read so far.
    """

    schema: Any
    batches: Iterator[Any]
    bytes_read: Callable[[], int]


def find_source(file: str, file_format: FileFormat | None) -> RowSource:
    """Decide what `file` is.

    Parameters
    ----------
    file
        A path, or ``-`` for standard input.
    file_format
        As the user said it; by default the file's suffix decides.

    Raises
    ------
    BadInput
        There is no such file, it can't be read, or its format can't be guessed.

    >>> find_source("-", FileFormat.CSV).name
    'standard input'
    """
    if file == "-":
        if file_format is None:
            raise BadInput("standard input has no suffix to guess from: say --format csv, jsonl, parquet or arrow")
        return RowSource(None, file_format)
    path = Path(file)
    try:
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder: name one file") from None
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from error
    codec = _CODECS.get(path.suffix.lower())
    suffix = (path.with_suffix("") if codec else path).suffix.lower()
    known = file_format or _SUFFIXES.get(suffix)
    if known is None:
        raise BadInput(f"can't tell the format of {path} from its suffix: say --format csv, jsonl, parquet or arrow")
    return RowSource(path, known, codec)


def open_rows(source: RowSource, expected: Any = None, zone: str = "UTC") -> OpenedRows:
    """Open a source.

    Parameters
    ----------
    source
        What to read.
    expected
        The schema of the table that the rows are meant for: text is parsed as its types.  None: types are inferred.
    zone
        Time zone of times in text that name none.

    Raises
    ------
    BadInput
        The bytes are not what the format says; also while the batches are read.
    """
    raw = _Counted(source)
    try:
        with _explained(source):
            schema, batches = _READERS[source.format](raw, source, _Expected(expected, zone))
    except BaseException:
        raw.close()
        raise

    def read() -> Iterator[Any]:
        # The file is closed after the last batch, or when the caller stops early.
        try:
            while True:
                with _explained(source):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        finally:
            raw.close()

    return OpenedRows(schema, read(), raw.count)


def slices(batches: Iterator[Any], schema: Any, slice_rows: int) -> Iterator[Any]:
    """Cut a stream of record batches into tables of exactly `slice_rows` rows; the last may be shorter, none is empty."""
    import pyarrow as pa

    # The number of a row alone decides where a cut lies, so an interrupted load finds the same slices again.
    waiting: list[Any] = []
    missing = slice_rows
    for whole in batches:
        batch = whole
        while batch.num_rows >= missing:
            waiting.append(batch.slice(0, missing))
            yield pa.Table.from_batches(waiting, schema)
            batch, waiting, missing = batch.slice(missing), [], slice_rows
        if batch.num_rows:
            waiting.append(batch)
            missing -= batch.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def hash_file(path: Path) -> str:
    """Return 32 hexadecimal digits that stand for the file's bytes."""
    import xxhash

    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


# --- bytes ------------------------------------------------------------------------------------------------------------------


class _Counted(io.RawIOBase):
    """The bytes of a source: opened when they are first read, and counted."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._inner: BinaryIO | None = None
        self._bytes = 0

    def count(self) -> int:
        return self._bytes

    @override
    def readable(self) -> bool:
        return True

    @override
    def read(self, size: int = -1) -> bytes:
        if self._inner is None:
            self._inner = sys.stdin.buffer if self._source.path is None else self._source.path.open("rb")
        # A damaged file may announce more bytes than it has.
        if self._source.path is not None and size > 0:
            size = min(size, max(0, self._source.path.stat().st_size - self._bytes))
        data = self._inner.read(size)
        self._bytes += len(data)
        return data

    @override
    def close(self) -> None:
        if not self.closed and self._inner is not None and self._source.path is not None:
            self._inner.close()
        super().close()


_NULL_LINE = re.compile(rb"\n[ \t\r]*null")


class _ObjectLines(io.RawIOBase):
    """The bytes of JSON lines, of which none begins with ``null``.

    Arrow's reader shows such a line as a row of nulls; where it comes first in a block, the reader ends the process.

    Parameters
    ----------
    inner
        Has ``read``: the bytes.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._line = 1
        self._begun = b"\n"  # the line that the last bytes have begun, while it may become such a line

    @override
    def readable(self) -> bool:
        return True

    @override
    def read(self, size: int = -1) -> bytes:
        data: bytes = self._inner.read(size)
        text = self._begun + data
        if found := _NULL_LINE.search(text):
            line = self._line + text.count(b"\n", len(self._begun), found.start() + 1)
            raise BadInput(f"line {line:,} is null; each line is to be an object")
        self._line += data.count(b"\n")
        _, newline, begun = text.rpartition(b"\n")
        self._begun = newline + begun.strip() if b"null".startswith(begun.strip()) else b""
        return data


def _stream(raw: _Counted, source: RowSource) -> Any:
    """Return the uncompressed bytes as an Arrow input stream."""
    import pyarrow as pa

    plain = pa.PythonFile(raw, mode="r")
    return plain if source.codec is None else pa.CompressedInputStream(plain, source.codec)


def _seekable(raw: _Counted, source: RowSource) -> Any:
    """Return something that Parquet and Arrow files can be read from."""
    import pyarrow as pa

    # Both formats are read from their end, so a stream has to be read into memory first.
    if source.path is not None and source.codec is None:
        return pa.memory_map(str(source.path))
    return pa.BufferReader(raw.read() if source.codec is None else _stream(raw, source).read())


# --- one reader per format ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the rows are meant for: a schema, or None, and the zone of times in text that name none."""

    schema: Any
    zone: str


def _read_csv(raw: _Counted, source: RowSource, meant: _Expected) -> tuple[Any, Iterator[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    expected = meant.schema

    # Arrow refuses a time without a zone, and reads 1e400 as infinity: both are read as text and parsed later.
    types = None
    if expected is not None:
        as_text = {each.name for each in expected if _is_utc(each.type) or pa.types.is_floating(each.type)}
        types = {each.name: pa.string() if each.name in as_text else each.type for each in expected}
    options = arrow_csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    reader = arrow_csv.open_csv(
        _stream(raw, source), arrow_csv.ReadOptions(block_size=BLOCK_BYTES), convert_options=options
    )
    names = reader.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{source.name}: the header has {twice[0]!r} twice")
    return _with_types(reader.schema, expected), _parsed((_as_meant(batch, expected) for batch in reader), meant)


def _as_meant(batch: Any, expected: Any) -> Any:
    """Put right what a CSV file can't say: an empty text or a null, infinity or a number beyond the range."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for field, values in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_floating(field.type) and pc.any(pc.is_inf(values)).as_py():
            # The column has an inferred type, and the text is gone: it may have been "inf" or a number beyond the range.
            raise BadInput(
                f"column {field.name!r} has a number beyond the range of {field.type}, or infinity: add the column to the"
                " table first, then infinity is taken"
            )
    names = set() if expected is None else {field.name for field in expected if not field.nullable}
    for i, field in enumerate(batch.schema):
        # An empty text and a null look alike; a column that has no nulls has empty texts.
        if field.name in names and pa.types.is_string(field.type) and batch.column(i).null_count:
            batch = batch.set_column(i, field, pc.fill_null(batch.column(i), ""))
    return batch


def _is_utc(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def _with_types(found: Any, expected: Any) -> Any:
    """Return the schema that `_parsed` leads to."""
    import pyarrow as pa

    wanted = {} if expected is None else {field.name: field.type for field in expected}
    fields = []
    for field in found:
        kind = wanted.get(field.name, field.type)
        later = _is_utc(kind) or pa.types.is_date(kind) or pa.types.is_nested(kind) or pa.types.is_floating(kind)
        fields.append(field.with_type(kind) if later else field)
    return pa.schema(fields)


def _parsed(batches: Iterator[Any], meant: _Expected) -> Iterator[Any]:
    """Give the batches of a text file their types, and check what Arrow's readers let pass."""
    import pyarrow as pa
    import pyarrow.compute as pc

    row = 1
    for parsed in batches:
        # Columns that Arrow's readers could not parse: times and, in JSON, dates, also nested ones.
        for i, field in enumerate(_with_types(parsed.schema, meant.schema)):
            found, values = parsed.schema.field(i).type, parsed.column(i)
            if field.type == found:
                continue
            if _is_utc(field.type) and pa.types.is_string(found):
                values = _times(values, field, meant.zone)
            elif pa.types.is_floating(field.type) and pa.types.is_string(found):
                values = _numbers(values, field, row)
            else:
                values = _cast(values, field)
            parsed = parsed.set_column(i, field, values)  # noqa: PLW2901
        # Arrow's readers refuse years after 9999 themselves, but not years before 1.
        for field, values in zip(parsed.schema, parsed.columns, strict=True):
            if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
                early = pc.less(pc.year(values), 1)
                if pc.any(early).as_py():
                    at = row + early.index(True).as_py()
                    raise BadInput(f"column {field.name!r} has a year before 0001 in row {at}: years are 0001 to 9999")
        yield parsed
        row += parsed.num_rows


def _times(text: Any, field: Any, zone: str) -> Any:
    """Parse times; those that name no zone are in `zone`, those without a time of day are midnight."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(pc.utf8_length(text), 10), pc.binary_join_element_wise(text, "00:00:00", " "), text)
    zoned = pc.match_substring_regex(text, r"Z$|:\d\d.*[+-]\d\d(:?\d\d)?$")
    utc = _cast(pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", "")), field)
    if zone == "UTC":
        return utc
    try:
        local = pc.assume_timezone(utc.cast(pa.timestamp("us")), zone).cast(field.type)
    except pa.ArrowInvalid as error:
        raise BadInput(f"column {field.name!r}: {error} ({zone})") from error
    return pc.if_else(zoned, utc, local)


def _numbers(text: Any, field: Any, row: int) -> Any:
    """Parse floating-point numbers; `row` is the number of the first one."""
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    values = _cast(text, field)
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py():
        wrong = pc.and_not(infinite, pc.match_substring_regex(text, r"(?i)^[+-]?inf(inity)?$"))
        if pc.any(wrong).as_py():
            at = wrong.index(True).as_py()
            raise BadInput(
                f"column {field.name!r} is {field.type}, and {text[at].as_py()!r} in row {row + at} is beyond its range:"
                " write inf for infinity"
            )
    return values


def _cast(values: Any, field: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        cast = pc.cast(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        found = re.search(r"'(.*?)Z?'", str(error))
        value = repr(found[1]) if found else "a value"
        kind = "timestamp" if pa.types.is_timestamp(field.type) else str(field.type)
        raise BadInput(f"column {field.name!r} is a {kind}, and {value} is not") from error
    if not pa.types.is_string(values.type) and _infinities(cast) > _infinities(values):
        raise BadInput(f"column {field.name!r} is {field.type}, and a number in it is beyond the range of its type")
    return cast


def _infinities(values: Any) -> int:
    """Count infinite numbers, also inside lists and structs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(values.type):
        return int(pc.sum(pc.is_inf(values)).as_py() or 0)
    if pa.types.is_struct(values.type):
        return sum(map(_infinities, values.flatten()))
    return _infinities(values.flatten()) if pa.types.is_list(values.type) else 0


def _read_jsonl(raw: _Counted, source: RowSource, meant: _Expected) -> tuple[Any, Iterator[Any]]:
    import pyarrow as pa
    from pyarrow import json

    expected = meant.schema

    schema = None if expected is None else pa.schema([_json_field(field) for field in expected])
    options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")
    lines = pa.PythonFile(_ObjectLines(_stream(raw, source)), mode="r")
    reader = json.open_json(lines, json.ReadOptions(block_size=BLOCK_BYTES), options)
    return _with_types(reader.schema, expected), _parsed(iter(reader), meant)


def _json_field(field: Any) -> Any:
    """Return the field as Arrow's JSON reader can parse it."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_map(kind):
        raise BadInput(f"column {field.name!r} is a map, which JSON lines can't carry here: use Parquet or Arrow")
    # Arrow's JSON reader knows no dates and no zones: these are read as text and parsed later.
    if pa.types.is_date(kind) or _is_utc(kind):
        kind = pa.string()
    elif pa.types.is_float32(kind):
        # Read as float32, 1e39 would be infinity.
        kind = pa.float64()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_json_field(kind.field(i)) for i in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_json_field(kind.value_field))
    return pa.field(field.name, kind)


def _read_parquet(raw: _Counted, source: RowSource, _meant: _Expected) -> tuple[Any, Iterator[Any]]:
    from pyarrow import parquet

    file = parquet.ParquetFile(_seekable(raw, source))
    return file.schema_arrow, file.iter_batches()


def _read_arrow(raw: _Counted, source: RowSource, _meant: _Expected) -> tuple[Any, Iterator[Any]]:
    """Read either form of Arrow IPC."""
    import pyarrow as pa

    if source.path is not None and source.codec is None:
        with source.path.open("rb") as file:
            # The file form begins with this magic; everything else is a stream.
            is_file = file.read(6) == b"ARROW1"
        if is_file:
            reader = pa.ipc.open_file(_seekable(raw, source))
            return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
    stream = pa.ipc.open_stream(_stream(raw, source))
    return stream.schema, iter(stream)


_Reader = Callable[[_Counted, RowSource, _Expected], tuple[Any, Iterator[Any]]]

_READERS: dict[FileFormat, _Reader] = {
    FileFormat.CSV: _read_csv,
    FileFormat.JSONL: _read_jsonl,
    FileFormat.PARQUET: _read_parquet,
    FileFormat.ARROW: _read_arrow,
}


# --- errors -------------------------------------------------------------------------------------------------------------------


@contextmanager
def _explained(source: RowSource) -> Iterator[None]:
    """Turn what Arrow says about broken bytes into one line about the file."""
    import pyarrow as pa

    try:
        yield
    except BrokenPipeError:
        raise
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise BadInput(
            f"{source.name} can't be read as {source.format.value}: {_with_column(source, lines[0])}"
        ) from error


def _with_column(source: RowSource, problem: str) -> str:
    """Name the column that does not fit, and the type that was expected."""
    of_json = re.search(r"Column\(/([^)]*)\) changed from (.+?) to (\w+)", problem)
    if of_json is not None:
        return f"column {of_json[1]!r} is {of_json[2]}, and a row has {of_json[3]}"
    found = re.search(r"CSV column #(\d+): (.*)", problem)
    if found is None or source.path is None:
        return problem
    # Arrow names the column before it looks at bytes that are no UTF-8, so the header may still have such bytes.
    with io.TextIOWrapper(_stream(_Counted(source), source), "utf-8-sig", errors="replace") as lines:
        header = next(csv.reader(lines), [])
    # Arrow names a CSV column by its number only.
    number = int(found[1])
    name = repr(header[number]) if number < len(header) else f"number {number + 1}"
    wrong = re.match(r"CSV conversion error to (.+?): invalid value (.*)", found[2])
    return f"column {name}: {found[2]}" if wrong is None else f"column {name} is {wrong[1]}, and {wrong[2]} is not"
