"""The page of `replitree up`: its process is started when a browser first asks for it.

Guarantees: until then it costs a socket and a thread that waits; a connection that is made meanwhile is answered as soon as the
process has started.  The key reaches the process through a pipe, and is in no argument.  A process that ends by itself is
started again at the next request, `STARTS_MAX` times, with a new key each time: the line with the new address says so.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from replitree.coordination.supervise import Supervised
from replitree.ui.door import new_key
from replitree.ui.process import address_of, listen

STARTS_MAX = 5
LOOK_S = 1.0
"""How often the process is looked at, in seconds."""

STOP_S_MAX = 5.0
"""How long the process may take to end, in seconds; it has nothing to lose."""

LOG_FILE = "page.log"


class PageOnDemand:
    """The address of the page, and its process once a browser asks.

    Parameters
    ----------
    folder
        The cluster's, where the log of the process goes, too.
    say
        Takes a line for people.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._listening = listen(0)
        self._key = new_key()
        self._end, self._ending = os.pipe()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replitree-page", daemon=True)

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return address_of(self._listening, self._key)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        os.write(self._ending, b"x")
        self._thread.join()
        self._listening.close()
        for pipe in (self._end, self._ending):
            os.close(pipe)

    def _run(self) -> None:
        for start in range(STARTS_MAX):
            if start:
                self._key = new_key()
                self._say(
                    f"the page's process ended, its log is {self._folder / LOG_FILE}; the page is now {self.address}"
                )
            waiting, _, _ = select.select([self._listening.fileno(), self._end], [], [])
            if self._end in waiting:
                return
            page = self._start()
            while page.poll() is None and not self._stop.wait(LOOK_S):
                pass
            if self._stop.is_set():
                page.terminate()
                if page.wait(STOP_S_MAX) is None:
                    page.kill()
                    page.wait(STOP_S_MAX)
                return
        self._say(f"the page's process ended {STARTS_MAX} times and is left alone; `replitree ui` shows the page, too")

    def _start(self) -> Supervised:
        ours, theirs = os.pipe()
        os.write(theirs, self._key.encode())
        os.close(theirs)
        command = [sys.executable, "-m", "replitree.ui", str(self._listening.fileno()), str(ours), str(self._folder)]
        try:
            return Supervised(command, self._folder / LOG_FILE, keep=(self._listening.fileno(), ours))
        finally:
            os.close(ours)
