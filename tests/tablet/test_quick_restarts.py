"""Number 34 of `docs/tablet-failures.md`: leaders that follow each other quickly, and candidates that die at any request."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from replitree.tablet.core import election
from replitree.tablet.core.commit import Draft, open_ledger
from replitree.tablet.core.election import NotElected, Won
from replitree.tablet.core.entries import ZeroEntry, decode
from replitree.tablet.core.recovery import Accepted, Latest, chain_of, log_of
from replitree.tablet.core.zero import zero_of
from replitree.tablet.group.ids import BlobId, Generation, GenStep, Step
from replitree_verify.patches.patch import find_patch
from tests.tablet.building import GROUP, at
from tests.tablet.cluster import EVERYBODY, Cluster, steps

LAST = 51
REQUESTS_MAX = 20
"""A candidate that lives on needs at most so many requests, here."""


@dataclass
class Story:
    """What restarts have found.

    Attributes
    ----------
    accepted
        What each candidate that lived on accepted, or why it was not elected.
    chains
        How many generations a recovery would have gone through, after each restart.
    zeros
        How many zero entries there were, after each restart.
    """

    accepted: list[list[str] | NotElected]
    chains: list[int]
    zeros: list[int]


def stored(cluster: Cluster) -> dict[BlobId, bytes]:
    """Return every blob that a member has."""
    return {
        blob: data
        for held in cluster.held[GROUP]
        for blob, data in zip(held.names, held.data, strict=True)
        if data is not None
    }


def chain_length(cluster: Cluster) -> int:
    """Return through how many generations a recovery goes that finds every entry."""
    blobs = stored(cluster)
    newest = max(blobs)
    log = log_of(Latest(newest, decode(newest, blobs[newest])), sorted(blobs.items()))
    chain = chain_of(log)  # type: ignore[arg-type]
    assert isinstance(chain, tuple)
    return len(chain)


def some_members(chance: random.Random) -> list[int]:
    """Draw who answers, and in which order."""
    return chance.sample(EVERYBODY, chance.choice((2, 3)))


def places_of(result: Won) -> list[str]:
    """Return what a leader accepted."""
    return [str(place) for place, _ in result.recovered.accepted]


def restarts(cluster: Cluster, chance: random.Random) -> Story:
    """Let a leader leave a tail, of which some is stored in part; then restart 50 times, most of them half-way."""
    story, ledger = Story([], [], []), cluster.lead(1)[0]
    for _ in range(5):
        places = chance.choice([(0,), (1,), (2,), EVERYBODY])
        ledger = cluster.commit(ledger, Draft(b"y", depends_on=steps()), at=places)
    for generation in range(2, LAST + 1):
        if chance.random() < 0.7:
            cluster.die(generation, some_members(chance), chance.randrange(REQUESTS_MAX))
        else:
            result = cluster.stand(generation, some_members(chance))
            story.accepted.append(result if isinstance(result, NotElected) else places_of(result))
        story.chains.append(chain_length(cluster))
        story.zeros.append(sum(not blob.step for blob in stored(cluster)))
    return story


@pytest.mark.parametrize("seed", range(10))
def test_34_fifty_restarts_of_which_most_end_half_way_agree_and_no_chain_grows(seed: int) -> None:
    cluster = Cluster()
    story = restarts(cluster, random.Random(seed))
    assert len(story.accepted) > 5
    assert not isinstance(story.accepted[0], NotElected)
    assert all(each == story.accepted[0] for each in story.accepted)
    assert max(story.chains) <= 2
    assert story.zeros == sorted(story.zeros)
    assert story.zeros[-1] > len(story.accepted)
    assert {blob.generation for blob in stored(cluster) if blob.step} <= {1}


def test_34_candidates_died_at_every_point() -> None:
    cluster, chance = Cluster(), random.Random(0)
    cluster.commit(cluster.lead(1)[0], at=(0,))
    asked = list[int]()
    for generation in range(2, LAST + 1):
        cluster.asked = 0
        cluster.die(generation, some_members(chance), generation % REQUESTS_MAX)
        asked.append(cluster.asked)
    assert set(asked) >= {1, 2, 3, 4}


def test_34_chain_that_grows_with_every_restart_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def newest_generation(accepted: Accepted) -> ZeroEntry:
        zeros = [blob.generation for blob in stored(cluster) if not blob.step]
        return ZeroEntry(zero_of(accepted).snapshot, GenStep(max(zeros, default=Generation(0)), Step(0)))

    monkeypatch.setattr(election, "zero_of", newest_generation)
    assert max(restarts(cluster, random.Random(0)).chains) > 2


def test_34_what_was_declined_and_is_looked_at_again_is_noticed() -> None:
    with find_patch("tablets", "declined-looked-at-again").mutated():
        story = restarts(Cluster(), random.Random(6))
    assert any(each != story.accepted[0] for each in story.accepted)


@pytest.mark.parametrize("seed", range(20))
def test_34_quick_restarts_agree_whatever_members_answer(seed: int) -> None:
    """I4, I16: what counts of the generations before a leader never changes again."""
    cluster, chance = Cluster(), random.Random(seed)
    known: dict[GenStep, bool] = {}
    leader = 0
    for generation in range(1, 40):
        if chance.random() < 0.3:
            cluster.die(generation, some_members(chance), chance.randrange(REQUESTS_MAX))
            continue
        result = cluster.stand(generation, some_members(chance))
        assert isinstance(result, Won), result
        accepted = {place for place, _ in result.recovered.accepted}
        assert all((place in accepted) == counts for place, counts in known.items() if place.generation < leader)
        leader, ledger = generation, open_ledger(cluster.channels.tablet, result)
        known = {place: place in accepted for place in (*known, *accepted)}
        for step in range(1, chance.randrange(4) + 1):
            known.setdefault(at(generation, step), False)
            places = chance.choice([(0,), (1,), (2,), EVERYBODY, ()])
            ledger = cluster.commit(ledger, Draft(b"y", depends_on=steps()), at=places)
