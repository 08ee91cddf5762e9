"""Where a read stands, and what it shows there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.procedures import run as run_to_its_end
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    FailEntry,
    GetEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    encode_entry,
)
from replitree.protocol.core.fold import Change, apply
from replitree.protocol.core.layout import PARENT_ENTRIES, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.atomicity import shown_partly
from replitree.protocol.state.pull import Loaded, Place, Pointer, Queued
from replitree.protocol.state.read import (
    READ_LEVELS,
    end_of_log,
    is_readable,
    parts_at,
    position_of,
    shown_now,
)

TABLE = TablePlace("/t")
ENTRY = encode_entry(GetEntry("r1", fx.StagingId("s"), (fx.StagedPart("all", 1, 1, "h"),), ()))


def tree_with(entries: int, parents: int = 1) -> Tree:
    """A log with so many entries below its last parent."""
    tree = Tree.of({"/t/log": b""} | {layout.log_parent(TABLE, parent): b"" for parent in range(parents)})
    last = TablePlace("/t", parents - 1)
    for _ in range(entries):
        tree, _ = tree.commit((fx.Create(layout.log_create(last), ENTRY, sequential=True),), session=1)
    return tree


def run(
    procedure: fx.Procedure[Any], tree: Callable[[], Tree], sessions: list[int], committed: Any = None
) -> tuple[Any, list[Any]]:
    """Run a procedure; return its value and what it asked for.  `committed` is the outcome of commits, the tree's if None."""
    asked: list[Any] = []

    def perform(effect: Any) -> Any:
        asked.append(effect)
        match effect:
            case fx.CurrentSession():
                return sessions.pop(0)
            case fx.Commit(operations):
                after, outcome = tree().commit(operations, session=1)
                assert after is tree() or not isinstance(outcome, fx.Applied), "a read changes nothing"
                return committed or outcome
        return answer(tree(), effect)

    return run_to_its_end(procedure, perform), asked


def test_the_end_of_the_log_is_asked_for_after_a_commit_that_changes_nothing() -> None:
    tree = tree_with(3)
    end, asked = run(end_of_log(TABLE), lambda: tree, [7, 7])
    assert end == 3
    kinds = [type(effect) for effect in asked]
    assert kinds.index(fx.Commit) < kinds.index(fx.NextNumber)
    assert [effect.operations for effect in asked if isinstance(effect, fx.Commit)] == [
        (fx.Check("/t/log", fx.ANY_VERSION),)
    ]


def test_an_entry_that_was_removed_counts() -> None:
    tree = tree_with(3)
    tree, _ = tree.commit((fx.Delete(layout.log_entry(TABLE, 0), fx.ANY_VERSION),), session=1)
    assert run(end_of_log(TABLE), lambda: tree, [7, 7])[0] == 3


def test_the_end_of_the_log_is_below_the_newest_parent() -> None:
    tree = tree_with(2, parents=3)
    assert run(end_of_log(TABLE), lambda: tree, [7, 7])[0] == 2 * PARENT_ENTRIES + 2


def test_a_session_that_has_changed_says_nothing() -> None:
    tree = tree_with(3)
    assert run(end_of_log(TABLE), lambda: tree, [7, 8])[0] is None


def test_a_commit_without_an_answer_says_nothing() -> None:
    tree = tree_with(3)
    end, asked = run(end_of_log(TABLE), lambda: tree, [7], fx.Unknown())
    assert end is None
    assert not any(isinstance(effect, fx.NextNumber) for effect in asked)


def test_a_table_that_is_gone_has_no_end() -> None:
    assert run(end_of_log(TABLE), Tree, [7, 7])[0] is None


def test_the_position_of_each_level() -> None:
    levels = {level: position_of(level, fx.LogIndex(4), fx.LogIndex(6), fx.LogIndex(9)) for level in READ_LEVELS}
    assert levels == {"eventual": 4, "sequential": 6, "linearizable": 9}
    assert position_of("sequential", fx.LogIndex(8), fx.LogIndex(6)) == 8
    assert position_of("linearizable", fx.LogIndex(12), fx.LogIndex(6), fx.LogIndex(9)) == 12


def _insert() -> GetEntry:
    return GetEntry("r1", fx.StagingId("s"), (fx.StagedPart("all", 1, 1, "h"),), ())


def _queued(*entries: Any) -> tuple[PartSet, tuple[Queued, ...]]:
    """The table after a log, and its entries with what each changes."""
    parts, items = PartSet(), list[Queued]()
    for number, entry in enumerate(entries):
        parts, change = apply(parts, fx.LogIndex(number), entry)
        items.append(Queued(fx.LogIndex(number), entry, change))
    return parts, tuple(items)


MERGE = MergeEntry("r1", ("all_0_0_0", "all_1_1_0"))


def test_merges_are_not_waited_for_and_everything_else_is() -> None:
    _, (first, second, merge) = _queued(_insert(), _insert(), MERGE)
    assert is_readable(fx.LogIndex(3), (merge,), fx.LogIndex(3))
    assert not is_readable(fx.LogIndex(3), (second, merge), fx.LogIndex(2))
    assert is_readable(fx.LogIndex(3), (second, merge), fx.LogIndex(1))
    assert not is_readable(fx.LogIndex(3), (), fx.LogIndex(4))
    assert not is_readable(fx.LogIndex(3), (first,), fx.LogIndex(3))
    assert is_readable(fx.LogIndex(3), (first,), fx.LogIndex(3), opened=(fx.LogIndex(0),))
    _, (_, mutation) = _queued(_insert(), MutateEntry("r1", fx.EntryId("m"), "all", "DELETE"))
    assert not is_readable(fx.LogIndex(2), (mutation,), fx.LogIndex(2))


