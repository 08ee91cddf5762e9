"""Runs of every model map onto the packed model of replication; those of mutants do not."""

from __future__ import annotations

import msgspec
import pytest

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import DropEntry, Entry, GetEntry, LostEntry, MergeEntry, MutateEntry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import DROPPED_HOST, LOST, NOT_LOST
from replitree.protocol.state.registration import broken_value
from replitree_published.bridge.explored import follow_model
from replitree_published.bridge.mapping import Follower, NoState
from replitree_published.bridge.pieces import ABSENT, Holding
from replitree_published.bridge.replication import RECORDS, REPLICATION, Shared, shared_of
from replitree_published.bridge.report import bridge_model, why_not_followed
from replitree_published.packed.models.replication_log import DROP, LOSE, PART
from replitree_verify.models import MODELS
from replitree_verify.mutants.mutant import stages_with
from replitree_verify.patches.patch import Hunk, Patch
from replitree_verify.pins import PINS, is_nightly

DONE = {"Bring", "Execute"}

TAKEN = {
    "pull_gap": ({*DONE, "Insert"}, 9),
    "merge_one": ({*DONE, "Mutate"}, 5),
    "mutate_then_merge": (DONE, 4),
    "drop_range": ({*DONE, "Drop", "Merge", "LetGo"}, 10),
    "detach_insert": ({"Execute", "LetGo"}, 12),
    "quorum_mutate": ({*DONE, "Drop", "LetGo"}, 15),
    "recover_get": ({*DONE, "Recover"}, 30),
    "recover_queue": ({"Execute", "Recover", "LetGo"}, 2),
    "drop_each_other": ({"Mark", "LetGo"}, 9),
    "lost_everywhere": ({"Break", "Mend", "Lose", "Execute"}, 6),
    "lost_partitions": ({"Mend", "Lose", "Execute"}, 2),
    "lost_doubt": ({"Mend", "Lose", "Execute"}, 2),
    "roll_merge": ({*DONE, "Merge"}, 5),
}
"""The actions of the packed model that the steps of a model are, and how many different steps there are."""

MUTANTS = {
    ("merge_one", "covers-without-level"): (8, "r1 has {0}, executed {0,1}; "),
    ("mutate_merging", "mutation-misses-merging"): (7, "r1 has {0,1}, executed {0,1,3}"),
    ("mutate_then_merge", "merge-keeps-lowest-mutation"): (9, "r1 has all_0_2_1, which no entry of the log brings"),
    ("quorum_merge", "merge-of-open-parts"): (11, "r1 has all_0_1_1, which no entry of the log brings"),
    ("recover_queue", "own-queue-kept"): (25, "r2 has {}, executed {0,2,3}"),
    ("recover_gone", "own-parts-kept"): (22, "r2 has {0}, executed {0,1,2,3}"),
    ("recover_get", "parts-before-queue"): (30, "r2 has {}, executed {0,1,2}"),
    ("recover_crash", "good-too-early"): (17, "r2 has {0}, executed {0,1,2,3}"),
    ("join_clean", "new-replica-is-good"): (18, "r2 has {}, executed {0,1,2}"),
    ("lost_writer_away", "lost-though-to-come"): (24, "log insert, 0 is lost; r1 has {}, executed {}; r2 has {0}"),
    ("lost_fetched", "lost-though-whole"): (19, "0 is lost; r1 has {0,1}, executed {0,1}; r2 has {}"),
    ("lost_holder_returns", "lost-though-returned"): (35, "0 is lost; r1 has {0}, of that {0} broken, executed {0}"),
    ("lost_recovering", "lost-while-recovering"): (41, "r2 lost, has {0}, executed {}"),
    ("lost_result", "broken-result-left"): (47, "r1 has {2}, of that {2} broken, executed {0,1,2,3}"),
}
"""Steps of the shortest way to one that the packed model does not have, and what that leads to."""

