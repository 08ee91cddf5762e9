"""The conversation of Spark's JVM with its planner: one JSON object per line, requests in, answers out.

The first line has the catalog's settings.  Every other line is a request with a number; answers come in any order, each with
the number of its request, and have either a result or an error: the class of `replitree.errors`, and a message that says what
to do.

Guarantees: every request is answered once; a slow one, such as for a table whose replicas do not answer, delays no other until
`REQUESTS_MAX` are slow.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import ReplitreeError
from replitree.spark.catalog.planner import Planner
from replitree.spark.catalog.requests import CatalogSettings, PlannerRequest

REQUESTS_MAX = 16
"""Requests that are answered at the same time."""


def converse(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more.

    Parameters
    ----------
    requests, answers
        Lines of JSON.
    """
    settings = requests.readline()
    if not settings:
        return
    planner = Planner(json_decoder(CatalogSettings).decode(settings))
    decoder, encoder, lock = json_decoder(PlannerRequest), msgspec.json.Encoder(), threading.Lock()

    def answer(line: bytes) -> None:
        request = decoder.decode(line)
        body: dict[str, Any] = {"id": request.id}
        try:
            body["result"] = planner.answer(request)
        except ReplitreeError as error:
            body["error"] = {"kind": type(error).__name__, "message": str(error)}
        except Exception as error:  # noqa: BLE001 - the JVM waits for an answer, whatever goes wrong
            body["error"] = {"kind": "Defect", "message": f"replitree could not plan this: {error!r}"}
        line = encoder.encode(body) + b"\n"
        with lock:
            answers.write(line)
            answers.flush()

    with ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="replitree-plan") as pool:
        for line in requests:
            pool.submit(answer, line)


__all__ = ["REQUESTS_MAX", "converse"]
