"""A file into a table, slice by slice, so that an interrupted load is repeated without a duplicate.

Order: open the file; name the load (the user's token, or a hash of the file's bytes); then for every slice insert it under
``<token>:<number>``.  A slice whose token the table knows is a duplicate and costs nothing but the reading; so the same
command again continues where the last one stopped.  A file that overwrites is one insert, and named only by the user's token.

Guarantees: what is reported as inserted is in the table; a slice is in the table as a whole or not at all.

A pipe can't be hashed before it is read: without a token a slice of standard input is named by a hash of all rows so far,
and the same bytes piped again are duplicates.  A pipe that ended early can't be told from a whole one: its last slice is
short, and stays in the table beside the whole slice of the repeated load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replitree.cli.tables.files import OpenedRows, RowSource, hash_file, open_rows, slices
from replitree.errors import BadInput, OutcomeUnknown

if TYPE_CHECKING:
    from replitree.client import Table
    from replitree.client.insert.quorum import InsertQuorum
    from replitree.client.insert.terms import Overwrite
    from replitree.storage.schema.definition import TableDefinition

SLICE_ROWS = 262_144
"""Rows of one insert.  Never change it: a repeated load would cut elsewhere and insert rows twice."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load is.

    Attributes
    ----------
    slices, rows_inserted, rows_duplicate
        What happened so far.
    bytes_read
        Of the file; compressed bytes when it is compressed.
    index, settled
        The highest positions so far: of an insert, and of the end of a quorum; None when there is none, or it is not known.
    rows_differing
        Of the duplicates, those whose token had certainly been used for other rows.
    """

    slices: int = 0
    rows_inserted: int = 0
    rows_duplicate: int = 0
    bytes_read: int = 0
    index: int | None = None
    settled: int | None = None
    rows_differing: int = 0


def load(  # noqa: PLR0913 - each is an option of the command
    table: Table,
    source: RowSource,
    *,
    token: str | None = None,
    overwrite: Overwrite | None = None,
    merge_schema: bool = False,
    quorum: InsertQuorum | None = None,
    zone: str = "UTC",
    report: Callable[[LoadProgress], None] = lambda _: None,
    slice_rows: int = SLICE_ROWS,
) -> tuple[str | None, LoadProgress]:
    """Insert the rows of a file.

    Parameters
    ----------
    table
        Where to; perhaps pinned to one replica.
    source
        What to read.
    token
        Names the load; by default the file's content does, unless it overwrites.
    overwrite, merge_schema, quorum
        As `Table.insert`.
    zone
        Time zone of times in the file that name none.
    report
        Called after every slice.
    slice_rows
        For tests; see `SLICE_ROWS`.

    Returns
    -------
    tuple
        The token, if the load has one, and what happened.

    Raises
    ------
    BadInput
        The rows can't be read or do not fit the table; the slices before them stay.
    OutcomeUnknown
        The last slice may be in the table; the same command again finds out.
    """
    rows = open_rows(source, table.definition.arrow_schema, zone)
    if merge_schema:
        table.merge_schema(rows.schema)
    if overwrite is not None and quorum is not None:
        raise BadInput("a file that overwrites can't have a quorum: what it replaces would be gone if it failed")
    if overwrite is not None:
        return _overwrite(table, rows, token, _Asked(token, None, zone, overwrite), report)
    _check_token(token)
    named: _NumberedTokens | _Chained
    if token is not None:
        named = _NumberedTokens(token)
    elif source.path is None:
        named = _Chained(table.definition, zone)
    else:
        # The same bytes read in another time zone are other rows.
        named = _NumberedTokens(hash_file(source.path) + (f"@{zone}" if zone != "UTC" else ""))
    done = LoadProgress()
    for number, piece in enumerate(slices(rows.batches, rows.schema, slice_rows)):
        asked = _Asked(named(number, piece), quorum, zone)
        try:
            result = table.insert(piece, **asked.options)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(
                f"slice {done.slices} may be in the table or not ({error}); run the same command again: "
                "what is in the table already is not inserted twice",
                asked.token or "",
            ) from error
        duplicate = result.outcome == "duplicate"
        done = LoadProgress(
            done.slices + 1,
            done.rows_inserted + (0 if duplicate else piece.num_rows),
            done.rows_duplicate + (piece.num_rows if duplicate else 0),
            rows.bytes_read(),
            _highest(done.index, result.index),
            _highest(done.settled, result.settled),
            done.rows_differing + (piece.num_rows if result.differs else 0),
        )
        report(done)
    return token or named.base, done


@dataclass(frozen=True, slots=True)
class _Asked:
    """How a slice is inserted."""

    token: str | None
    quorum: InsertQuorum | None
    zone: str = "UTC"
    overwrite: Overwrite | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `Table.insert`."""
        options: dict[str, Any] = {"token": self.token}
        if self.quorum is not None:
            options |= {"quorum": self.quorum.size, "quorum_timeout_s": self.quorum.timeout_s}
        if self.overwrite is not None:
            options["overwrite"] = self.overwrite
        if self.zone != "UTC":
            options["timezone"] = self.zone
        return options


def _highest(*positions: int | None) -> int | None:
    return max((each for each in positions if each is not None), default=None)


def _overwrite(
    table: Table, rows: OpenedRows, token: str | None, asked: _Asked, report: Callable[[LoadProgress], None]
) -> tuple[str | None, LoadProgress]:
    """Put the rows in the place of others, by one insert."""
    import pyarrow as pa

    _check_token(token)
    counted = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal counted
        for batch in rows.batches:
            counted += batch.num_rows
            yield batch
            report(LoadProgress(bytes_read=rows.bytes_read()))

    reader = pa.RecordBatchReader.from_batches(rows.schema, batches())
    result = table.insert(reader, **asked.options)
    inserted, present = (0, counted) if result.outcome == "duplicate" else (counted, 0)
    done = LoadProgress(
        1, inserted, present, rows.bytes_read(), result.index, rows_differing=counted if result.differs else 0
    )
    report(done)
    return token, done


@dataclass(frozen=True, slots=True)
class _NumberedTokens:
    """Names slices by a token that is known before the first row."""

    base: str

    def __call__(self, number: int, _piece: Any) -> str:
        return f"{self.base}:{number}"


class _Chained:
    """Names each slice by a hash of all rows up to its end."""

    def __init__(self, definition: TableDefinition, zone: str) -> None:
        self._definition = definition
        self._zone = zone
        self.base = ""

    def __call__(self, number: int, piece: Any) -> str:
        import xxhash

        from replitree.storage.parts.conform import conform
        from replitree.storage.parts.content_hash import content_hash

        rows = content_hash(conform(piece, self._definition, zone=self._zone), self._definition.arrow_schema)
        self.base = xxhash.xxh3_128_hexdigest(f"{self.base}/{rows}".encode())
        return f"{self.base}:{number}"


def _check_token(token: str | None) -> None:
    if token is not None and not token.strip():
        raise BadInput("an empty token names nothing: leave --token away, or give one")
