"""Judging a history with Spark: the same verdict, where the rows of its reads are too many for one machine.

What is big in a history is what its reads show.  Tasks read stretches of the files and keep those rows; the driver has some
numbers of each operation, and what was inserted.  Then the same functions as on one machine run over the stretches: what is
said of a read is said where its rows are, and what is counted for rows is added up by blocks of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replitree.errors import BadInput, ReplitreeError
from replitree.wire.history_format import Level
from replitree_verify.histories.case import answered_reads, make_case
from replitree_verify.histories.columns import History, Ints, joined, offsets_of
from replitree_verify.histories.cover import PerRead, PerSegment, Spans, spans_of, taken
from replitree_verify.histories.judge import Verdict, judge, together
from replitree_verify.histories.reading import chunks, complete, count_lines, read_clock

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

STRETCH_BYTES = 64 << 20
"""How much of a file one task reads."""

BLOCK_SEGMENTS = 1 << 16
"""How many segments, in order of their rows, are added up together."""

Object = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines of a file that begin within some of its bytes, and the number of the first of them."""

    path: str
    begin: int
    end: int
    line: int = 1


def check_with_spark(
    spark: SparkSession,
    paths: Sequence[Path | str],
    level: Level | None = None,
    *,
    stretch_bytes: int = STRETCH_BYTES,
) -> Verdict:
    """Judge the files of a history; every executor must be able to read them.

    Parameters
    ----------
    spark
        The session.
    paths, level
        As `replitree_verify.histories.judge.check`.
    stretch_bytes
        How much one task reads.

    Raises
    ------
    BadInput, UnsupportedFormat
        As when it is read on one machine.
    """
    began, context = time.monotonic(), spark.sparkContext
    read_clock(paths)
    cut = list[Stretch]()
    for path in map(Path, paths):
        length = path.stat().st_size
        ends = ((begin, min(length, begin + stretch_bytes)) for begin in range(0, length, stretch_bytes))
        cut += [Stretch(str(path), begin, end) for begin, end in ends]
    # A job of its own, before the reading: messages of errors name lines, whose numbers need the counts of earlier stretches.
    tasks = context.parallelize(cut, len(cut))
    counts = tasks.map(lambda each: count_lines(Path(each.path), each.begin, each.end)).collect()
    stretches, line = list[Stretch](), 1
    for stretch, count in zip(cut, counts, strict=True):
        line = 1 if stretch.begin == 0 else line
        stretches.append(Stretch(stretch.path, stretch.begin, stretch.end, line))
        line += count
    # Kept in memory: every look at the rows is a job over the same stretches.
    parts = context.parallelize(stretches, len(stretches)).map(_read).cache()
    try:
        # The driver gets everything but the rows of reads, which are what is big.
        rest = parts.map(lambda part: part if isinstance(part, str) else part.without_rows_of_reads())
        heads = list[History]()
        for part in rest.collect():
            if isinstance(part, str):
                raise BadInput(part)
            heads.append(part)
        history = complete(joined(heads))
        verdicts = [
            judge(make_case(_of(history, name), level, SparkReads(context, parts, heads, name)))
            for name in history.names.object
        ]
    finally:
        parts.unpersist()
    return together(verdicts, len(history), time.monotonic() - began)


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(stretch: Stretch) -> History | str:
    """Return the operations of a stretch, or what is wrong with them."""
    try:
        return joined(list(chunks(Path(stretch.path), stretch.begin, stretch.end, stretch.line)))
    except ReplitreeError as error:
        return str(error)  # not raised: Spark would try the task again, and bury the message in a stack trace


def _of(history: History, name: Object) -> History:
    """Return the operations of one table."""
    if name not in history.names.object:
        return history.take(np.zeros(0, np.int64))
    return history.take(np.flatnonzero(history.object == history.names.object.index(name)))


# --- reads whose rows are with Spark ---------------------------------------------------------------------------------


class SparkReads:
    """The reads of one table, where Spark has them.

    Parameters
    ----------
    context, parts
        Spark's, and the history in stretches.
    heads
        The same without the rows of reads.
    name
        Of the table.
    """

    def __init__(self, context: SparkContext, parts: RDD[Any], heads: list[History], name: Object) -> None:
        bases = offsets_of(np.array([len(answered_reads(_of(head, name))) for head in heads], np.int64)).tolist()

        def spans(number: int, some: Iterable[Any]) -> Iterable[Spans]:
            for part in some:
                mine = _of(part, name)
                yield spans_of(mine, answered_reads(mine), bases[number])

        self._context = context
        self._spans = parts.mapPartitionsWithIndex(spans).cache()

    def each(self, do: PerRead, *shared: object) -> list[Ints]:
        """Return what `do` gives for all reads, one entry a read."""
        known = self._context.broadcast(shared)
        found = self._spans.map(lambda spans: (spans.base, do(spans, *known.value))).collect()
        # Spark gives no order: the base of each chunk says where its reads belong.
        columns = [columns for _, columns in sorted(found, key=lambda pair: pair[0])]
        known.unpersist()
        return [np.concatenate(column) for column in zip(*columns, strict=True)]

    def total(self, do: PerSegment, *shared: object) -> Ints:
        """Return the sum of what `do` gives, one entry a segment."""
        known = self._context.broadcast(shared)

        # In blocks: the sum of a single column would be made by one task, from a whole column of every chunk.
        def blocks(spans: Spans) -> Iterator[tuple[int, Ints]]:
            values = do(spans, *known.value)
            for start in range(0, max(1, len(values)), BLOCK_SEGMENTS):
                yield start, values[start : start + BLOCK_SEGMENTS]

        found = self._spans.flatMap(blocks).reduceByKey(add).collect()
        known.unpersist()
        return np.concatenate([block for _, block in sorted(found, key=lambda pair: pair[0])])

    def spans(self, numbers: Ints) -> Spans:
        """Return the rows of a few reads."""
        wanted = numbers.tolist()

        def those_here(spans: Spans) -> Iterator[tuple[int, Spans]]:
            for number in wanted:
                if spans.base <= number < spans.base + len(spans):
                    yield number, taken(spans, np.array([number - spans.base]))

        found = dict(self._spans.flatMap(those_here).collect())
        some = [found[number] for number in wanted]
        counts = np.array([len(each.first) for each in some], np.int64)
        first, last = (np.concatenate([getattr(each, name) for each in some]) for name in ("first", "last"))
        raw = {new: each.raw[0] for new, each in enumerate(some) if each.raw}
        return Spans(0, offsets_of(counts), first, last, np.concatenate([each.repeated for each in some]), raw)
