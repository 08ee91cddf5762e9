"""What a leader sends to collect, to which groups, and what it makes of the answers."""

from __future__ import annotations

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.collecting import Collecting, begun, next_commands, said, send, sent
from replitree.tablet.core.commit import Draft, Ledger
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.ids import LOG, NOTHING, Channel, Generation, GenStep, GroupId, Step
from tests.tablet.building import GROUP, TABLET, at, data_id
from tests.tablet.cluster import EVERYBODY, Cluster

DATA = Channel(1)
LATER = GroupId("h")


def moved() -> Cluster:
    """Return a tablet whose data has moved to another group at generation 1."""
    return Cluster(Channels(TABLET, (((Generation(1), GROUP),), ((Generation(1), GROUP), (Generation(2), LATER)))))


def collected(cluster: Cluster, known: Collecting, ledger: Ledger) -> Collecting:
    """Send what may be collected."""
    known, commands = next_commands(known, ledger, (DATA,))
    return sent(known, commands, cluster.run(send(cluster.channels, known.taken_everywhere, commands)))


def barriers(cluster: Cluster) -> list[GenStep]:
    """Return up to where the data was collected on the first member of each group."""
    return [held[0].barrier(TABLET, DATA).soft for held in cluster.held.values()]


def with_blob(known: Collecting, step: int) -> Collecting:
    """Take that an entry created a blob."""
    return said(known, at(2, step), LogEntry(NOTHING, Step(0), gc_discovered=(data_id(2, step),)))


def test_commands_go_to_every_group_until_all_of_them_have_taken_one() -> None:
    cluster = moved()
    cluster.lead()
    ledger = cluster.lead()[0]
    known = with_blob(begun(TABLET, ledger.generation, ()), 1)
    cluster.reachable = (0, 1)
    known = collected(cluster, known, ledger)
    assert (known.taken_everywhere, barriers(cluster)) == (frozenset(), [at(2, 0), at(2, 0)])
    cluster.reachable = EVERYBODY
    known = collected(cluster, known, ledger)
    assert known.taken_everywhere == {(DATA, False), (DATA, True)}
    for _ in range(2):
        ledger = cluster.commit(ledger, Draft(is_total=True))
    known = collected(cluster, known, ledger)
    assert barriers(cluster) == [at(2, 0), at(2, 1)]
    assert known.taken_everywhere == {(LOG, False), (DATA, False), (DATA, True)}


def test_what_not_every_member_has_taken_is_said_again() -> None:
    cluster = Cluster()
    cluster.lead()
    ledger = cluster.lead()[0]
    known = begun(TABLET, ledger.generation, ())
    cluster.reachable = (0, 1)
    known = collected(cluster, known, ledger)
    assert not known.garbage.is_told
    cluster.reachable = EVERYBODY
    known = collected(cluster, known, ledger)
    assert known.garbage.is_told
    assert next_commands(known, ledger, (DATA,))[1] == ()
    assert [held.barrier(TABLET, DATA).soft for held in cluster.held[GROUP]] == [at(2, 0)] * 3


def test_leader_that_was_overtaken_sends_nothing_more() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    known, commands = next_commands(begun(TABLET, ledger.generation, ()), ledger, (DATA,))
    cluster.lead()
    before, asked = cluster.held[GROUP].copy(), cluster.asked
    result = cluster.run(send(cluster.channels, known.taken_everywhere, commands))
    assert (result.overtaken, result.taken) == (Overtaken(Generation(1)), ())
    assert (cluster.held[GROUP], cluster.asked) == (before, asked + 1)
    assert not sent(known, commands, result).garbage.is_told
