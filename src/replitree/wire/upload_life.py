"""When an upload is given up: by the process that writes it, and by the time since it was heard of.

A client names its process when it opens an upload.  A *sign of life* is the opening, a file that is written or sent, and a
renewal.

=======================================  ============================================================================
the writer                               the upload is removed after
=======================================  ============================================================================
a process that is provably dead          `SILENCE_S` without a sign of life: what it has sent may be on its way
one of another machine that renews       `SILENCE_S` without a sign of life
one that lives, or is not known          `LIFETIME_S` without a sign of life
=======================================  ============================================================================

Of a Spark job that writes on this machine the writer is the driver: only it can commit, so a job that waits for hours before
its first task writes keeps its upload without a word, as long as the driver lives.

An upload that is being committed is never removed (`replitree.replica.uploads.uploads`).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from replitree.protocol.core.effects import Owner
from replitree.wire.identity import Identity, probe_owner

LIFE_SUFFIX = "_life"
"""Ends the name of the file beside an upload's folder that names its writer."""

SCRATCH_SUFFIX = "_scratch"
"""Ends the name of the folder beside an upload's folder in which each attempt of a task has a folder of its own."""

SILENCE_S = 600.0
# A job that lives may work for hours between two files; after a day it counts as gone, or the disk would fill.
LIFETIME_S = 24 * 3600.0


class Writer(msgspec.Struct, frozen=True):
    """The process that will commit an upload; empty when the client did not name one.

    Attributes
    ----------
    machine
        Boot id and process namespace.
    pid, started
        As in `replitree.wire.identity.Identity`.
    renews
        Whether it has renewed the upload, and so can be expected to go on.
    """

    machine: str = ""
    pid: int = 0
    started: int = 0
    renews: bool = False

    def probe(self) -> Owner:
        """Say whether the process is still there."""
        if not self.machine or self.pid <= 0:
            return Owner.UNCLEAR
        return probe_owner(Identity("", "", self.machine, self.pid, self.started).encode())


@dataclass(frozen=True, slots=True)
class UploadSilence:
    """The silence of an upload: seconds since the last sign of life, whether its writer lives, and whether it renews."""

    seconds: float
    owner: Owner
    renews: bool


def is_given_up(silence: UploadSilence) -> bool:
    """Return whether no process will commit an upload any more: see the module's table.

    Examples
    --------
    >>> is_given_up(UploadSilence(601.0, Owner.DEAD, False)), is_given_up(UploadSilence(601.0, Owner.ALIVE, True))
    (True, False)
    """
    # Also of a dead process not at once: what it has sent may be on its way.
    soon = silence.owner is Owner.DEAD or (silence.owner is Owner.UNCLEAR and silence.renews)
    return silence.seconds > (SILENCE_S if soon else LIFETIME_S)
