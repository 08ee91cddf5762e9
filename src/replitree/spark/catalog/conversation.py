"""The conversation of Spark's JVM with a process beside it: one JSON object per line, requests in, answers out.

The first line has settings.  Every other line is a request with a number; answers come in any order, each with the number of
its request, and have either a result or an error: the class of `replitree.errors`, and a message that says what to do.

Guarantees: every request is answered once; a slow one, such as for a table whose replicas do not answer, delays no other until
as many are slow as are answered at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Protocol, TypeVar

import msgspec

from replitree.errors import ReplitreeError


class NumberedRequest(Protocol):
    """A request, as it is decoded."""

    @property
    def id(self) -> int:
        """Its number."""


R = TypeVar("R", bound=NumberedRequest)


class Conversation:
    """Answers requests.

    Parameters
    ----------
    answers
        Where lines of JSON go.
    at_once
        How many requests are answered at the same time.
    """

    def __init__(self, answers: IO[bytes], at_once: int) -> None:
        self._answers = answers
        self._at_once = at_once
        self._lock = threading.Lock()
        self._open = 0

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its answer."""
        with self._lock:
            return self._open > 0

    def answer(self, requests: Iterable[bytes], decode: Callable[[bytes], R], do: Callable[[R], object]) -> None:
        """Answer requests until there are no more.

        Parameters
        ----------
        requests
            Lines of JSON.
        decode, do
            Reads a request, and returns its result.
        """
        encoder = msgspec.json.Encoder()

        def one(line: bytes) -> None:
            request = decode(line)
            body: dict[str, Any] = {"id": request.id}
            try:
                body["result"] = do(request)
            except ReplitreeError as error:
                body["error"] = {"kind": type(error).__name__, "message": str(error)}
            except Exception as error:  # noqa: BLE001 - the JVM waits for an answer, whatever goes wrong
                body["error"] = {"kind": "Defect", "message": f"replitree could not do this: {error!r}"}
            said = encoder.encode(body) + b"\n"
            with self._lock:
                self._open -= 1
                self._answers.write(said)
                self._answers.flush()

        with ThreadPoolExecutor(self._at_once, thread_name_prefix="replitree-answer") as pool:
            for line in requests:
                with self._lock:
                    self._open += 1
                pool.submit(one, line)


__all__ = ["Conversation", "NumberedRequest"]
