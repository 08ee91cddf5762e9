"""Rows out of the files that people have: CSV, JSON lines, Parquet, Arrow, plain or compressed, from a path or from a pipe.

Guarantees: the same bytes give the same slices, always; memory is bounded by a slice and a block of the file; a file that can't
be read is a `BadInput` that names the file and what was wrong.

CSV has a header; an empty field without quotes is null, or the empty text where the table's column has no nulls.  A time
without a zone is UTC.

Absent on purpose: what happens to the rows (`replitree.cli.load`).
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
class Source:
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
        """Size of the file; None when nobody knows."""
        return None if self.path is None else self.path.stat().st_size


@dataclass(frozen=True, slots=True)
class Rows:
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


def find_source(file: str, file_format: FileFormat | None) -> Source:
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
        return Source(None, file_format)
    path = Path(file)
    _check_readable(path)
    codec = _CODECS.get(path.suffix.lower())
    suffix = (path.with_suffix("") if codec else path).suffix.lower()
    known = file_format or _SUFFIXES.get(suffix)
    if known is None:
        raise BadInput(f"can't tell the format of {path} from its suffix: say --format csv, jsonl, parquet or arrow")
    return Source(path, known, codec)


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder: name one file") from None
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from error


def open_rows(source: Source, expected: Any = None) -> Rows:
    """Open a source.

    Parameters
    ----------
    source
        What to read.
    expected
        The schema of the table that the rows are meant for: text is parsed as its types.  None: types are inferred.

    Raises
    ------
    BadInput
        The bytes are not what the format says; also while the batches are read.
    """
    raw = _Counted(source)
    try:
        with _explained(source):
            schema, batches = _READERS[source.format](raw, source, expected)
    except BaseException:
        raw.close()
        raise
    return Rows(schema, _read(source, batches, raw), raw.count)


def slices(batches: Iterator[Any], schema: Any, slice_rows: int) -> Iterator[Any]:
    """Cut a stream of record batches into tables of exactly `slice_rows` rows; the last may be shorter, none is empty.

    Where a cut lies depends on the number of the row alone, so an interrupted load finds the same slices again.
    """
    import pyarrow as pa

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

    def __init__(self, source: Source) -> None:
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
        data = self._inner.read(size)
        self._bytes += len(data)
        return data

    @override
    def close(self) -> None:
        if not self.closed and self._inner is not None and self._source.path is not None:
            self._inner.close()
        super().close()


def _stream(raw: _Counted, source: Source) -> Any:
    """Return the uncompressed bytes as an Arrow input stream."""
    import pyarrow as pa

    plain = pa.PythonFile(raw, mode="r")
    return plain if source.codec is None else pa.CompressedInputStream(plain, source.codec)


def _seekable(raw: _Counted, source: Source) -> Any:
    """Return something that Parquet and Arrow files can be read from: they are read from their end."""
    import pyarrow as pa

    if source.path is not None and source.codec is None:
        return pa.memory_map(str(source.path))
    return pa.BufferReader(raw.read() if source.codec is None else _stream(raw, source).read())


# --- one reader per format ----------------------------------------------------------------------------------------------------


def _read_csv(raw: _Counted, source: Source, expected: Any) -> tuple[Any, Iterator[Any]]:
    from pyarrow import csv as arrow_csv

    types = None if expected is None else {field.name: _text_if_utc(field.type) for field in expected}
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
    return _with_types(reader.schema, expected), (
        _parse_texts(_fill_texts(batch, expected), expected) for batch in reader
    )


def _fill_texts(batch: Any, expected: Any) -> Any:
    """Turn nulls of text columns that have no nulls into empty texts: in CSV the two look alike."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = set() if expected is None else {field.name for field in expected if not field.nullable}
    for i, field in enumerate(batch.schema):
        if field.name in names and pa.types.is_string(field.type) and batch.column(i).null_count:
            batch = batch.set_column(i, field, pc.fill_null(batch.column(i), ""))
    return batch


