"""How single effects end: every way, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree_verify.effects.table import branches
from replitree_verify.engine.initial import table_tree
from replitree_verify.outcomes.branch import Branch, Request, Scene
from replitree_verify.outcomes.branches import can_apply_later, deliver
from replitree_verify.outcomes.local import Here
from replitree_verify.world.disk import Disk, Folder
from replitree_verify.world.faults import Fault, budget_of
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import TABLE, Model

R1 = Model("", "", (("r1", "r1"),), (), {}).replica("r1")
EVERY_FAULT = frozenset(Fault)
NONE: frozenset[Fault] = frozenset()


def active_tree(*more: fx.Create) -> Tree:
    tree, outcome = table_tree(("r1",)).commit([fx.Set(layout.host(R1), b"r1a", 0), *more], session=1)
    assert isinstance(outcome, fx.Applied)
    return tree


def scene(
    faults: frozenset[Fault] = NONE,
    tree: Tree | None = None,
    view: Tree | None = None,
    disk: Disk | None = None,
    disks: dict[str, Disk] | None = None,
) -> Scene:
    memory = Memory(0, 1, epoch=fx.Epoch(1))
    own = disk or Disk()
    here = Here(R1, b"r1a", memory, own, tree or active_tree(), {"r1": own, **(disks or {})}, ("p", "q"))
    return Scene(here, view, {"r1": memory}, faults)


def ways(effect: Any, around: Scene) -> list[Branch]:
    return list(branches(effect, around))


INSERT = fx.Commit(fx.Check(layout.host(R1), 1), fx.Create(layout.log_create(TABLE), b"", sequential=True))


def test_a_commit_is_applied_or_unknown_and_then_applied_or_on_its_way() -> None:
    applied, unknown, in_flight = ways(INSERT, scene(EVERY_FAULT))
    assert isinstance(applied.outcome, fx.Applied)
    assert isinstance(unknown.outcome, fx.Unknown)
    assert unknown.here.tree == applied.here.tree
    assert (in_flight.outcome, in_flight.here.tree) == (fx.Unknown(), active_tree())
    assert in_flight.sent is not None


def test_without_faults_a_commit_ends_in_one_way() -> None:
    assert len(ways(INSERT, scene())) == 1


def test_a_commit_that_no_later_state_applies_is_not_kept_in_flight() -> None:
    fenced = fx.Commit(fx.Check(layout.host(R1), 0), fx.Create(layout.log_create(TABLE), b"", sequential=True))
    refused, unknown = ways(fenced, scene(EVERY_FAULT))
    assert not isinstance(refused.outcome, fx.Applied)
    assert (unknown.outcome, unknown.sent) == (fx.Unknown(), None)


@pytest.mark.parametrize(
    ("operation", "later"),
    [
        (fx.Check(layout.host(R1), 0), False),
        (fx.Check(layout.host(R1), 1), True),
        (fx.Check(layout.host(R1), 2), True),
        (fx.Set(layout.log_pointer(R1), b"1", 0), True),
        (fx.Create(f"{layout.blocks(TABLE)}/a"), False),
        (fx.Create(f"{layout.blocks(TABLE)}/b"), True),
        (fx.Check("/t/nowhere", 0), True),
    ],
)
def test_what_can_apply_later(operation: Any, later: bool) -> None:
    tree = active_tree(fx.Create(f"{layout.blocks(TABLE)}/a"))
    request = Request(R1, b"r1a", 1, fx.Epoch(1), (operation, fx.Create("/t/new")))
    assert can_apply_later(request, tree) is later


def test_what_only_checks_changes_nothing_later() -> None:
    request = Request(R1, b"r1a", 1, fx.Epoch(1), (fx.Check(layout.host(R1), 1), fx.Check("/t/nowhere", 0)))
    assert not can_apply_later(request, active_tree())


@pytest.mark.parametrize(
    ("me", "epoch", "operations", "breach"),
    [
        (b"r1a", 1, (fx.Create("/t/x"),), False),
        (b"r1a", 0, (fx.Create("/t/x"),), True),
        (b"r1a", None, (fx.Create("/t/x"),), True),
        (b"r1b", None, (fx.Set("/t/replicas/r1/host", b"r1b", 1),), False),
        (b"r1b", 1, (fx.Set("/t/replicas/r1/host", b"r1b", 1),), True),
        (b"r1a", 1, (fx.Set("/t/replicas/r1/host", b"r1a", 1),), False),
    ],
)
def test_who_may_change_the_table(me: bytes, epoch: Any, operations: Any, breach: bool) -> None:
    _, outcome, found = deliver(Request(R1, me, 1, epoch, operations), active_tree())
    assert isinstance(outcome, fx.Applied)
    assert (found is not None) is breach


def test_a_lagging_session_reads_at_its_view_or_at_the_present() -> None:
    view, tree = active_tree(), active_tree(fx.Create("/t/x", b"new"))
    stale, fresh = ways(fx.Get("/t/x"), scene(tree=tree, view=view))
    assert (stale.outcome, stale.fate, stale.fresh) == (None, "stale", False)
    assert fresh.outcome is not None
    assert fresh.fresh
    (same,) = ways(fx.Get("/t/log"), scene(tree=tree, view=view))
    assert not same.fresh


def test_a_view_can_move_on_in_the_middle_of_a_batch() -> None:
    view, tree = active_tree(), active_tree(fx.Create("/t/x"), fx.Create("/t/y"))
    shown = [branch.outcome.nodes for branch in ways(fx.GetMany(("/t/x", "/t/y")), scene(tree=tree, view=view))]
    there = tree.get("/t/x")
    assert shown == [(None, None), (there, there), (None, there)]


def test_a_watch_can_be_newer_than_the_reads_before_it() -> None:
    view, tree = active_tree(), active_tree(fx.Create("/t/x"), fx.Create("/t/y"))
    shown = [branch.outcome for branch in ways(fx.GetMany(("/t/x",), watch="/t/y"), scene(tree=tree, view=view))]
    assert fx.Many((None,), watched=True) in shown


def test_sync_ends_the_lag_and_a_read_may_find_nobody() -> None:
    synced, deposed, closed = ways(fx.Sync("/t"), scene(EVERY_FAULT, view=active_tree()))
    assert synced.fresh
    assert not deposed.fresh
    assert closed.closes


def test_staging_is_whole_torn_or_refused() -> None:
    whole, torn, refused = ways(fx.Stage(fx.StagingId("s.0"), (fx.RequestId(1),)), scene(EVERY_FAULT))
    assert whole.here.disk.folders == (Folder(fx.StagingId("s.0"), (("p", "p:1"), ("q", "q:1"))),)
    assert torn.dies
    assert torn.here.disk.folders[0].torn
    assert isinstance(refused.outcome, fx.StoreFailed)


def test_a_process_can_die_between_two_renames() -> None:
    disk = Disk((Folder(fx.StagingId("s.0"), (("p", "p:1"), ("q", "q:1"))),))
    names = (("p", "p_0_0_0"), ("q", "q_0_0_0"))
    done, half, failed = ways(fx.Publish(fx.StagingId("s.0"), names), scene(EVERY_FAULT, disk=disk))
    assert (done.here.disk.folders, len(done.here.disk.parts)) == ((), 2)
    assert half.dies
    assert half.here.disk.parts == (("p_0_0_0", "p:1"),)
    assert failed.here.disk == disk


def test_a_fetch_finds_its_source_or_not() -> None:
    source = Disk().with_part("p_0_0_0", "p:1")
    fetch = fx.FetchMany((fx.FetchPart("p_0_0_0", "p:1", ("r2",)),))
    fetched, failed = ways(fetch, scene(EVERY_FAULT, disks={"r2": source}))
    assert fetched.outcome == (fx.Fetched("p_0_0_0"),)
    assert isinstance(failed.outcome[0], fx.NotFetched)
    (nothing,) = ways(fetch, scene(EVERY_FAULT, disks={"r2": Disk()}))
    assert isinstance(nothing.outcome[0], fx.NotFetched)


def test_budgets_count_each_kind_apart() -> None:
    budget = budget_of({Fault.CRASH: 2, Fault.STALE: 1})
    assert budget - Fault.CRASH.cost - Fault.STALE.cost == budget_of({Fault.CRASH: 1})
