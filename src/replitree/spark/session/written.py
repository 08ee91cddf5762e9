"""Positions that the jobs of a Spark application have written, so that later reads of the same application show them.

The data source commits in a Python worker that ends with the plan, and so does its next read: the two share no memory.  The
driver's Java process outlives both.  Each commit notes its log index in a file below a private folder that is named by that
process; a read that asks for nothing in particular includes this index.  Of a mutation it includes the changed rows as well.

Guarantees: a read of an application shows what its earlier jobs have committed, through `format("replitree")` or
`Table.to_df`, whichever replica answers.  A note that can't be written or read makes a read no worse than without it.

A finished change through a `Table` is noted, too, in a process that has begun a session: its SQL shows the change.

Absent on purpose: changes by processes without a session of their own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replitree import private
from replitree.client.insert.terms import InsertResult
from replitree.client.sharded.sharded_table import tables_of
from replitree.client.transport.catalog import this_machine
from replitree.spark.session.driver import driver_process
from replitree.wire.identity import process_started
from replitree.wire.upload_life import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.table import Table


def note_written(table_id: str, index: int | None, driver: Writer | None = None, *, is_mutation: bool = False) -> None:
    """Note what a job has written.

    Parameters
    ----------
    table_id
        Of the table.
    index
        `InsertResult.counts_at` of an insert, or the log index of a finished command; None: nothing was written.
    driver
        The application's Java process; by default the one that this process works for.
    is_mutation
        Whether the command is an update or a delete, whose entry a replica has before the changed rows.
    """
    found = driver or driver_process()
    if index is None or not found.pid or found.pid == os.getpid():
        return
    with suppress(OSError):
        folder = _folder(found)
        # What applications left that have ended; the start time tells a process from a later one with its number.
        for other in folder.parent.iterdir():
            pid, _, started = other.name.partition("-")
            if pid.isdigit() and str(process_started(int(pid)) or 0) != started:
                shutil.rmtree(other, ignore_errors=True)
        private.make_folder(folder, exist_ok=True)
        # Jobs of one application may commit at once.
        with private.open_file(folder / "lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = last_written(table_id, found)
            after = (before[0], max(before[1], index)) if is_mutation else (max(before[0], index), before[1])
            if after != before:
                draft = folder / f".{table_id}"
                private.write_file(draft, f"{after[0]} {after[1]}".encode())
                draft.replace(folder / table_id)


def last_written(table_id: str, driver: Writer | None = None) -> tuple[int, int]:
    """Return the highest log index that the application has written, and that of its mutations; -1 is none.

    Parameters
    ----------
    table_id, driver
        As `note_written`.
    """
    found = driver or driver_process()
    with suppress(OSError, ValueError):
        index, mutated = (_folder(found) / table_id).read_text(encoding="ascii").split()
        return int(index), int(mutated)
    return -1, -1


def include_written(table: Table, driver: Writer | None = None) -> None:
    """Let the later reads of a table's connection include what the application has written; `driver` as `note_written`."""
    for each in tables_of(table):
        index, mutated = last_written(each.definition.table_id, driver)
        each.inserter.written.add(index)
        each.inserter.written.add_mutation(mutated)


def note_inserted(table: Table, result: InsertResult, driver: Writer | None = None) -> None:
    """Note what an insert has written, into a sharded table in each shard; `driver` as `note_written`."""
    from replitree.client.sharded.insert.joint import JointInsertResult

    indexes = dict(result.shards) if isinstance(result, JointInsertResult) else {table.name: result.counts_at}
    for each in tables_of(table):
        note_written(each.definition.table_id, indexes.get(each.name), driver)


def note_through_table(table: Table, index: int | None, *, is_mutation: bool) -> None:
    """Note what was written through a `Table` for the application of this process, if it has begun one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - there is no other way
    if gateway is None:
        return
    # A Java process that has ended reads nothing any more.
    with suppress(Exception):
        note_written(table.definition.table_id, index, _java_process(gateway), is_mutation=is_mutation)


def remember(table: Table, spark: SparkSession) -> None:
    """Let the later reads of a table's connection include what jobs of this session's application have written."""
    # A session without a JVM of its own, such as Spark Connect's, tells nothing.
    with suppress(Exception):
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - there is no other way
        include_written(table, _java_process(gateway))


# Six calls of the JVM are a tenth of those that a frame takes.
@lru_cache(maxsize=1)
def _java_process(gateway: Any) -> Writer:
    """Return the Java process of a gateway."""
    pid = int(gateway.jvm.java.lang.ProcessHandle.current().pid())
    return Writer(this_machine(), pid, process_started(pid) or 0)


def _folder(driver: Writer) -> Path:
    """Return the folder of an application, below one that only this user can read.

    Raises
    ------
    OSError
        There is one of another user.
    """
    parent = Path(tempfile.gettempdir()) / f"replitree-written-{os.getuid()}"
    private.make_folder(parent, exist_ok=True)
    if parent.is_symlink() or parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{parent} is not ours")
    return parent / f"{driver.pid}-{driver.started}"


__all__ = ["include_written", "last_written", "note_inserted", "note_through_table", "note_written", "remember"]