MUTANTS_SLOWLY = {
    ("merge_merge", "merge-of-what-is-left"): (24, "r1 has all_1_2_1, which no entry of the log brings"),
    ("quorum_two", "failed-part-kept-by-late-fetch"): (24, "r2 has {}, executed {1}"),
    ("pull_and_execute", "pointer-and-queue-not-atomic"): (5, "has no way from ["),
    ("mutate_later", "change-of-later-blocks"): (19, "r1 has all_2_2_0_1, which no entry of the log brings"),
    ("drop_insert", "drop-before-earlier-insert"): (16, "r2 has {}, executed {1}"),
    ("drop_insert", "drop-of-later-blocks"): (30, "r2 has {}, executed {0,1,2}"),
    ("drop_behind", "drop-of-named-parts"): (28, "r2 has {2}, executed {0,1,2,3}"),
    ("drop_behind", "result-fetched-into-nothing"): (19, "r2 has {2}, executed {0,1,2,3}"),
    ("drop_covered", "drop-before-covered-insert"): (45, "r2 has {}, executed {1,2,3}"),
    ("drop_covered", "drop-leaves-covered-parts"): (33, "r2 has {0}, executed {0,1,2,3}"),
    ("session_ends_pulling", "older-pull-wins"): (31, "r1 has {0}, executed {0,1}"),
    ("merge_crash", "sources-deregistered-first"): (9, "r1 has {}, executed {0,1}; "),
    ("lost_fetched", "lost-while-registered"): (34, "0 is lost; r1 has {0,1}, of that {0} broken"),
    ("lost_mended", "lost-though-mended"): (48, "0 is lost; r1 has {0}, executed {0}"),
    ("lost_result_returns", "lost-rows-said-whole"): (50, "r1 has {2}, executed {0,1,2}"),
    ("lost_recovering", "lost-while-recovery-begins"): (41, "r2 lost, has {0}, executed {}"),
}

LARGE = 6_000
"""Models with more states are followed at night; most mutants of what they are about, and smaller models, more often."""

FOLLOWED = [name for name, model in MODELS.items() if not why_not_followed(model, "replication")]


def _by_size(name: str) -> object:
    at_night = PINS[name].states > LARGE or is_nightly(name)
    return pytest.param(name, marks=pytest.mark.nightly if at_night else pytest.mark.slow)


@pytest.mark.parametrize("name", TAKEN)
def test_steps_of_a_model_are_actions_of_the_packed_model(name: str) -> None:
    found = bridge_model(name, onto="replication")
    assert (found.violations, found.undecided) == ([], "")
    assert (set(found.taken), found.steps) == TAKEN[name]


@pytest.mark.parametrize("name", [_by_size(name) for name in FOLLOWED if name not in TAKEN])
def test_every_step_of_a_model_has_a_way(name: str) -> None:
    found = bridge_model(name, onto="replication")
    assert (found.violations, found.undecided) == ([], "")


@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_a_mutant_takes_a_step_that_has_no_way(name: str, mutant: str) -> None:
    assert_caught(name, mutant, *MUTANTS[name, mutant])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutant"), MUTANTS_SLOWLY)
def test_a_mutant_takes_a_step_that_has_no_way_after_many_states(name: str, mutant: str) -> None:
    assert_caught(name, mutant, *MUTANTS_SLOWLY[name, mutant])


def test_a_part_whose_loss_is_being_executed_is_not_declared_lost_again() -> None:
    found = follow_model(MODELS["lost_staged_crash"], REPLICATION, stages_with(UNLOOKED))
    assert len(found.trace) == 86
    assert found.wrong is not None
    assert "to [log insert, 0 is lost, 0 is lost; r1 has {0}, executed {1}; " in found.wrong


UNLOOKED = Patch(
    "lost-already",
    "A replica declares a part lost without a look whether a loss of it is in its own queue.",
    "lost_staged_crash",
    "BRIDGE",
    (
        Hunk(
            "replitree.protocol.upkeep.lost",
            ("    if part in (yield from _losses_to_execute(replica, part)):",),
            ("    if part in ():",),
        ),
    ),
)


def assert_caught(name: str, mutant: str, steps: int, leads_to: str) -> None:
    (violation,) = bridge_model(name, mutant, "replication").violations
    assert violation["steps"] == steps
    assert leads_to in violation["what"]


# --- steps by hand ------------------------------------------------------------------------------------------------------------

INSERT, OTHER = (PART, 0), (PART, 0)
MERGED, MUTATED, DROPPED, GIVEN_UP = (PART, 0b11), (PART, 0b1), (DROP, 0b1), (LOSE, 0b1)


def shared(log: tuple[tuple[int, int], ...], *replicas: Holding) -> Shared:
    return Shared(tuple(kind for kind, _ in log), tuple(sources for _, sources in log), replicas)


