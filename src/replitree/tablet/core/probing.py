"""Whether somebody still leads: a quorum is asked for its fence.

Whoever leads a later generation has fenced this one on a quorum before it was active.  So when the members that answer know of
no such fence, nobody later was active when the first of them was asked, and whatever was acknowledged before that this leader
has.  A probe proves it for reads that came before it was sent, and for no others.

That an entry was stored proves it not: what was sent before a fence may be stored after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.tablet.core.channels import Channels
from replitree.tablet.group.effects import FencedUpTo, NotKnown, Overtaken, Procedure, ReadFence
from replitree.tablet.group.ids import LOG, Generation


@dataclass(frozen=True, slots=True)
class StillLeads:
    """Nobody later was active when the probe began."""


Probed: TypeAlias = StillLeads | Overtaken | NotKnown
"""What a probe found."""


def probe(channels: Channels, generation: Generation) -> Procedure[Probed]:
    """Ask whether a generation's leader still is the last."""
    known = yield ReadFence(channels.group(LOG, generation), channels.tablet)
    assert isinstance(known, FencedUpTo | NotKnown)
    if isinstance(known, NotKnown):
        return known
    return Overtaken(known.generation) if known.generation >= generation else StillLeads()
