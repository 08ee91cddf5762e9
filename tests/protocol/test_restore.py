"""A restore, cut off before and after each of its steps, with commits that come late: repeated, it ends the same."""

from __future__ import annotations

from typing import TypeVar, cast

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import make_root
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import PARENT_ENTRIES, Replica, TablePlace
from replitree.protocol.core.log import read_start
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.membership.table import (
    NOT_LOST,
    TableOutcome,
    create_table,
    join_table,
    leave_table,
    mark_dropped,
    remove_table,
)
from replitree.protocol.rescue import restore as procedures
from replitree.protocol.rescue.restore import (
    BATCH,
    NotRestored,
    Restored,
    RestoreOutcome,
    choose_parts,
    first_parent,
    restore,
)

T = TypeVar("T")

TABLE = TablePlace("/replitree/tables/t")
ONE = Replica(TABLE, "r1")
PARTS = {Part("all", number, number, 0): f"{number:032x}" for number in range(BATCH + 5)}
"""More than one commit registers."""


class World:
    """Coordination that has lost a table, and processes that restore it."""

    def __init__(self) -> None:
        self.session = MemoryCoordination(SharedTree())
        make_root(self.session, layout.tables("/replitree"))
        self._runs = 0

    def begin(self, name: str = "r1", parts: dict[Part, str] = PARTS) -> fx.Procedure[RestoreOutcome]:
        """Begin a run; it is cut off by forgetting it."""
        self._runs += 1
        me = f"run {self._runs}".encode()
        return restore(Replica(TABLE, name), me, b"metadata", b"columns", parts)

    def finish(self, name: str = "r1", parts: dict[Part, str] = PARTS) -> RestoreOutcome:
        """Run to the end."""
        return self.run(self.begin(name, parts))

    def run(self, procedure: fx.Procedure[T]) -> T:
        """Run any procedure to its end."""
        return run(procedure, self.perform)

    def perform(self, effect: fx.Effect) -> object:
        return self.session.perform(cast("fx.CoordinationEffect", effect))

    def registered(self) -> dict[Part, str]:
        names = self.session.perform(fx.Children(layout.parts(ONE))) or ()
        found = {}
        for name in names:
            node = self.session.perform(fx.Get(layout.part(ONE, name)))
            assert node is not None
            found[parse_part(name)] = node.value.decode()
        return found

    def is_good(self) -> bool:
        node = self.session.perform(fx.Get(layout.is_lost(ONE)))
        return node is not None and node.value == NOT_LOST


def cut_off(world: World, commits: int, *, applied: bool) -> fx.Commit | None:
    """Run up to the commit of this number, which is still on its way or has been applied; None when there are fewer."""
    run = world.begin()
    outcome: object = None
    done = 0
    try:
        while True:
            effect = run.send(outcome)
            if isinstance(effect, fx.Commit):
                if done == commits:
                    if applied:
                        world.session.perform(effect)
                    return effect
                done += 1
            outcome = world.perform(effect)
    except StopIteration:
        return None


def assert_restored(world: World, outcome: RestoreOutcome) -> None:
    assert outcome == Restored(len(PARTS), fx.LogIndex(PARENT_ENTRIES))
    assert world.registered() == PARTS
    assert world.is_good()
    assert not world.session.perform(fx.Exists(layout.restoring(TABLE)))


def test_a_table_is_made_of_the_parts_of_a_disk() -> None:
    world = World()
    assert_restored(world, world.finish())
    pointer = world.session.perform(fx.Get(layout.log_pointer(ONE)))
    assert pointer is not None
    assert pointer.value == str(PARENT_ENTRIES).encode()


def test_the_next_entry_has_the_index_that_the_log_goes_on_at() -> None:
    world = World()
    world.finish()
    place = TablePlace(TABLE.path, layout.parent_of(PARENT_ENTRIES))
    made = world.session.perform(fx.Commit(fx.Create(layout.log_create(place), b"{}", sequential=True)))
    assert isinstance(made, fx.Applied)
    assert layout.index_of(place, made.created[-1]) == PARENT_ENTRIES
    assert world.session.perform(fx.Exists(layout.open_log(place)))


