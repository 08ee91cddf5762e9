"""Runs of quorum inserts and of reads map onto the packed model of them; those of mutants do not."""

from __future__ import annotations

import pytest

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Create, EntryId, StagedPart, StagingId
from replitree.protocol.core.entries import DropEntry, Entry, GetEntry, SettleEntry, encode_entry
from replitree.protocol.core.layout import TablePlace
from replitree_published.bridge.mapping import NoState
from replitree_published.bridge.quorum import Quorums, quorums_of
from replitree_published.bridge.report import bridge_model

ENDS = {"Acknowledge", "Settle", "Fail", "Refuse", "Execute", "Drop"}
TABLE = TablePlace("/t")

TAKEN = {
    "quorum_alone": ({"Execute", "Settle"}, 1),
    "quorum_stale": (ENDS, 9),
    "quorum_recover": (ENDS, 11),
    "quorum_mutate": (ENDS, 9),
    "quorum_commit_doubt": ({"Insert", "Fail", "Refuse"}, 3),
    "read_crash": ({"Execute", "Read"}, 2),
    "read_deposed": ({"Insert", "Acknowledge", "Execute", "Read"}, 9),
    "read_eventual": ({"Insert", "Acknowledge", "Execute"}, 11),
}
"""The actions of the packed model that the steps of a model are, and how many different steps there are."""

TAKEN_SLOWLY = {
    "quorum_two": {*ENDS, "Insert"},
    "quorum_three": ENDS,
    "quorum_all": {*ENDS, "Count"},
    "quorum_crash": ENDS,
    "quorum_doubt": ENDS,
    "quorum_expiry": ENDS,
    "quorum_retry": {*ENDS, "Insert"},
    "quorum_merge": ENDS,
    "quorum_all_alone": {"Execute", "Count", "Settle"},
    "read_quorum": {*ENDS, "Read"},
    "read_linearizable": {"Insert", "Acknowledge", "Execute", "Read"},
    "read_session": {"Insert", "Acknowledge", "Read"},
    "read_sequential": {"Insert", "Acknowledge", "Execute", "Read"},
    "read_merge": {"Execute", "Read"},
    "insert_one_token": {"Insert", "Acknowledge"},
}

LARGE = (
    "quorum_three",
    "quorum_all",
    "quorum_crash",
    "quorum_doubt",
    "quorum_expiry",
    "quorum_retry",
    "insert_one_token",
)

MUTANTS = {
    ("quorum_two", "acknowledged-from-absent-node"): (18, "failed as 0 acked"),
    ("quorum_two", "settle-without-delete"): (10, "settled as 0"),
    ("quorum_two", "fail-without-delete"): (9, "failed as 0"),
    ("quorum_two", "counted-at-pull"): (8, "r2 has {}, counts for {0}"),
    ("quorum_two", "impatient-means-failed"): (5, "insert 0 of 2 refused"),
    ("quorum_all", "counted-unversioned"): (6, "insert 0 of 3"),
    ("quorum_retry", "retry-answers-before-quorum"): (7, "insert 0 of 2 acked"),
    ("read_quorum", "read-shows-open"): (23, "a read that asks for {} shows {0}"),
    ("read_linearizable", "read-without-sync"): (10, "a read that asks for {0} shows {}"),
    ("read_linearizable", "read-at-own-pointer"): (11, "a read that asks for {0} shows {}"),
    ("read_linearizable", "read-once-pulled"): (15, "a read that asks for {0} shows {}"),
    ("read_deposed", "read-only-syncs"): (11, "a read that asks for {0} shows {}"),
}
"""Steps of the shortest way to one that the packed model does not have, and what that leads to.

A vacuous wait, a settle before the number, a stale read.
"""


@pytest.mark.parametrize("name", TAKEN)
def test_every_step_of_a_model_has_a_way(name: str) -> None:
    found = bridge_model(name, onto="quorum")
    assert (found.violations, found.undecided) == ([], "")
    assert (set(found.taken), found.steps) == TAKEN[name]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in LARGE else pytest.mark.slow) for name in TAKEN_SLOWLY],
)
def test_every_step_of_a_larger_model_has_a_way(name: str) -> None:
    found = bridge_model(name, onto="quorum")
    assert (found.violations, found.undecided) == ([], "")
    assert set(found.taken) == TAKEN_SLOWLY[name]


@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_a_mutant_takes_a_step_that_has_no_way(name: str, mutant: str) -> None:
    (violation,) = bridge_model(name, mutant, "quorum").violations
    assert "mended/quorum-queues has no way from [" in violation["what"]
    steps, leads_to = MUTANTS[name, mutant]
    assert violation["steps"] == steps
    assert leads_to in violation["what"].partition("] to [")[2]


# --- outlines ----------------------------------------------------------------------------------------------------------------


def tree_of(*entries: Entry) -> Tree:
    tree = Tree.of({layout.log(TABLE): b'{"first":0,"format":1}'})
    creates = [Create(layout.log_create(TABLE), encode_entry(entry), sequential=True) for entry in entries]
    return tree.commit(creates, session=1)[0]


def get(insert: str, quorum: int = 0) -> GetEntry:
    parts = (StagedPart("all", 1, 1, "all:1"),)
    return GetEntry("r1", StagingId(insert), parts, (), quorum=quorum, format=3 if quorum else 1)


def test_an_insert_that_ends_twice_stands_for_no_state() -> None:
    settle = SettleEntry("r2", StagingId("s0"), 0, ("r1", "r2"))
    assert len(quorums_of(tree_of(get("s0", 2), settle), TABLE, ()).inserts) == 1
    with pytest.raises(NoState, match="the insert at 0 ends again, at 2"):
        quorums_of(tree_of(get("s0", 2), settle, settle), TABLE, ())


def test_ends_have_their_place_in_the_line() -> None:
    settle = SettleEntry("r2", StagingId("s0"), 0, ("r1", "r2"))
    found = quorums_of(tree_of(get("s0", 2), get("s1"), settle), TABLE, ())
    assert isinstance(found, Quorums)
    assert [(each.index, each.needed, each.is_settled, each.rank) for each in found.inserts] == [
        (0, 2, True, 1),
        (1, 1, True, 0),
    ]


def test_what_can_not_be_followed_is_refused() -> None:
    with pytest.raises(BadInput, match="has room for 3"):
        quorums_of(tree_of(*(get(f"s{number}") for number in range(4))), TABLE, ())
    with pytest.raises(BadInput, match="dropped or lost"):
        quorums_of(tree_of(get("s0"), DropEntry("r1", EntryId("d"), "all")), TABLE, ())
    for model in ("quorum_drop", "quorum_lost"):
        with pytest.raises(BadInput, match="nothing is dropped or declared lost"):
            bridge_model(model, onto="quorum")
