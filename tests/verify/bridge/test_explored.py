"""Runs are followed with ample steps too: coordination changes as without them, and a mutant's step has no way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replitree.protocol.core.effects import Commit
from replitree_published.bridge.cleaning import CLEANING
from replitree_published.bridge.explored import Followed, follow_model
from replitree_published.bridge.mapping import Mapping
from replitree_published.bridge.quorum import QUORUM
from replitree_published.bridge.replication import REPLICATION
from replitree_verify.effects.table import TOUCHES
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS

MAPPINGS = {mapping.name: mapping for mapping in (CLEANING, REPLICATION, QUORUM)}

ALIKE = (
    ("quorum_stale", "replication"),
    ("quorum_mutate", "replication"),
    ("quorum_recover", "replication"),
    ("read_eventual", "replication"),
    ("read_drop", "replication"),
    ("merge_one", "replication"),
    ("recover_get", "cleaning"),
)
SLOW = ("read_drop", "quorum_mutate", "merge_one")

TOLD_EARLIER = ("quorum_stale", "quorum_mutate", "quorum_alone", "read_crash", "read_deposed", "read_eventual")
"""Followed with what clients are told: that is earlier with ample steps, so some steps are others."""

CAUGHT = {
    ("quorum_two", "acknowledged-from-absent-node"): "quorum",
    ("quorum_two", "settle-without-delete"): "quorum",
    ("quorum_two", "counted-at-pull"): "quorum",
    ("read_deposed", "read-only-syncs"): "quorum",
    ("merge_one", "covers-without-level"): "replication",
    ("recover_queue", "own-queue-kept"): "replication",
}


def follow(name: str, mapping: Mapping, *, ample: bool, mutant: str | None = None) -> Followed:
    stages = None if mutant is None else MUTANTS[mutant].stages
    return follow_model(replace(MODELS[name], ample=ample), mapping, stages)


@pytest.mark.parametrize(
    ("name", "onto"), [pytest.param(*each, marks=pytest.mark.slow if each[0] in SLOW else ()) for each in ALIKE]
)
def test_the_same_steps_are_followed_with_ample_steps(name: str, onto: str) -> None:
    ample, joined = (follow(name, MAPPINGS[onto], ample=is_ample) for is_ample in (True, False))
    assert ample.wrong is joined.wrong is None
    assert ample.states < joined.states
    assert (ample.follower.steps, ample.follower.taken) == (joined.follower.steps, joined.follower.taken)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TOLD_EARLIER]
)
def test_the_same_actions_are_taken_where_clients_are_told_earlier(name: str) -> None:
    ample, joined = (follow(name, QUORUM, ample=is_ample) for is_ample in (True, False))
    assert ample.wrong is joined.wrong is None
    assert {*ample.follower.taken} == {*joined.follower.taken}


@pytest.mark.parametrize(("name", "mutant"), CAUGHT)
def test_a_mutant_takes_a_step_that_has_no_way(name: str, mutant: str) -> None:
    found = follow(name, MAPPINGS[CAUGHT[name, mutant]], ample=True, mutant=mutant)
    assert found.wrong is not None
    assert found.wrong.startswith("BRIDGE: ")
    assert found.trace


def test_a_walk_that_overlooks_what_others_write_follows_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail."""
    full = follow("quorum_stale", REPLICATION, ample=True).follower.steps
    monkeypatch.setitem(TOUCHES, Commit, TOUCHES[Commit]._replace(leaves=lambda *_: 0))
    assert follow("quorum_stale", REPLICATION, ample=True).follower.steps < full
