"""Queries of streams, in tests: Spark gives the process that reads a stream ten seconds to start, whatever the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_S_MAX = 300
STARTS_MAX = 8
TOO_SLOW = "Python worker failed to connect back"
"""What Spark says when that process did not start in time.  The query has read nothing then, and is started again."""


def finished(start: Callable[[], StreamingQuery]) -> None:
    """Start a query that ends by itself, and wait for its end.

    Raises
    ------
    StreamingQueryException
        It failed.
    """
    for last in range(STARTS_MAX):
        query = start()
        try:
            assert query.awaitTermination(QUERY_S_MAX)
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error) or last == STARTS_MAX - 1:
                raise
        else:
            return


def run_until(start: Callable[[], StreamingQuery], look: Callable[[], bool]) -> None:
    """Start a query, and stop it when there is something to see.

    Raises
    ------
    AssertionError
        It has ended by itself; or there is nothing to see in time: the message has its last progress.  The time limit of
        all tests would break off a call of the Java machine instead, and no later test of the process could use that.
    StreamingQueryException
        As of `finished`.
    """
    end = time.monotonic() + QUERY_S_MAX
    for last in range(STARTS_MAX):
        query = start()
        try:
            while not look():
                if query.awaitTermination(1):
                    raise AssertionError("the query has ended by itself")
                assert time.monotonic() < end, f"nothing to see in {QUERY_S_MAX} s: {query.status} {query.lastProgress}"
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error) or last == STARTS_MAX - 1:
                raise
        else:
            return
        finally:
            query.stop()
