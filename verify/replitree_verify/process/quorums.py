"""Quorums: how the checker performs what the quorum waiter waits for, and when inserts of others are given up.

Patience is left out: a client that waits for a quorum may lose it at any moment, and so may the leader with an insert whose
writer seems gone.  So every order of joining and giving up is explored, whatever the clocks say.  Of an insert that was given
up the entry is waited for; the running replica answers "outcome unknown" when it does not come in time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from replitree.protocol.core.layout import Replica
from replitree.protocol.program import quorum_waiter
from replitree.protocol.program.stages import AwaitDecided, QuorumTurn
from replitree_verify.world.memory import Memory, State

ANY_AGE_MS = -1
"""Every insert that is open is older."""


def decided(effect: AwaitDecided, memory: Memory) -> QuorumTurn | None:
    """Return what a writer works with whose insert has ended, or that has lost its patience; None while it waits.

    What the puller has read and not pulled the process does not know: the waiter, whose patience may be over at any moment,
    looks for it in the log.
    """
    place, is_active = memory.place, memory.state is State.ACTIVE
    is_known = place is not None and effect.index < place.pointer.index and effect.index not in place.open
    return QuorumTurn(is_known, memory.epoch if is_active else None) if is_known or not effect.is_given_up else None


# --- duties -------------------------------------------------------------------------------------------------------------------


def give_up_open(replica: Replica) -> Generator[Any, Any, None]:
    """Give up the inserts that are open, at any moment, once."""
    yield from quorum_waiter.give_up_abandoned(replica, ANY_AGE_MS)


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {"give-up": give_up_open}
"""What a model can ask for, by name."""
