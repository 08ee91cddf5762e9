"""`replitree insert`: a file into a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from replitree.cli.options import Cluster, Name, check_name, on_cluster
from replitree.cli.output import console, counted
from replitree.cli.tables.files import FileFormat, RowSource, find_source
from replitree.cli.tables.load import LoadProgress, load

File = Annotated[
    str, typer.Argument(metavar="FILE", help="CSV with a header, JSON lines, Parquet or Arrow; - reads standard input.")
]
Format = Annotated[FileFormat | None, typer.Option("--format", help="What the file is.", show_default="by its suffix")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help="Names this load; repeated, it inserts nothing twice.",
        show_default="a hash of the file's content",
    ),
]
Replica = Annotated[
    str | None,
    typer.Option("--replica", metavar="NAME", help="Insert at this replica.", show_default="any that is active"),
]

MergeSchema = Annotated[
    bool,
    typer.Option("--merge-schema", help="Add the columns that the file has and the table has not; widen narrow ones."),
]


Quorum = Annotated[
    str | None,
    typer.Option(
        "--quorum",
        metavar="N|majority|all",
        help="So many replicas must have the rows on disk before they count.",
        show_default="one",
    ),
]

QuorumTimeout = Annotated[
    float | None,
    typer.Option(
        "--quorum-timeout",
        metavar="SECONDS",
        help="How long that may take before the rows are taken back.",
        show_default="10",
    ),
]


Timezone = Annotated[
    str,
    typer.Option("--timezone", metavar="ZONE", help="Zone of times in the file that name none, as in Europe/Berlin."),
]


class OverwriteScope(StrEnum):
    """What the rows of a file take the place of."""

    ALL = "all"
    PARTITIONS = "partitions"


Overwrite = Annotated[
    OverwriteScope | None,
    typer.Option(
        "--overwrite",
        help="Put the rows in the place of everything, or of what is in the partitions that they belong to.",
        show_default="add them",
    ),
]


@on_cluster
def insert(  # noqa: PLR0913, PLR0917 - each is an option of the command
    table: Name,
    file: File,
    at: Cluster,
    file_format: Format = None,
    token: Token = None,
    overwrite: Overwrite = None,
    merge_schema: MergeSchema = False,
    quorum: Quorum = None,
    quorum_timeout: QuorumTimeout = None,
    timezone: Timezone = "UTC",
    replica: Replica = None,
) -> None:
    """Insert the rows of a file.

    Interrupted? Run the same command again: what is in the table already is not inserted twice.  With --overwrite, all rows
    are in the table in the end or none; say --token to make it certain that it happens once.
    """
    from replitree.client.insert.quorum import quorum_of

    check_name(table)
    source, wanted = find_source(file, file_format), quorum_of(quorum, quorum_timeout)
    if timezone != "UTC":
        from replitree.storage.parts.conform import check_zone

        check_zone(timezone)
    with at.connect() as connection:
        target = connection.table(table)
        pinned = target if replica is None else target.replica(replica)
        begin = time.monotonic()
        with _progress(source, quiet=at.as_json) as report:
            named, done = load(
                pinned,
                source,
                token=token,
                overwrite=None if overwrite is None else overwrite.value,
                merge_schema=merge_schema,
                quorum=wanted,
                zone=timezone,
                report=report,
            )
    seconds = time.monotonic() - begin
    value = {
        "table": table,
        "inserted": done.rows_inserted,
        "duplicates": done.rows_duplicate,
        "differing": done.rows_differing,
        "slices": done.slices,
        "token": named,
        "index": done.index,
        "settled": done.settled,
        "seconds": round(seconds, 3),
    }
    text = f"{counted(done.rows_inserted, 'row')} inserted into {table} in {seconds:.1f} s"
    if done.rows_duplicate:
        text += f"; {counted(done.rows_duplicate, 'row')} there already"
    if done.rows_differing:
        print(
            f"replitree: warning: the token {token} was used before for other rows (or another order), so"
            f" {counted(done.rows_differing, 'row')} of this file are not in the table: use a new token",
            file=sys.stderr,
        )
    at.out.result(value, text)


@contextmanager
def _progress(source: RowSource, *, quiet: bool) -> Iterator[Callable[[LoadProgress], None]]:
    """Show a progress bar on a terminal; elsewhere nothing."""
    screen = console(errors=True)
    if quiet or not screen.is_terminal:
        yield lambda _: None
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TextColumn("{task.fields[rows]}", markup=False),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=screen) as bar:
        task = bar.add_task(source.name, total=source.bytes_total, rows="")

        def report(done: LoadProgress) -> None:
            present = f", {done.rows_duplicate:,} were there" if done.rows_duplicate else ""
            bar.update(task, completed=done.bytes_read, rows=f"{done.rows_inserted:,} rows{present}")

        yield report