def test_a_queue_of_a_later_pointer_is_noticed() -> None:
    _, (first, second) = _queued(_insert(), _insert())
    place = Place(Pointer(fx.LogIndex(1), fx.Version(1)), PartSet())
    assert Loaded(place, (first, second), PartSet()).is_torn
    assert not Loaded(place, (first,), PartSet()).is_torn


def test_later_changes_are_taken_back() -> None:
    parts, items = _queued(_insert(), _insert(), MERGE, _insert())
    assert [part.name for part in parts] == ["all_0_1_1", "all_3_3_0"]

    def names(position: int, queue: tuple[Queued, ...] = (), **more: Any) -> list[str]:
        later: list[Change] = [item.change for item in reversed(items) if item.index >= position]
        here = {"all_0_0_0", "all_1_1_0", "all_3_3_0"} | (set() if items[2] in queue else {"all_0_1_1"})
        found = parts_at(parts, later, queue, fx.LogIndex(position), lambda part: part.name in here, **more)
        return [part.name for part in found]

    assert names(4) == ["all_0_1_1", "all_3_3_0"]
    assert names(3) == ["all_0_1_1"]
    assert names(3, (items[2],)) == ["all_0_0_0", "all_1_1_0"]
    assert names(1) == ["all_0_0_0"]
    assert names(4, opened=(fx.LogIndex(3),)) == ["all_0_1_1"]
    assert parse_part("all_0_1_1") in parts


def test_an_eventual_read_shows_nothing_of_an_insert_that_is_known_to_have_failed() -> None:
    held = PartSet.of(parse_part(name) for name in ("p_0_2_1", "q_1_1_0", "q_5_5_0", "s_1_1_0"))
    failed = Queued(fx.LogIndex(4), FailEntry("r1", fx.StagingId("s"), 1, ("p", "q")), Change())
    assert [part.name for part in shown_now(held, ())] == ["p_0_2_1", "q_1_1_0", "q_5_5_0", "s_1_1_0"]
    assert [part.name for part in shown_now(held, (failed,))] == ["p_0_2_1", "q_5_5_0", "s_1_1_0"]


def test_an_insert_that_is_here_in_one_of_its_partitions_is_noticed_while_the_other_is_to_come() -> None:
    def parts(*names: str) -> PartSet:
        return PartSet.of(map(parse_part, names))

    both = GetEntry("r1", fx.StagingId("s"), (fx.StagedPart("p", 1, 1, "h"), fx.StagedPart("q", 1, 1, "h")), ())
    queue = (Queued(fx.LogIndex(1), both, Change()),)
    table, merged = parts("p_0_2_1", "q_1_1_0"), parts("p_0_2_1")
    assert shown_partly(merged, table, queue) == 1
    assert shown_partly(merged, table, ()) is None
    assert shown_partly(parts("p_0_0_0"), table, queue) is None
    assert shown_partly(table, table, queue) is None
    assert shown_partly(merged, merged, queue) is None, "the other partition was dropped, or the insert has failed"


def test_an_insert_that_is_here_beside_what_it_replaces_is_noticed() -> None:
    def parts(*names: str) -> PartSet:
        return PartSet.of(map(parse_part, names))

    staged, every = (fx.StagedPart("p", 1, 1, "h"),), (EVERY_PARTITION,)
    first, second = (
        Queued(fx.LogIndex(index), GetEntry("r1", fx.StagingId("s"), staged, (), format=2, drops=every), Change())
        for index in (1, 2)
    )
    assert shown_partly(parts("p_0_0_0"), parts("p_1_1_0"), (first,)) is None, "only what it replaces is here"
    assert shown_partly(parts("p_1_3_1"), parts("p_1_3_1"), (first,)) is None, "only its rows are here"
    assert shown_partly(parts("p_0_0_0", "p_1_3_1"), parts("p_1_3_1"), (first,)) == 1
    assert shown_partly(parts("q_0_0_0", "p_1_3_1"), parts("p_1_3_1"), (first,)) == 1, "it replaces every partition"
    assert shown_partly(parts("p_0_0_0", "p_3_3_0"), parts("p_1_1_0", "p_3_3_0"), (first,)) is None
    assert shown_partly(parts("p_0_0_0", "p_2_3_1"), parts("p_2_3_1"), (first, second)) == 2


def test_a_rewrite_that_is_here_in_part_is_noticed_though_a_later_entry_removes_the_rest() -> None:
    def parts(*names: str) -> PartSet:
        return PartSet.of(map(parse_part, names))

    result, new = fx.StagedResult("p_0_0_0", 0, 0, "h"), (fx.StagedPart("q", 1, 1, "h"),)
    moves = RewriteEntry("r1", fx.EntryId("w"), fx.StagingId("s"), (result,), new)
    queue = (Queued(fx.LogIndex(1), moves, Change()),)
    table = parts("p_0_0_0_1", "q_1_1_0")
    assert shown_partly(parts("p_0_0_0"), table, queue) is None
    assert shown_partly(parts("p_0_0_0", "q_1_2_1"), parts("p_0_0_0_1", "q_1_2_1"), queue) == 1, (
        "the row is there twice"
    )
    assert shown_partly(parts("p_0_0_0_1"), table, queue) == 1, "the row is not there"
    assert shown_partly(table, table, queue) is None
    # The partition that the row has left is dropped.
    assert shown_partly(parts("p_0_0_0"), parts("q_1_1_0"), queue) is None
    assert shown_partly(parts("p_0_0_0", "q_1_1_0"), parts("q_1_1_0"), queue) == 1, "its source is still there"
    assert shown_partly(parts(), parts("q_1_1_0"), queue) == 1, "its source is gone already"
    assert shown_partly(parts("p_0_0_0_1"), parts("p_0_0_0_1"), queue) is None, (
        "the partition that it comes to is dropped"
    )
