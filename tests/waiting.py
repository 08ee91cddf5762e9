"""Waiting for something to happen, with a deadline: what tests have instead of sleeping."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 60.0
LOOK_S = 0.02


def wait_for(
    look: Callable[[], T | None], what: str | Callable[[], str] = "the condition", deadline_s: float = DEADLINE_S
) -> T:
    """Look until there is something to see, and return it; fail with `what` when there is nothing in time."""
    pause, end = threading.Event(), time.monotonic() + deadline_s
    while not (found := look()):
        assert time.monotonic() < end, f"not in {deadline_s:g} s: {what if isinstance(what, str) else what()}"
        pause.wait(LOOK_S)
    return found


def stop_process(pid: int) -> None:
    """Stop a process (SIGSTOP), and wait until none of its threads runs any more: one may still answer for a moment."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    if tasks.exists():
        wait_for(lambda: all(_state(task) == "T" for task in tasks.iterdir()), f"process {pid} stands still")


def _state(task: Path) -> str:
    """Return the letter that follows the name in parentheses; a thread that has just ended runs no more than a stopped one."""
    try:
        return (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"
