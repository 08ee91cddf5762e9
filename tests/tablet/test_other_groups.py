"""Channels in groups of their own: a candidate fences all of them, and references are found where they lie."""

from __future__ import annotations

import pytest

from replitree.tablet.core import recovery
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.commit import Draft, Ledger, form
from replitree.tablet.core.election import NotElected
from replitree.tablet.group.effects import Collection, Discover, Fence, Overtaken, Procedure
from replitree.tablet.group.ids import LOG, NOTHING, BlobId, Channel, Generation, GroupId
from replitree.tablet.group.member import Done, Reply, Sweep, Write
from tests.tablet.building import GROUP, TABLET, at, data_id, entry_id
from tests.tablet.cluster import EVERYBODY, Cluster

DATA = GroupId("h")
REFERENCE = data_id(1, 1)


def apart() -> Cluster:
    """Return a tablet with its log in one group and the data in another one."""
    return Cluster(Channels(TABLET, (((Generation(1), GROUP),), ((Generation(1), DATA),))))


def with_reference(ledger: Ledger) -> tuple[tuple[BlobId, bytes], ...]:
    """Return the reference, and the entry that has it."""
    return form(ledger, Draft(parallel=((REFERENCE, b"body"),)))[1]


def copies(cluster: Cluster, blob: BlobId) -> list[int]:
    """Return the members that have a blob of the data's group."""
    return [number for number, held in enumerate(cluster.held[DATA]) if held.index(blob) is not None]


def store_late(cluster: Cluster) -> list[Reply]:
    """Let a reference arrive at the data's members when its leader is deposed."""
    return [cluster.ask(number, Write(((REFERENCE, b"body"),)), DATA) for number in EVERYBODY]


def collect_late(cluster: Cluster) -> list[Reply]:
    """Let a collection arrive at the data's members when its leader is deposed."""
    sweep = Sweep(Collection(TABLET, Channel(1), (Generation(1), 1), at(1, 9)))
    return [cluster.ask(number, sweep, DATA) for number in EVERYBODY]


def test_reference_of_a_deposed_leader_is_refused_by_its_own_group() -> None:
    cluster = apart()
    cluster.lead(1)
    cluster.lead(2)
    assert store_late(cluster) == [Overtaken(Generation(1))] * 3
    assert copies(cluster, REFERENCE) == []


def test_collection_of_a_deposed_leader_is_refused_by_the_group_of_its_channel() -> None:
    cluster = apart()
    cluster.lead(1)
    cluster.lead(2)
    assert collect_late(cluster) == [Overtaken(Generation(1))] * 3
    assert all(held.barrier(TABLET, Channel(1)).soft == NOTHING for held in cluster.held[DATA])


def test_fence_in_the_group_of_the_log_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = apart()
    cluster.lead(1)

    def of_the_log(channels: Channels) -> tuple[GroupId, ...]:
        return tuple(dict.fromkeys(group for _, group in channels.histories[LOG]))

    monkeypatch.setattr(Channels, "groups", of_the_log)
    cluster.lead(2)
    assert store_late(cluster) == [Done()] * 3
    assert collect_late(cluster) == [Done()] * 3
    assert copies(cluster, REFERENCE) == []


@pytest.mark.parametrize("places", [(0,), (1, 2), EVERYBODY])
def test_references_are_found_and_restored_in_their_group(places: tuple[int, ...]) -> None:
    cluster = apart()
    ledger = cluster.lead(1)[0]
    reference, entry = with_reference(ledger)
    cluster.deliver(ledger, *reference, places)
    cluster.deliver(ledger, *entry, EVERYBODY)
    assert cluster.lead(2)[1] == ["1:1"]
    assert copies(cluster, REFERENCE) == [0, 1, 2]
    assert cluster.copies(REFERENCE) == []


def test_entry_whose_reference_lies_in_another_group_only_is_declined() -> None:
    cluster = apart()
    ledger = cluster.lead(1)[0]
    reference, entry = with_reference(ledger)
    cluster.deliver(ledger, *entry, EVERYBODY)
    for number in EVERYBODY:
        cluster.ask(number, Write((reference,)))
    assert cluster.lead(2)[1] == []


def test_candidate_that_can_not_fence_the_other_group_does_not_lead() -> None:
    cluster = apart()
    cluster.lead(1)
    for number in (0, 1):
        cluster.held[DATA][number] = type(cluster.held[DATA][number])(fences=((TABLET, Fence(Generation(5), "other")),))
    assert cluster.stand(2) == NotElected(Generation(2), Overtaken(Generation(5)))


def moved() -> Cluster:
    """Return a tablet whose log moved to another group at generation 2, with an entry in the first one."""
    cluster = Cluster(Channels(TABLET, (((Generation(1), GROUP), (Generation(2), DATA)),)))
    cluster.commit(cluster.lead(1)[0])
    return cluster


def test_log_is_looked_for_in_older_groups_when_the_newest_has_none() -> None:
    assert moved().lead(2)[1] == ["1:1"]


def test_nothing_in_the_newest_group_that_is_taken_for_nothing_at_all_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_the_newest(channels: Channels, fence: Fence | None) -> Procedure[object]:
        newest = channels.intervals()[-1]
        yield Discover(newest.group, entry_id(newest.first, 0), fence)
        return None

    cluster = moved()
    monkeypatch.setattr(recovery, "find_latest", in_the_newest)
    assert cluster.lead(2)[1] == []