def number_of_commits() -> int:
    return next(number for number in range(100) if cut_off(World(), number, applied=True) is None)


def test_there_are_several_commits_to_be_cut_off_at() -> None:
    assert number_of_commits() == 5  # begin, fence, two batches of parts, end


@pytest.mark.parametrize("applied", [False, True], ids=["late", "applied"])
@pytest.mark.parametrize("number", range(5))
def test_a_run_that_was_cut_off_is_repeated(number: int, *, applied: bool) -> None:
    world = World()
    late = cut_off(world, number, applied=applied)
    assert late is not None
    again = world.finish()
    if number == 4 and applied:
        assert again == Restored(len(PARTS), fx.LogIndex(PARENT_ENTRIES), already=True)
        again = Restored(len(PARTS), fx.LogIndex(PARENT_ENTRIES))
    assert_restored(world, again)
    assert isinstance(world.session.perform(late), fx.Refused)
    assert_restored(world, again)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("arrives", [False, True])
def test_lost_answers_are_looked_up(number: int, *, arrives: bool) -> None:
    world = World()
    run = world.begin()
    outcome: object = None
    commits = 0
    result: RestoreOutcome | None = None
    try:
        while True:
            effect = run.send(outcome)
            lost = isinstance(effect, fx.Commit) and commits == number
            commits += isinstance(effect, fx.Commit)
            outcome = None if lost and not arrives else world.perform(effect)
            outcome = fx.Unknown() if lost else outcome
    except StopIteration as stop:
        result = stop.value
    if number == 4 and not arrives:
        assert result == NotRestored("coordination did not say in time what it has done; repeat it", again=True)
        result = world.finish()
    assert result is not None
    assert_restored(world, result)


def test_a_run_after_the_end_says_so_and_one_with_other_parts_is_refused() -> None:
    world = World()
    done = world.finish()
    again = world.finish()
    assert again == Restored(len(PARTS), fx.LogIndex(PARENT_ENTRIES), already=True)
    assert_restored(world, done)
    other = world.finish(parts=dict(list(PARTS.items())[1:]))
    assert isinstance(other, NotRestored)
    assert "is not being restored" in other.reason
    assert_restored(world, done)


def test_what_broke_between_two_runs_is_taken_back() -> None:
    world = World()
    cut_off(world, 4, applied=False)
    fewer = dict(list(PARTS.items())[3:])
    changed = {**fewer, Part("all", 9, 9, 0): "f" * 32}
    assert world.finish(parts=changed) == Restored(len(changed), fx.LogIndex(PARENT_ENTRIES))
    assert world.registered() == changed


def test_two_replicas_do_not_restore_one_table() -> None:
    world = World()
    cut_off(world, 2, applied=True)
    other = world.finish("r2")
    assert isinstance(other, NotRestored)
    assert "being restored from replica r1" in other.reason
    assert_restored(world, world.finish())


def test_a_table_that_is_there_is_left_alone() -> None:
    world = World()
    world.run(create_table(TABLE, b"metadata", b"columns"))
    outcome = world.finish()
    assert isinstance(outcome, NotRestored)
    assert "is not being restored" in outcome.reason
    other = World()
    other.run(create_table(TABLE, b"of another id", b"columns"))
    outcome = other.finish()
    assert isinstance(outcome, NotRestored)
    assert "another table" in outcome.reason


def test_an_active_replica_is_not_restored() -> None:
    world = World()
    cut_off(world, 1, applied=False)
    world.session.perform(fx.Commit(fx.Create(layout.is_active(ONE), b"somebody", ephemeral=True)))
    outcome = world.finish()
    assert isinstance(outcome, NotRestored)
    assert "is active" in outcome.reason


def test_who_joins_meanwhile_or_later_is_lost() -> None:
    world = World()
    cut_off(world, 2, applied=True)
    assert world.run(join_table(Replica(TABLE, "r2"))) is TableOutcome.DONE
    world.finish()
    assert world.run(join_table(Replica(TABLE, "r3"))) is TableOutcome.DONE
    for name in ("r2", "r3"):
        node = world.session.perform(fx.Get(layout.is_lost(Replica(TABLE, name))))
        assert node is not None
        assert node.value != NOT_LOST


