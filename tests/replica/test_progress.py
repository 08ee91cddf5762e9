"""What the threads of a replica share: lanes, loadings, what is shown, and what the table was."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
)
from replitree.protocol.core.fold import apply, fold
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.pull import Loaded, Place, Pointer, Queued
from replitree.replica.kit import history
from replitree.replica.perform.progress import LARGE_ENTRY_BYTES, Lane, Progress

OTHER = "r2"


def get(partition: str = "all", *, size: int = 1, replica: str = OTHER, drops: tuple[str, ...] = ()) -> GetEntry:
    part = fx.StagedPart(partition, 1, size, "0" * 32)
    entry = GetEntry(replica, fx.StagingId("x"), (part,), (fx.BlockId("b"),))
    return GetEntry(replica, entry.insert, entry.parts, entry.blocks, 1, 2, drops) if drops else entry


def merge(*sources: str) -> MergeEntry:
    return MergeEntry(OTHER, sources)


MUTATION = MutateEntry(OTHER, fx.EntryId("m"), EVERY_PARTITION, "{}")
DROP = DropEntry(OTHER, fx.EntryId("d"), EVERY_PARTITION)


class Puller:
    """Pulls entries into a progress, as `protocol.state.pull` would."""

    def __init__(self) -> None:
        self.progress = Progress(Replica(TablePlace("/t"), "r1"))
        self.place = Place(Pointer(fx.LogIndex(0), fx.Version(0)), PartSet())
        assert self.progress.take_over(Loaded(self.place, (), PartSet()), self.progress.begin_load()) == ()

    def pull(self, *entries: Entry) -> tuple[Queued, ...]:
        pulled: list[Queued] = []
        for entry in entries:
            index = self.place.pointer.index
            parts, change = apply(self.place.parts, index, entry)
            pointer = Pointer(fx.LogIndex(index + 1), fx.Version(self.place.pointer.version + 1))
            self.place = Place(pointer, parts)
            pulled.append(Queued(index, entry, change))
        self.progress.pulled(self.place, pulled)
        return tuple(pulled)

    def take(self, lane: Lane, count: int = 64) -> list[fx.LogIndex]:
        return [item.index for item in self.progress.take(lane, count, lambda: False, 0.0)]

    def execute(self, items: Iterable[Queued]) -> None:
        """Give entries back as done, with what they bring revealed."""
        for item in items:
            self.progress.reveal(
                tuple(part.name for part in item.change.added), tuple(part.name for part in item.change.removed)
            )
            self.progress.release((item,), (item.index,), {})

    def visible(self) -> tuple[str, ...]:
        return self.progress.visible()[1]


def test_nothing_small_waits_for_something_large_and_no_insert_for_a_merge() -> None:
    puller = Puller()
    puller.pull(get(size=LARGE_ENTRY_BYTES), get(), merge("all_0_0_0", "all_1_1_0"), get(), DROP, get())
    assert puller.take(Lane.LARGE) == [0]
    assert puller.take(Lane.MAKING) == [2]
    assert puller.take(Lane.SMALL) == [1, 3, 5]
    assert puller.take(Lane.SMALL) == [4]
    assert puller.take(Lane.SMALL) == []


def test_an_entry_that_removes_goes_alone_and_knows_what_may_bring_back() -> None:
    puller = Puller()
    first, joined, replaced = puller.pull(get(), merge("all_0_0_0"), get(drops=("all",)))
    assert puller.take(Lane.MAKING) == [1]
    batch = puller.progress.take(Lane.SMALL, 1, lambda: False, 0.0)
    assert batch == (first,)
    (overwrite,) = puller.progress.take(Lane.SMALL, 64, lambda: False, 0.0)
    assert overwrite == replaced
    assert puller.progress.view((replaced,), makes=True).blockers == (first, joined)
    puller.progress.release((joined,), (), {})
    assert puller.progress.view((replaced,), makes=True).blockers == (first,)


def test_what_waits_for_others_is_tried_again_when_one_is_done() -> None:
    puller = Puller()
    first, dropped = puller.pull(get(), DROP)
    taken = [puller.progress.take(Lane.SMALL, 1, lambda: False, 0.0) for _ in range(2)]
    assert taken == [(first,), (dropped,)]
    for _ in range(10):
        puller.progress.release((dropped,), (), {dropped.index: "waits"})
    assert puller.take(Lane.SMALL) == []
    assert puller.progress.why_waiting(dropped.index) == ("waits", 10)
    puller.execute((first,))
    assert puller.take(Lane.SMALL) == [1]


def test_what_is_told_when_is_not_tried_before_and_misses_nothing_that_it_is_told_meanwhile() -> None:
    puller = Puller()
    puller.execute(puller.pull(get(), get()))
    (joined,) = puller.pull(merge("all_0_0_0", "all_1_1_0"))

    def waits() -> None:
        puller.progress.release((joined,), (), {joined.index: "r1 makes it"}, {joined.index})

    assert puller.take(Lane.MAKING) == [joined.index]
    waits()
    assert puller.take(Lane.MAKING) == []
    assert [row["is_told"] for row in puller.progress.postponed()] == [True]
    assert puller.progress.postponed_s() == 0.0
    puller.progress.tell()
    assert puller.take(Lane.MAKING) == [joined.index]
    puller.progress.tell()
    waits()
    assert puller.take(Lane.MAKING) == [joined.index]
    waits()
    puller.progress.tell("all_7_9_1")
    assert puller.take(Lane.MAKING) == []
    puller.progress.tell("all_0_1_1")
    assert puller.take(Lane.MAKING) == [joined.index]
    puller.progress.release((joined,), (), {joined.index: "nobody has sent it"})
    assert [row["is_told"] for row in puller.progress.postponed()] == [False]
    assert puller.progress.postponed_s() > 0.0


def test_merges_and_mutations_do_not_hold_the_index_back() -> None:
    puller = Puller()
    inserts = puller.pull(get(), get())
    puller.execute(inserts)
    joined, mutated, last = puller.pull(merge("all_0_0_0", "all_1_1_0"), MUTATION, get())
    assert puller.progress.index == last.index
    puller.execute((last,))
    assert puller.progress.index == 5
    assert not puller.progress.is_executed(joined.index)
    assert not puller.progress.is_mutated(mutated.index)
    assert puller.progress.is_mutated(joined.index)
    puller.execute((joined, mutated))
    assert puller.progress.is_mutated(mutated.index)
    assert not puller.progress.is_mutated(fx.LogIndex(5))


def test_a_loading_that_began_before_a_part_was_shown_is_not_taken_over() -> None:
    puller = Puller()
    puller.pull(get())
    progress = puller.progress
    begun = progress.begin_load()
    stale = Loaded(puller.place, (), PartSet())
    progress.reveal(("all_0_0_0",))
    assert progress.take_over(stale, begun) is None
    assert puller.visible() == ("all_0_0_0",)
    again = Loaded(puller.place, (), PartSet.of([parse_part("all_0_1_1")]))
    assert progress.take_over(again, progress.begin_load()) == ("all_0_0_0",)
    assert puller.visible() == ("all_0_1_1",)


def test_an_older_loading_changes_nothing() -> None:
    puller = Puller()
    stale = Loaded(puller.place, (), PartSet())
    puller.pull(get())
    assert puller.progress.take_over(stale, puller.progress.begin_load()) == ()
    assert puller.progress.queue_length() == 1
    assert puller.progress.place == puller.place


def test_what_runs_stays_in_the_queue_until_it_is_given_back() -> None:
    puller = Puller()
    (item,) = puller.pull(get())
    assert puller.take(Lane.SMALL) == [0]
    puller.progress.take_over(Loaded(puller.place, (), PartSet()), puller.progress.begin_load())
    assert puller.progress.queue() == (item,)
    puller.execute((item,))
    assert puller.progress.queue() == ()


def test_a_part_that_a_shown_one_covers_is_a_stray() -> None:
    progress = Puller().progress
    assert progress.reveal(("all_0_3_1",)) == ()
    assert progress.reveal(("all_1_1_0",)) == ("all_1_1_0",)
    assert progress.has_strays
    assert progress.visible()[1] == ("all_0_3_1",)
    assert progress.reveal(("all_0_5_2",)) == ("all_0_3_1",)
    assert progress.visible()[1] == ("all_0_5_2",)


def test_a_registration_that_a_load_finds_covered_is_a_stray() -> None:
    puller = Puller()
    merged, covered = parse_part("all_0_3_1"), "all_1_1_0"
    puller.progress.take_over(Loaded(puller.place, (), PartSet.of([merged]), (covered,)), puller.progress.begin_load())
    assert puller.progress.has_strays
    puller.progress.reveal((merged.name,))
    assert puller.progress.has_strays


def test_broken_parts_are_not_shown_and_are_no_sources() -> None:
    puller = Puller()
    puller.execute(puller.pull(get(), get()))
    (joined,) = puller.pull(merge("all_0_0_0", "all_1_1_0"))
    puller.progress.hide(("all_0_0_0",))
    assert puller.visible() == ("all_1_1_0",)
    assert puller.progress.hidden() == ("all_0_0_0",)
    view = puller.progress.view((joined,), makes=True)
    assert parse_part("all_0_0_0") in view.held
    assert not view.can_make_of(joined.change.removed)
    puller.progress.unhide(("all_0_0_0",))
    assert puller.visible() == ("all_0_0_0", "all_1_1_0")


def test_an_insert_that_failed_is_not_shown_from_the_moment_on_that_this_is_known() -> None:
    puller = Puller()
    puller.execute(puller.pull(get()))
    assert puller.visible() == ("all_0_0_0",)
    (failed,) = puller.pull(FailEntry(OTHER, fx.StagingId("x"), 0, ("all",)))
    assert puller.visible() == ()
    puller.execute(puller.pull(get()))
    assert puller.visible() == ("all_2_2_0",)
    puller.execute([failed])
    assert puller.visible() == ("all_2_2_0",)


def test_an_insert_that_is_here_in_part_is_noticed_until_it_is_executed() -> None:
    puller = Puller()
    one, other = get("p").parts[0], get("q").parts[0]
    (item,) = puller.pull(GetEntry(OTHER, fx.StagingId("x"), (one, other), ()))
    assert puller.progress.shown_partly() is None
    puller.progress.reveal(["p_0_0_0"])
    assert puller.progress.shown_partly() == 0
    puller.execute([item])
    assert puller.progress.shown_partly() is None


def test_a_rewrite_that_is_here_in_part_is_noticed_until_it_is_executed() -> None:
    puller = Puller()
    puller.execute(puller.pull(get("p")))
    result = fx.StagedResult("p_0_0_0", 0, 0, "h")
    (item,) = puller.pull(RewriteEntry(OTHER, fx.EntryId("w"), fx.StagingId("x"), (result,), get("q").parts))
    assert puller.progress.shown_partly() is None
    puller.progress.reveal(["q_1_1_0"])
    assert puller.progress.shown_partly() == 1
    puller.progress.reveal(["p_0_0_0_1"])
    assert puller.progress.shown_partly() is None
    puller.execute([item])
    assert puller.progress.shown_partly() is None


def test_a_part_that_was_dropped_while_it_was_fetched_again_is_not_shown() -> None:
    puller = Puller()
    puller.execute(puller.pull(get(), get()))
    puller.progress.hide(("all_0_0_0",))
    puller.progress.reveal((), ("all_0_0_0",))
    puller.progress.unhide(("all_0_0_0",))
    assert puller.visible() == ("all_1_1_0",)


def test_parts_are_counted_as_the_log_has_them() -> None:
    puller = Puller()
    puller.pull(get(), get(), get("b"))
    assert puller.progress.partition_parts_max() == 2
    puller.pull(merge("all_0_0_0", "all_1_1_0"))
    assert puller.progress.partition_parts_max() == 1
    puller.pull(DROP)
    assert puller.progress.partition_parts_max() == 0


# --- what the table was -----------------------------------------------------------------------------------------------------

ENTRIES = st.lists(st.sampled_from(["get", "other", "merge", "mutate", "drop", "overwrite"]), max_size=30)


@given(ENTRIES)
def test_the_table_at_every_index_is_the_fold_of_the_log_below_it(kinds: list[str]) -> None:
    puller, log = Puller(), list[tuple[fx.LogIndex, Entry]]()
    for kind in kinds:
        neighbours = puller.place.parts.in_partition("all")[:2]
        entry: Entry = {
            "get": get(),
            "other": get("b"),
            "merge": merge(*(part.name for part in neighbours)) if neighbours else get(),
            "mutate": MUTATION,
            "drop": DropEntry(OTHER, fx.EntryId("d"), "all"),
            "overwrite": get(drops=("all",)),
        }[kind]
        log.append((puller.place.pointer.index, entry))
        puller.pull(entry)
    for index in range(len(log) + 1):
        found = puller.progress.history.parts_at(puller.place, fx.LogIndex(index), (), lambda _: True)
        assert found == tuple(fold(log[:index]))


def test_what_came_before_the_first_entry_that_is_remembered_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHANGES_MAX", 3)
    puller = Puller()
    puller.pull(get(), get(), get(), get(), get())
    known = puller.progress.history
    assert known.first == 2
    assert known.parts_at(puller.place, fx.LogIndex(1), (), lambda _: True) is None
    assert known.parts_at(puller.place, fx.LogIndex(2), (), lambda _: True) == (
        parse_part("all_0_0_0"),
        parse_part("all_1_1_0"),
    )


def test_commands_are_found_by_their_id() -> None:
    puller = Puller()
    puller.pull(get(), MUTATION, DROP)
    known = puller.progress.history
    assert known.index_of(fx.EntryId("m")) == 1
    assert known.index_of(fx.EntryId("d")) == 2
    assert known.index_of(fx.EntryId("other")) is None
    assert known.command(fx.LogIndex(0)) is None


def test_an_insert_whose_quorum_is_open_is_tried_again_at_short_intervals() -> None:
    puller = Puller()
    first, second = puller.pull(get("a"), get("b"))
    pointer = Pointer(fx.LogIndex(2), fx.Version(2), (second.index,))
    puller.progress.pulled(Place(pointer, puller.place.parts), ())
    for _ in range(15):
        puller.progress.release(
            (first, second), (), {each.index: "its writer has not published it" for each in (first, second)}
        )
    assert puller.take(Lane.SMALL) == []
    # The other one waits for 10 s by now.
    assert [item.index for item in puller.progress.take(Lane.SMALL, 64, lambda: False, 5.0)] == [second.index]
