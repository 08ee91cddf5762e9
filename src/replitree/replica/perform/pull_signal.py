"""What other threads ask of the puller of a table replica."""

from __future__ import annotations

import threading


class PullSignal:
    """Wakes the puller.  Any thread may use it.

    Attributes
    ----------
    awake, hurried, reload_asked
        For the puller, which clears them.
    """

    def __init__(self) -> None:
        self.awake = threading.Event()
        self.hurried = threading.Event()
        self.reload_asked = threading.Event()

    def wake(self) -> None:
        """Look at the log now."""
        self.awake.set()

    def hurry(self) -> None:
        """Pull at once, without gathering further entries: a request waits for one."""
        self.hurried.set()
        self.awake.set()

    def reload(self) -> None:
        """Read pointer and queue again before the next pull: another thread found them different."""
        self.reload_asked.set()
        self.awake.set()


__all__ = ["PullSignal"]
