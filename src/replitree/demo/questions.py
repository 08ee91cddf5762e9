"""What a person would ask of the data: five questions for each kind of data, as Spark SQL over the view ``data``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the query that answers it.

    Attributes
    ----------
    text
        As a person would ask it.
    sql
        Over the view ``data``.
    """

    text: str
    sql: str


INVENTORY = (
    Question(
        "How many files are there, and how much room do they take?",
        "SELECT count(*) AS entries, count_if(kind = 'file') AS files, count_if(kind = 'folder') AS folders, "
        "round(sum(size) / 1e9, 2) AS gigabytes FROM data WHERE walk = 1",
    ),
    Question(
        "Which kinds of file take the most room?",
        "SELECT coalesce(suffix, '(none)') AS suffix, count(*) AS files, round(sum(size) / 1e6, 1) AS megabytes "
        "FROM data WHERE walk = 1 AND kind = 'file' GROUP BY 1 ORDER BY megabytes DESC, suffix LIMIT 5",
    ),
    Question(
        "Who owns it all?",
        "SELECT owner, count(*) AS entries, round(sum(size) / 1e6, 1) AS megabytes "
        "FROM data WHERE walk = 1 GROUP BY owner ORDER BY megabytes DESC, owner LIMIT 5",
    ),
    Question(
        "What changed in the last day before the walk, and where?",
        "SELECT regexp_extract(path, '^(/[^/]*(/[^/]*)?)', 1) AS folder, count(*) AS files, max(modified) AS latest "
        "FROM data WHERE walk = 1 AND kind = 'file' AND modified >= (SELECT max(modified) - INTERVAL 1 DAY FROM data WHERE "
        "modified <= current_timestamp()) GROUP BY 1 ORDER BY files DESC, folder LIMIT 5",
    ),
    Question(
        "What is probably stored more than once (same name, same size), and what would one copy save?",
        "SELECT name, copies, round(size * (copies - 1) / 1e6, 1) AS megabytes_saved FROM (SELECT "
        "regexp_extract(path, '([^/]*)$', 1) AS name, size, count(*) AS copies FROM data WHERE walk = 1 AND kind = 'file' "
        "AND size > 0 GROUP BY 1, 2 HAVING copies > 1) ORDER BY megabytes_saved DESC, name LIMIT 5",
    ),
)

GIT = (
    Question(
        "How much happened here?",
        "SELECT count(*) AS changes, count(DISTINCT commit) AS commits, count(DISTINCT author) AS authors, "
        "count(DISTINCT path) AS paths, min(time) AS first, max(time) AS last FROM data",
    ),
    Question(
        "Who did the most?",
        "SELECT author, count(DISTINCT commit) AS commits, count(*) AS changes FROM data GROUP BY author "
        "ORDER BY commits DESC, author LIMIT 5",
    ),
    Question(
        "Which files change most often?",
        "SELECT path, count(*) AS changes, count(DISTINCT author) AS authors FROM data GROUP BY path "
        "ORDER BY changes DESC, path LIMIT 5",
    ),
    Question(
        "On which days of the week is the work done?",
        "SELECT date_format(time, 'EEEE') AS day, count(DISTINCT commit) AS commits FROM data GROUP BY 1 "
        "ORDER BY commits DESC, day LIMIT 7",
    ),
    Question(
        "Which files are changed together by the most different people and may want an owner?",
        "SELECT path, count(DISTINCT author) AS authors, max(time) AS last FROM data WHERE change <> 'deleted' GROUP BY path "
        "ORDER BY authors DESC, path LIMIT 5",
    ),
)

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES = ("date", "timestamp")
_NESTED = ("array", "map", "struct", "binary", "variant")


def about(columns: Sequence[tuple[str, str]]) -> tuple[Question, ...]:
    """Return five questions about data of an unknown schema.

    Parameters
    ----------
    columns
        Names and Spark's type words.
    """
    plain = [name for name, kind in columns if not kind.startswith(_NESTED)]
    words = [name for name, kind in columns if kind.startswith(("string", "char", "varchar", "boolean"))] or plain
    numbers = [name for name, kind in columns if kind.startswith(_NUMBERS)]
    times = [name for name, kind in columns if kind.startswith(_TIMES)]
    missing = ", ".join(f"count_if({quoted(name)} IS NULL) AS {quoted(name)}" for name, _ in columns[:8])
    different = ", ".join(f"approx_count_distinct({quoted(name)}) AS {quoted(name)}" for name in plain[:8])
    frequent = Question("How many rows are there, once more?", "SELECT count(*) AS rows FROM data")
    if words:
        name = quoted(words[0])
        frequent = Question(
            f"Which values of {words[0]} are the most frequent?",
            f"SELECT {name}, count(*) AS rows FROM data GROUP BY {name} ORDER BY rows DESC, {name} LIMIT 5",  # noqa: S608
        )
    reach = Question("Are there any rows?", "SELECT count(*) > 0 AS yes FROM data")
    if ordered := numbers or times or plain:
        name = quoted(ordered[0])
        reach = Question(
            f"From where to where does {ordered[0]} reach?",
            f"SELECT min({name}) AS smallest, max({name}) AS largest FROM data",  # noqa: S608
        )
    return (
        Question("How many rows are there?", "SELECT count(*) AS rows FROM data"),
        Question("How many values are missing in each column?", f"SELECT {missing} FROM data"),  # noqa: S608
        Question(
            "About how many different values has each column?",
            f"SELECT {different or 'count(*) AS rows'} FROM data",  # noqa: S608
        ),
        frequent,
        reach,
    )


def quoted(name: str) -> str:
    """Return a column's name as SQL takes it.

    >>> quoted("odd`name")
    '`odd``name`'
    """
    return "`" + name.replace("`", "``") + "`"