def _is_utc(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def _text_if_utc(kind: Any) -> Any:
    """Return the type to parse at first: Arrow refuses a time without a zone, so these columns are read as text."""
    import pyarrow as pa

    return pa.string() if _is_utc(kind) else kind


def _with_types(found: Any, expected: Any) -> Any:
    """Return the schema that `_parse_texts` leads to."""
    import pyarrow as pa

    wanted = {} if expected is None else {field.name: field.type for field in expected}
    return pa.schema([_with_type(field, wanted.get(field.name, field.type)) for field in found])


def _with_type(field: Any, wanted: Any) -> Any:
    import pyarrow as pa

    later = _is_utc(wanted) or pa.types.is_date(wanted) or pa.types.is_nested(wanted)
    return field.with_type(wanted) if later else field


def _parse_texts(batch: Any, expected: Any) -> Any:
    """Give the columns their types that Arrow's readers could not parse: times and, in JSON, dates, also nested ones."""
    import pyarrow as pa

    for i, field in enumerate(_with_types(batch.schema, expected)):
        found = batch.schema.field(i).type
        if field.type == found:
            continue
        if _is_utc(field.type) and pa.types.is_string(found):
            batch = batch.set_column(i, field, _times(batch.column(i), field))
        else:
            batch = batch.set_column(i, field, _cast(batch.column(i), field))
    return batch


def _times(text: Any, field: Any) -> Any:
    """Parse times; those without a zone are UTC, those without a time of day are midnight."""
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(pc.utf8_length(text), 10), pc.binary_join_element_wise(text, "00:00:00", " "), text)
    zoned = pc.match_substring_regex(text, r"Z$|:\d\d.*[+-]\d\d(:?\d\d)?$")
    return _cast(pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", "")), field)


def _cast(values: Any, field: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        found = re.search(r"'(.*?)Z?'", str(error))
        value = repr(found[1]) if found else "a value"
        kind = "timestamp" if pa.types.is_timestamp(field.type) else str(field.type)
        raise BadInput(f"column {field.name!r} is a {kind}, and {value} is not") from error


def _read_jsonl(raw: _Counted, source: Source, expected: Any) -> tuple[Any, Iterator[Any]]:
    import pyarrow as pa
    from pyarrow import json

    schema = None if expected is None else pa.schema([_json_field(field) for field in expected])
    options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")
    reader = json.open_json(_stream(raw, source), json.ReadOptions(block_size=BLOCK_BYTES), options)
    return _with_types(reader.schema, expected), (_parse_texts(batch, expected) for batch in reader)


def _json_field(field: Any) -> Any:
    """Return the field as Arrow's JSON reader can parse it: dates and times as text."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_map(kind):
        raise BadInput(f"column {field.name!r} is a map, which JSON lines can't carry here: use Parquet or Arrow")
    if pa.types.is_date(kind) or _is_utc(kind):
        kind = pa.string()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_json_field(kind.field(i)) for i in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_json_field(kind.value_field))
    return pa.field(field.name, kind)


def _read_parquet(raw: _Counted, source: Source, _expected: Any) -> tuple[Any, Iterator[Any]]:
    from pyarrow import parquet

    file = parquet.ParquetFile(_seekable(raw, source))
    return file.schema_arrow, file.iter_batches()


def _read_arrow(raw: _Counted, source: Source, _expected: Any) -> tuple[Any, Iterator[Any]]:
    """Read either form of Arrow IPC: the file form begins with its magic, everything else is a stream."""
    import pyarrow as pa

    if source.path is not None and source.codec is None:
        with source.path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        if is_file:
            reader = pa.ipc.open_file(_seekable(raw, source))
            return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
    stream = pa.ipc.open_stream(_stream(raw, source))
    return stream.schema, iter(stream)


_Reader = Callable[[_Counted, Source, Any], tuple[Any, Iterator[Any]]]

_READERS: dict[FileFormat, _Reader] = {
    FileFormat.CSV: _read_csv,
    FileFormat.JSONL: _read_jsonl,
    FileFormat.PARQUET: _read_parquet,
    FileFormat.ARROW: _read_arrow,
}


# --- errors -------------------------------------------------------------------------------------------------------------------


@contextmanager
def _explained(source: Source) -> Iterator[None]:
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


def _with_column(source: Source, problem: str) -> str:
    """Say which column does not fit, and what was expected of it: Arrow calls a CSV column by its number."""
    of_json = re.search(r"Column\(/([^)]*)\) changed from (.+?) to (\w+)", problem)
    if of_json is not None:
        return f"column {of_json[1]!r} is {of_json[2]}, and a row has {of_json[3]}"
    found = re.search(r"CSV column #(\d+): CSV conversion error to (.+?): invalid value (.*)", problem)
    if found is None or source.path is None:
        return problem
    with io.TextIOWrapper(_stream(_Counted(source), source), "utf-8-sig") as lines:
        header = next(csv.reader(lines), [])
    number = int(found[1])
    name = repr(header[number]) if number < len(header) else f"number {number + 1}"
    return f"column {name} is {found[2]}, and {found[3]} is not"


def _read(source: Source, batches: Iterator[Any], raw: _Counted) -> Iterator[Any]:
    """Give the batches; close the file after the last one, or when nobody wants more."""
    try:
        while True:
            with _explained(source):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
    finally:
        raw.close()
