"""``python -m replitree.spark.catalog.put_process``: puts files of tasks into object stores, beside the JVM of an executor.

The JVM starts it with the environment that the session gives to executors, and so with its credentials, when the first task of
a row-level statement has files for a store.  It ends with its standard input, or after `IDLE_S` without a task.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator

from replitree.lean import leave_out_pandas

leave_out_pandas()

from replitree.decoding import json_decoder  # noqa: E402
from replitree.spark.catalog.conversation import Conversation  # noqa: E402
from replitree.spark.catalog.row_files import RowFilesRequest, put_row_files  # noqa: E402

IDLE_S = 60.0
"""After so long without a task the process ends, in seconds."""

READ_BYTES = 1 << 16


def lines_until_idle(source: int, idle_s: float, is_busy: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the lines of an open file until its end, or until none has come for some seconds while nothing is busy."""
    rest = b""
    while True:
        # Not by a buffered reader: a line that it holds already would not wake this up.
        if not select.select([source], [], [], idle_s)[0]:
            if is_busy():
                continue
            return
        some = os.read(source, READ_BYTES)
        if not some:
            return
        *lines, rest = (rest + some).split(b"\n")
        yield from lines


def main() -> None:
    """Answer on what was standard output; whatever else is printed goes to standard error."""
    # An interrupt is meant for the program in the terminal, whose tasks end this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    conversation = Conversation(answers, os.cpu_count() or 1)
    lines = lines_until_idle(sys.stdin.fileno(), IDLE_S, lambda: conversation.is_busy)
    # The first line has the settings of a process, of which there are none.
    if next(lines, None) is not None:
        conversation.answer(lines, json_decoder(RowFilesRequest).decode, put_row_files)


if __name__ == "__main__":
    main()
