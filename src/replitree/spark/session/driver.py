"""The driver's process, as seen from a Python worker that plans for it.

Spark plans reads and writes of a Python source in workers that end when the plan is made.  What lasts as long as the job is the
Java process that they descend from.
"""

from __future__ import annotations

import os
from pathlib import Path

from replitree.client.insert.upload import this_process
from replitree.client.transport.catalog import this_machine
from replitree.wire.identity import process_started
from replitree.wire.upload_life import Writer

ANCESTORS_MAX = 16
"""How far up a worker's driver is looked for."""


def driver_process() -> Writer:
    """Return the Java process that this one works for; this one if there is none, or an unknown one."""
    pid = os.getpid()
    for _ in range(ANCESTORS_MAX):
        try:
            # The name is in parentheses, and may have some itself.
            head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            # The process has ended, or this system has no such files.
            break
        if head.partition("(")[2] == "java":
            started = process_started(pid)
            return Writer(this_machine(), pid, started) if started is not None else Writer()
        pid = int(rest.split()[1])
        if pid <= 1:
            break
    # A Python worker of Spark's, on a machine where its Java process is not seen.
    is_worker = "PYTHON_WORKER_FACTORY_SECRET" in os.environ or "SPARK_PYTHON_RUNTIME" in os.environ
    return Writer() if is_worker else this_process()