def both(log: tuple[tuple[int, int], ...], first: Holding, second: Holding, **changes: int) -> tuple[Shared, Shared]:
    """Return two outlines with this log, between which the second replica changes."""
    return shared(log, first, second), shared(log, first, msgspec.structs.replace(second, **changes))


WHOLE = Holding(has=0b1, done=0b1)
BROKEN = Holding(has=0b1, broken=0b1, done=0b1)

STEPS = {
    "a part is let go that a drop removes": (
        both((INSERT, DROPPED), WHOLE, WHOLE, has=0, done=0b11),
        both((INSERT, MUTATED), WHOLE, WHOLE, has=0, done=0b11),
    ),
    "a drop is executed when its insert was": (
        both((INSERT, DROPPED), WHOLE, WHOLE, has=0, done=0b11),
        both((INSERT, DROPPED), WHOLE, Holding(), done=0b10),
    ),
    "what is dropped does not come again": (
        both((INSERT, DROPPED), WHOLE, Holding(), has=0b1, done=0b1),
        both((INSERT, DROPPED), WHOLE, Holding(done=0b11), has=0b1),
    ),
    "a mutation is executed when its result is there": (
        both((INSERT, MUTATED), WHOLE, WHOLE, has=0b10, done=0b11),
        both((INSERT, MUTATED), WHOLE, WHOLE, done=0b11),
    ),
    "a merge is of what the log has": (
        (shared((INSERT, OTHER)), shared((INSERT, OTHER, MERGED))),
        (shared((INSERT, OTHER, MERGED)), shared((INSERT, OTHER, MERGED, MERGED))),
    ),
    "a result is made of its sources, or got from others": (
        both(
            (INSERT, OTHER, MERGED), Holding(has=0b11, done=0b11), Holding(has=0b11, done=0b11), has=0b100, done=0b111
        ),
        both((INSERT, OTHER, MERGED), Holding(has=0b11, done=0b11), Holding(has=0b1, done=0b1), has=0b100, done=0b111),
    ),
    "who recovers counts what it has as executed": (
        both((INSERT,), WHOLE, Holding(has=0b1, is_lost=True), done=0b1, is_lost=False),
        both((INSERT,), WHOLE, Holding(is_lost=True), done=0b1, is_lost=False),
    ),
    "who is lost may let go of anything": (
        both((INSERT,), WHOLE, Holding(has=0b1, is_lost=True), has=0),
        both((INSERT,), WHOLE, WHOLE, has=0),
    ),
    "a part is declared lost that is broken everywhere": (
        (shared((INSERT,), BROKEN, BROKEN), shared((INSERT, GIVEN_UP), BROKEN, BROKEN)),
        (shared((INSERT,), BROKEN, WHOLE), shared((INSERT, GIVEN_UP), BROKEN, WHOLE)),
    ),
    "a loss is executed when the part was made empty": (
        both((INSERT, GIVEN_UP), BROKEN, BROKEN, broken=0, done=0b11),
        both((INSERT, GIVEN_UP), BROKEN, Holding(), done=0b11),
    ),
    "what was made of a lost part is whole when another one has it anew": (
        both((INSERT, MUTATED, GIVEN_UP), Holding(0b10, 0, 0b111), Holding(0b10, 0b10, 0b11), broken=0),
        both((INSERT, MUTATED, GIVEN_UP), Holding(0b10, 0b10, 0b11), Holding(0b10, 0b10, 0b11), broken=0),
    ),
}
"""A step that the packed model has, and one like it that it does not have."""


@pytest.mark.parametrize("name", STEPS)
def test_the_packed_model_has_one_step_and_not_the_other(name: str) -> None:
    has, has_not = STEPS[name]
    follower = Follower(REPLICATION, 2)
    assert follower.way(*has)
    assert follower.way(*has_not) is None


# --- outlines -----------------------------------------------------------------------------------------------------------------

TABLE, NAMES = TablePlace("/t"), ("r1", "r2")
PARTS = (fx.StagedPart("p", 1, 1, "p:1"), fx.StagedPart("q", 1, 1, "q:1"))
GET = GetEntry("r1", fx.StagingId("s0"), PARTS, (fx.BlockId("a"),))
HERE = Replica(TABLE, "r1")


