"""Writes in a history (option ``record``): the driver writes an insert down before it commits what the tasks have staged.

A task numbers the rows that it stages; the driver gets the numbers of the attempts that Spark chose, so they are those of the
insert.  A driver that is killed before the commit leaves nothing in the table and nothing in the history.  One that is killed
in the commit leaves an insert whose outcome is unknown; when the job is run again with the same token, or the same batch of a
stream, it is the same insert in the history.

Each commit is a client of its own in the history: Spark runs it in a process that ends with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from replitree.client.recorded import key_column, least_quorum
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.session.options import table_name
from replitree.spark.write.sharded_write import staged_in
from replitree.wire.history_recorder import OpenOperation, Recorder

if TYPE_CHECKING:
    from replitree.spark.write.source_write import WritePlan


def numbering_column(options: Mapping[str, str], table: Table, names: Sequence[str], *, overwrite: bool) -> str | None:
    """Return the column that numbers the rows of a job that is recorded; None for one that is not.

    Parameters
    ----------
    options
        Of the job, by their names in lower case.
    names
        The table's names of the columns that the rows have.
    overwrite
        The job takes the place of rows.

    Raises
    ------
    BadInput
        The job can't be recorded.
    """
    if "record" not in options:
        if "recordkey" in options:
            raise BadInput("option recordKey is for a job that is recorded: give option record, too")
        return None
    if not Path(options["record"]).is_absolute():
        raise BadInput(f"option record is an absolute path of the driver's machine, not {options['record']!r}")
    if overwrite:
        raise BadInput("a history is of tables from which nothing is removed: overwrite without recording")
    key = key_column(table.name, table.schema, table.definition.order_by, options.get("recordkey"))
    if key not in names:
        raise BadInput(f"the rows have no column {key}, which numbers them in the history")
    return key


@contextmanager
def recorded_insert(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> Iterator[OpenOperation | None]:
    """Record the commit that is done inside; give None for a job that is not recorded, or has no rows.

    Raises
    ------
    BadInput
        A row is there twice, or the file can't be opened: nothing has been inserted.
    """
    staged = (each for message in messages for each in staged_in(message))
    ranges = [pair for each in staged for pair in each.numbers]
    if plan.job.number_by is None or not ranges:
        yield None
        return
    name, key = table_name(plan.options), plan.job.number_by
    rows = [number for first, last in ranges for number in range(first, last + 1)]
    if len(set(rows)) < len(rows):
        raise BadInput(f"column {key} of table {name} numbers the rows of a history, each once; one is there twice")
    terms = plan.terms
    token = terms.token if terms.batch is None else f"{terms.batch.stream}/{terms.batch.batch}"
    quorum = least_quorum(None if terms.quorum is None else terms.quorum.size)
    # By chance: a client does one thing after the other, and who comes after one that was killed needs another name.
    client = f"spark-{secrets.token_hex(6)}"
    with (
        closing(Recorder(plan.options["record"], name=client, append=True)) as recorder,
        recorder.insert(name, rows, token=token, replica=plan.options.get("replica"), quorum=quorum) as asked,
    ):
        yield asked


__all__ = ["numbering_column", "recorded_insert"]
