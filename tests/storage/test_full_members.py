"""Number 40 of `docs/tablet-failures.md`: members are full while a candidate stands; it ends, and a later one succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from replitree.tablet.core.channels import in_one_group
from replitree.tablet.core.commit import Draft, form, open_ledger
from replitree.tablet.core.election import Candidate, NotElected, Won, stand
from replitree.tablet.core.recovery import MissingEntries
from replitree.tablet.group.effects import Discover, NotKnown, Overtaken, Procedure, Put, RaiseFence, Range, Stored
from replitree.tablet.group.member import Write
from replitree.tablet.members.group import BlobGroups
from replitree_verify.patches.patch import find_patch
from tests.storage.blob_providers import GROUP, TABLET, Provider, do, open_group

WHEN: dict[str, tuple[type, ...]] = {"fence": (RaiseFence,), "restore": (Discover, Range), "zero entry": (Put,)}
CHANNELS = in_one_group(TABLET, GROUP)


@pytest.fixture
def groups(provider: Provider) -> Iterator[BlobGroups]:
    opened = open_group(provider)
    yield opened
    opened.close()


def lead(groups: BlobGroups, issuer: str) -> Won:
    """Let a candidate stand, with room for all that it writes."""
    result = groups.run(stand(Candidate(CHANNELS, issuer)))
    assert isinstance(result, Won), result
    return result


def accepted(result: Won) -> list[str]:
    """Return the places that a leader accepted."""
    return [str(place) for place, _ in result.recovered.accepted]


def stand_while_full(groups: BlobGroups, provider: Provider, full: tuple[int, ...], when: str) -> Won | NotElected:
    """Let a candidate stand while members are full, but only while it does one thing."""

    def watched() -> Procedure[Won | NotElected]:
        standing, outcome = stand(Candidate(CHANNELS, "c2")), None
        while True:
            try:
                effect = standing.send(outcome)
            except StopIteration as stop:
                result: Won | NotElected = stop.value
                return result
            numbers = full if isinstance(effect, WHEN[when]) else ()
            for number in numbers:
                provider.fill(number)
            outcome = yield effect
            for number in numbers:
                provider.make_room(number)

    return groups.run(watched())


def log_of_two(groups: BlobGroups, provider: Provider) -> Any:
    """Commit an entry, and bring another one to the first member only; return what a deposed leader would store."""
    ledger = open_ledger(TABLET, lead(groups, "c1"))
    ledger, [first] = form(ledger, Draft(b"x"))
    assert do(groups, Put(GROUP, *first)) == Stored()
    ledger, [second] = form(ledger, Draft(b"y"))
    provider.member(0).answer(Write((second,)))
    return form(ledger, Draft(b"z"))[1][0]


@pytest.mark.parametrize("when", sorted(WHEN))
def test_40_one_full_member_is_survived(groups: BlobGroups, provider: Provider, when: str) -> None:
    log_of_two(groups, provider)
    result = stand_while_full(groups, provider, (1,), when)
    assert isinstance(result, Won), result
    assert accepted(result) == accepted(lead(groups, "c3")) == ["1:1", "1:2"]


@pytest.mark.parametrize("when", ["restore", "zero entry"])
def test_40_two_full_members_end_the_candidate_and_one_with_room_succeeds(
    groups: BlobGroups, provider: Provider, when: str
) -> None:
    late = log_of_two(groups, provider)
    result = stand_while_full(groups, provider, (1, 2), when)
    assert isinstance(result, NotElected)
    assert isinstance(result.reason, NotKnown)
    assert isinstance(do(groups, Put(GROUP, *late)), Overtaken), "the fence remains"
    again = lead(groups, "c3")
    assert again.generation == 3
    assert accepted(again)[:2] == ["1:1", "1:2"]
    assert accepted(again)[2:] in ([], ["1:3"]), "left on a store, or on a member that was full before it had the fence"
    assert accepted(lead(groups, "c4")) == accepted(again)


@pytest.mark.parametrize(
    ("mutant", "when"), [("zero-entry-not-awaited", "zero entry"), ("tail-not-restored", "restore")]
)
@pytest.mark.parametrize("provider", ["memory"], indirect=True)
def test_40_candidate_that_leads_although_members_are_full_is_noticed(
    groups: BlobGroups, provider: Provider, mutant: str, when: str
) -> None:
    log_of_two(groups, provider)
    with find_patch("tablets", mutant).mutated():
        assert isinstance(stand_while_full(groups, provider, (1, 2), when), Won)
    provider.take_away(0)
    again = groups.run(stand(Candidate(CHANNELS, "c3")))
    assert isinstance(again, NotElected) == (mutant == "tail-not-restored")
    assert not isinstance(again, NotElected) or isinstance(again.reason, MissingEntries)