def tree_of(
    *entries: Entry, parts: dict[str, bytes] | None = None, pointer: int = 0, queue: tuple[int, ...] = ()
) -> Tree:
    """Return what r1 has registered and pulled of a log, and has still in its queue; r2 has not joined."""
    nodes = {
        layout.log(TABLE): b'{"first":0,"format":1}',
        layout.host(HERE): b"r1a",
        layout.is_lost(HERE): NOT_LOST,
        layout.log_pointer(HERE): layout.pointer_value(fx.LogIndex(pointer), ()),
        **{layout.part(HERE, name): value for name, value in (parts or {}).items()},
        **{layout.queue_entry(HERE, fx.LogIndex(index)): encode_entry(entries[index]) for index in queue},
    }
    creates = [fx.Create(layout.log_create(TABLE), encode_entry(entry), sequential=True) for entry in entries]
    return Tree.of(nodes).commit(creates, session=1)[0]


def test_an_entry_is_one_of_the_packed_model_for_each_part_that_it_brings() -> None:
    mutate = MutateEntry("r1", fx.EntryId("m"), "*", "x")
    found = shared_of(
        tree_of(GET, mutate, DropEntry("r1", fx.EntryId("d"), "q"), MutateEntry("r1", fx.EntryId("n"), "q", "x")),
        TABLE,
        NAMES,
    )
    assert found.kinds == (PART, PART, PART, PART, DROP)
    assert found.sources == (0, 0, 0b1, 0b10, 0b1000)


def test_an_overwrite_is_a_drop_and_an_insert() -> None:
    over = GetEntry("r1", fx.StagingId("s1"), PARTS[:1], (fx.BlockId("b"),), format=2, drops=("*",))
    found = shared_of(tree_of(GET, over), TABLE, NAMES)
    assert (found.kinds, found.sources) == ((PART, PART, DROP, PART), (0, 0, 0b11, 0))


def test_who_inserts_has_the_part_until_it_was_executed_elsewhere_or_lost() -> None:
    lost = LostEntry("r1", "p_0_0_0", "p:", 1)
    assert shared_of(tree_of(GET), TABLE, NAMES).replicas == (Holding(has=0b11), ABSENT)
    assert shared_of(tree_of(GET, pointer=1, queue=(0,)), TABLE, NAMES).replicas[0] == Holding(has=0b11)
    assert shared_of(tree_of(GET, lost), TABLE, NAMES).replicas[0] == Holding(has=0b10)
    assert shared_of(tree_of(GET, pointer=1), TABLE, NAMES).replicas[0] == Holding(done=0b11)


def test_a_covered_part_is_not_counted_and_a_broken_one_is_told_apart() -> None:
    merge = MergeEntry("r1", ("p_0_0_0",))
    parts = {"p_0_0_0": b"p:1", "p_0_0_1": broken_value("p:1"), "q_0_0_0": b"q:1"}
    found = shared_of(tree_of(GET, merge, parts=parts, pointer=2), TABLE, NAMES).replicas[0]
    assert found == Holding(has=0b110, broken=0b100, done=0b111)


@pytest.mark.parametrize(("path", "value", "expected"), [
    (layout.host(HERE), DROPPED_HOST, ABSENT),
    (layout.is_lost(HERE), LOST, Holding(has=0b11, is_lost=True)),
])  # fmt: skip
def test_who_is_lost_has_executed_nothing_and_who_is_dropped_has_nothing(
    path: str, value: bytes, expected: Holding
) -> None:
    tree = tree_of(GET, parts={"p_0_0_0": b"p:1", "q_0_0_0": b"q:1"}, pointer=1)
    changed = Tree.of(
        {each: value if each == path else node.value for each in tree.paths() if (node := tree.get(each))}
    )
    assert shared_of(changed, TABLE, NAMES).replicas[0] == expected


def test_what_stands_for_no_state_is_refused() -> None:
    with pytest.raises(NoState, match="r1 has p_7_7_0, which no entry of the log brings"):
        shared_of(tree_of(GET, parts={"p_7_7_0": b"p:7"}), TABLE, NAMES)
    lost = LostEntry("r2", "p_0_0_0", "p:", 1)
    with pytest.raises(NoState, match="r1 has p_0_0_0 with rows, and has executed its loss"):
        shared_of(tree_of(GET, lost, parts={"p_0_0_0": b"p:1", "q_0_0_0": b"q:1"}, pointer=2), TABLE, NAMES)
    with pytest.raises(BadInput, match=f"there is room for {RECORDS}"):
        shared_of(tree_of(*(GET for _ in range(RECORDS))), TABLE, NAMES)
    with pytest.raises(BadInput, match="declared good by hand"):
        bridge_model("survive_two", onto="replication")
