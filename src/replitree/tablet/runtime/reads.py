"""Probes that are shared: one answers every read that came before it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from replitree.tablet.effects import InDoubt, Overtaken
from replitree.tablet.probing import Leads

Probed: TypeAlias = Leads | Overtaken | InDoubt


class SharedProbe:
    """Lets any number of threads wait for a probe that begins after they came.

    Parameters
    ----------
    send
        Sends one and returns what it found.
    """

    def __init__(self, send: Callable[[], Probed]) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._begun = self._ended = 0
        self._is_sending = False
        self._found: Probed = InDoubt("nobody was asked")

    def wait(self) -> Probed:
        """Return what a probe found that was sent after this call."""
        with self._changed:
            own = self._begun + 1
            while self._ended < own:
                if self._is_sending:
                    self._changed.wait()
                else:
                    self._begun, self._is_sending = self._begun + 1, True
                    self._run()
            return self._found

    def _run(self) -> None:
        """Send one, without the lock meanwhile."""
        self._changed.release()
        found: Probed = InDoubt("the probe failed")
        try:
            found = self._send()
        finally:
            self._changed.acquire()
            self._found, self._ended, self._is_sending = found, self._begun, False
            self._changed.notify_all()
