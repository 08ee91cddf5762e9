"""A probe tells whether somebody later may be active; who can't be asked proves nothing."""

from __future__ import annotations

from replitree.tablet.core.probing import StillLeads, probe
from replitree.tablet.group.effects import NotKnown, Overtaken
from replitree.tablet.group.ids import Generation
from tests.tablet.cluster import Cluster


def test_last_leader_leads() -> None:
    cluster = Cluster()
    cluster.lead()
    assert cluster.run(probe(cluster.channels, Generation(1))) == StillLeads()


def test_leader_that_was_fenced_on_a_quorum_does_not() -> None:
    cluster = Cluster()
    cluster.lead()
    cluster.lead(reachable=(0, 1))
    cluster.reachable = (1, 2)
    assert cluster.run(probe(cluster.channels, Generation(1))) == Overtaken(Generation(1))


def test_nobody_knows_when_too_few_answer() -> None:
    cluster = Cluster()
    cluster.lead()
    cluster.reachable = (2,)
    assert isinstance(cluster.run(probe(cluster.channels, Generation(1))), NotKnown)