def test_a_half_restored_table_can_be_dropped() -> None:
    world = World()
    cut_off(world, 2, applied=True)
    world.run(mark_dropped(TABLE))
    assert world.run(leave_table(ONE)) is TableOutcome.DONE
    assert world.run(remove_table(TABLE)) is TableOutcome.DONE
    assert not world.session.perform(fx.Exists(TABLE.path))


def test_the_log_begins_where_it_says() -> None:
    world = World()
    world.finish()
    start = world.run(read_start(TABLE))
    assert start is not None
    assert (start.first, start.is_whole) == (PARENT_ENTRIES, False)


# --- everything at every moment -----------------------------------------------------------------------------------------------

FEWER = dict(list(PARTS.items())[:BATCH])
"""What the second run finds whole: the others broke between the two."""


def broken_promise(world: World, late: fx.Commit, moment: int) -> str | None:
    """Let the second run go, and what the first one had under way arrive before its effect of this number.

    Returns
    -------
    str or None
        What went wrong; None: the replica was good at no moment at which its parts were not those of one run.
    """
    again = world.begin(parts=FEWER)
    outcome: object = None
    ended: RestoreOutcome | None = None
    effects = 0
    try:
        while True:
            effect = again.send(outcome)
            if effects == moment:
                world.perform(late)
            effects += 1
            if world.is_good() and world.registered() not in (PARTS, FEWER):
                return f"good with {len(world.registered())} parts"
            outcome = world.perform(effect)
    except StopIteration as stop:
        ended = stop.value
    if isinstance(ended, Restored) and world.registered() != FEWER:
        return f"the second run ended with {len(world.registered())} parts registered"
    if not world.is_good():
        world.finish(parts=FEWER)
    return None if world.is_good() else f"it can't be finished: {ended}"


def violations() -> list[str]:
    """Try every commit of a first run that comes late, at every moment of a second one."""
    found: list[str] = []
    for number in range(number_of_commits()):
        for moment in range(40):
            world = World()
            late = cut_off(world, number, applied=False)
            assert late is not None
            problem = broken_promise(world, late, moment)
            if problem is not None:
                found.append(f"commit {number} arrives before effect {moment}: {problem}")
    return found


def test_what_an_earlier_run_had_under_way_does_no_harm_whenever_it_arrives() -> None:
    assert violations() == []


def test_without_the_fence_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    unfenced = property(lambda run: (fx.Check(layout.restoring(run.replica.table), run.mark),))
    monkeypatch.setattr("replitree.protocol.rescue.restore._Run.proof", unfenced)
    assert any("parts registered" in found for found in violations())


def test_when_the_replica_were_good_at_once_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procedures, "LOST", NOT_LOST)
    assert any("good with" in found for found in violations())


# --- which parts, and where the log goes on -----------------------------------------------------------------------------------


def test_no_index_is_used_twice() -> None:
    assert first_parent([]) == 1
    assert first_parent([parse_part("all_0_9_1")]) == 1
    assert first_parent([parse_part(f"all_0_{PARENT_ENTRIES + 3}_1")]) == 2
    assert first_parent([parse_part(f"all_0_9_1_{PARENT_ENTRIES + 3}")]) == 2
    nearly = PARENT_ENTRIES - 5  # others may have gone on below the next parent already
    assert first_parent([parse_part(f"all_{nearly}_{nearly}_0")]) == 2


def test_covered_parts_are_left_out_and_overlapping_ones_are_told() -> None:
    names = ("all_0_3_1", "all_1_1_0", "all_4_4_0", "all_4_4_0_7", "x_1_1_0", "all_3_4_1", "all_9_9_0")
    chosen, aside = choose_parts(map(parse_part, names))
    assert [part.name for part in chosen] == ["all_0_3_1", "all_4_4_0_7", "all_9_9_0", "x_1_1_0"]
    assert [part.name for part in aside] == ["all_3_4_1"]
