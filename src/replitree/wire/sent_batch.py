"""A batch of a stream as clients send it with an insert, in the place of a token: by which the insert is known for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree.errors import BadInput
from replitree.protocol.core.effects import BlockId
from replitree.protocol.core.layout import check_stream_id
from replitree.protocol.core.streams import StreamBatch

BATCH_MAX = 2**63 - 1
BATCH_DIGITS_MAX = 19
QUERY_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch of a stream.

    Attributes
    ----------
    stream, batch
        The stream's id, and the number of the batch in it.
    query
        The streaming query that sends it; empty: a batch write.
    takes_over
        Whether the query may replace another one in the stream.

    Raises
    ------
    BadInput
        The stream can't have this id, the number is below 0 or above `BATCH_MAX`, or the query's id is too long.
    """

    stream: str
    batch: int
    query: str = ""
    takes_over: bool = False

    def __post_init__(self) -> None:
        check_stream_id(self.stream)
        if not 0 <= self.batch <= BATCH_MAX:
            raise BadInput(f"batch {self.batch} of stream {self.stream}: a batch has a number from 0 to {BATCH_MAX}")
        if len(self.query) > QUERY_LENGTH_MAX:
            raise BadInput(f"the id of a query has at most {QUERY_LENGTH_MAX} characters, not {len(self.query)}")

    @property
    def of_stream(self) -> StreamBatch:
        """What the log says of it."""
        return StreamBatch(check_stream_id(self.stream), self.query, self.batch)

    @property
    def name(self) -> BlockId:
        """Its name in messages."""
        return BlockId(f"batch {self.batch} of stream {self.stream}")

    def said(self) -> dict[str, str]:
        """Return what a request says of it in its query.

        >>> SentBatch("etl", 7).said()
        {'stream': 'etl', 'batch': '7'}
        """
        said = {"stream": self.stream, "batch": str(self.batch)}
        if self.query:
            said["query"] = self.query
        return {**said, "takes_over": "true"} if self.takes_over else said


def sent_batch_of(query: Mapping[str, str]) -> SentBatch | None:
    """Return the batch of a stream that a request's query names; None when it names none.

    Raises
    ------
    BadInput
        It can't be one, or the insert has a token too.

    >>> sent_batch_of({"stream": "etl", "batch": "7", "query": "q"})
    SentBatch(stream='etl', batch=7, query='q', takes_over=False)
    >>> sent_batch_of({"token": "load"})
    """
    stream, number = query.get("stream"), query.get("batch", "")
    if stream is None:
        return None
    if "token" in query:
        raise BadInput("a batch of a stream is known by its number: leave the token out")
    if not number.isascii() or not number.isdecimal() or len(number) > BATCH_DIGITS_MAX:
        raise BadInput(f"batch={number[:100]!r} of stream {stream[:100]} is not a number of a batch")
    return SentBatch(stream, int(number), query.get("query", ""), query.get("takes_over") == "true")


__all__ = ["BATCH_DIGITS_MAX", "SentBatch", "sent_batch_of"]
