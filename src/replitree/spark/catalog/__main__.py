"""``python -m replitree.spark.catalog``: started by the catalog in Spark's JVM, ends when its standard input does."""

from __future__ import annotations

import os
import signal
import sys

from replitree.lean import leave_out_pandas

leave_out_pandas()

from replitree.decoding import json_decoder  # noqa: E402
from replitree.spark.catalog.conversation import Conversation  # noqa: E402
from replitree.spark.catalog.planner import Planner  # noqa: E402
from replitree.spark.catalog.requests import CatalogSettings, PlannerRequest  # noqa: E402

REQUESTS_MAX = 16
"""Requests that are answered at the same time."""


def main() -> None:
    """Answer on what was standard output; whatever else is printed goes to standard error."""
    # An interrupt is meant for the program in the terminal: the process must outlive it, as Spark's JVM does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = sys.stdin.buffer
    settings = requests.readline()
    if settings:
        planner = Planner(json_decoder(CatalogSettings).decode(settings))
        Conversation(answers, REQUESTS_MAX).answer(requests, json_decoder(PlannerRequest).decode, planner.answer)


if __name__ == "__main__":
    main()
