"""Drivers of Spark in processes of their own, which tests kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from tests.waiting import wait_for

DRIVER_S_MAX = 400.0
"""How long a driver may take to start Java and run its first tasks, in seconds: minutes where other tests fill the cores."""


def kill_driver_when(look: Callable[[], object], what: str, program: str, *arguments: object) -> None:
    """Run a driver until there is something to see, and kill it with all the processes that it has started.

    Parameters
    ----------
    look, what
        What is waited for, and how a failed test calls it.
    program, arguments
        Text of a program in Python, and its arguments.
    """
    driver = subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], start_new_session=True)
    try:
        wait_for(lambda: look() or driver.poll() is not None, what, DRIVER_S_MAX)
        assert look(), f"the driver ended by itself before this: {what}"
    finally:
        # No process of the group is left when the driver has ended by itself.
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
