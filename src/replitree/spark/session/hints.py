"""Statements of Delta Lake that Spark can't read: the error keeps Spark's words, and has a note with what there is here.

Spark's grammar has no `RESTORE`, `OPTIMIZE`, `VACUUM` or `CLONE`, so its parser refuses them before any catalog is asked.
`note_statements` lets a session add a note (PEP 678) to such an error: Python shows it below the error's message, which stays
as it is.

Absent on purpose: a parser of our own in the JVM.  Every statement of every session would go through it, and each version of
Spark has another interface for it.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLE = r"(?P<table>(?:`[^`]*`|[\w.])+)"


class _Hint(NamedTuple):
    """What a statement looks like, and what there is instead: a template with the names of what was found in it."""

    statement: re.Pattern[str]
    instead: str


def _hint(statement: str, instead: str) -> _Hint:
    # Each space of a statement may be any space.
    return _Hint(re.compile(statement.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL), instead)


_HINTS = (
    _hint(
        rf"restore (?:table )?{_TABLE} to (?:version|timestamp) as of '?(?P<version>[^';]+?)'?\s*;?\s*$",
        "CALL replitree.restore_to('{table}', '{version}')",
    ),
    _hint(
        rf"optimize {_TABLE}.*\bzorder\b",
        "CALL replitree.optimize('{table}'); rows of a part are sorted by the table's order key",
    ),
    _hint(rf"(?:optimize|reorg table) {_TABLE}", "CALL replitree.optimize('{table}')"),
    _hint(
        rf"vacuum {_TABLE}",
        "nothing: replicas remove by themselves what no read needs; for how long they keep it says"
        " ALTER TABLE {table} SET TBLPROPERTIES (keep = '7 days')",
    ),
    _hint(rf"desc(?:ribe)? history {_TABLE}", "SELECT * FROM {qualified}.history"),
    _hint(rf"desc(?:ribe)? detail {_TABLE}", "DESCRIBE EXTENDED {table}"),
    _hint(
        rf"create (?:or replace )?table (?:if not exists )?{_TABLE} (?:shallow |deep )?clone (?P<source>(?:`[^`]*`|[\w.])+)",
        "CREATE TABLE {table} AS SELECT * FROM {source}",
    ),
    _hint(rf".*\bfrom {_TABLE}@v(?P<version>\d+)", "{table} VERSION AS OF {version}"),
    _hint("convert to delta", "CREATE TABLE … AS SELECT * FROM parquet.`…`, or INSERT INTO … SELECT"),
    _hint("generate symlink_format_manifest", "table.snapshot().files() in Python (docs/engines.md)"),
    _hint(rf"fsck repair table {_TABLE}", "the command: replitree check {table}"),
    _hint(
        rf"alter table {_TABLE} drop (?:if exists )?partition",
        "DROP PARTITION takes values of all partition columns, and nothing but =. All partitions with some values are emptied"
        " by TRUNCATE TABLE {table} PARTITION (…), and other conditions are for DELETE FROM {table} WHERE …",
    ),
)


def hint_for(statement: str) -> str | None:
    """Return what there is instead of a statement that Spark has refused; None when that is not known.

    Examples
    --------
    >>> hint_for("RESTORE TABLE people TO VERSION AS OF 1")
    "CALL replitree.restore_to('people', '1')"
    >>> hint_for("create table p shallow clone q")
    'CREATE TABLE p AS SELECT * FROM q'
    >>> hint_for("DESCRIBE HISTORY people"), hint_for("selct 1")
    ('SELECT * FROM replitree.default.people.history', None)
    """
    for pattern, instead in _HINTS:
        found = pattern.match(statement.strip())
        if found is not None:
            names = {key: value or "" for key, value in found.groupdict().items()}
            table = names.get("table", "")
            return instead.format(**names, qualified=table if "." in table else f"replitree.default.{table}")
    return None


def note_statements(spark: SparkSession) -> None:
    """Let errors of a session's `sql` have a note with what there is here instead.  Again it does nothing.

    Sessions of `spark_session` have such notes.  The settings of the catalog can't bring them: Spark's parser refuses a
    statement before it asks any catalog.

    Parameters
    ----------
    spark
        A session that was made otherwise.
    """
    if "sql" in vars(spark):
        return
    run = spark.sql

    @wraps(run)
    def noted(sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803 - Spark's name: callers may say it
        try:
            return run(sqlQuery, *args, **kwargs)
        except AnalysisException as error:
            instead = hint_for(str(sqlQuery))
            # An error without a condition has words of ours, and one of a partition that is not there says enough.
            if instead is not None and error.getCondition() not in (None, "PARTITIONS_NOT_FOUND"):
                error.add_note(f"replitree has instead: {instead}")
            raise

    spark.sql = noted  # type: ignore[method-assign]


__all__ = ["hint_for", "note_statements"]
