"""Whether this leader still leads: it asks a quorum for its fence.

A leader of a later generation has fenced this one on a quorum before it became active.  So when a quorum of members answers
that it has no such fence, no later leader was active when the first of them was asked, and this leader has every write that was
acknowledged before that.  A probe proves this for reads that began before the probe was sent, and for no others.

A stored entry is no proof: an entry that was sent before a fence may be stored after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.tablet.core.channels import Channels
from replitree.tablet.group.effects import FencedUpTo, NotKnown, Overtaken, Procedure, ReadFence
from replitree.tablet.group.ids import LOG, Generation


@dataclass(frozen=True, slots=True)
class StillLeads:
    """No later leader was active when the probe began."""


Probed: TypeAlias = StillLeads | Overtaken | NotKnown
"""The outcomes of a probe."""


def probe(channels: Channels, generation: Generation) -> Procedure[Probed]:
    """Ask whether a generation's leader still is the last."""
    # The log's group alone: a successor has fenced every group before it leads.
    known = yield ReadFence(channels.group(LOG, generation), channels.tablet)
    assert isinstance(known, FencedUpTo | NotKnown)
    if isinstance(known, NotKnown):
        return known
    return Overtaken(known.generation) if known.generation >= generation else StillLeads()
