"""Lost replicas of tables on an object store: they recover by manifests alone, and leave no mark without a part."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replitree.errors import CoordinationUnavailable
from replitree.protocol.core.effects import Effect, Procedure
from replitree.protocol.membership.table import LOST, NOT_LOST
from replitree.protocol.shares import owning
from replitree.protocol.shares.share_effects import Sharer
from replitree.replica.perform.availability import State
from replitree.replica.perform.runner import Performer
from replitree.replica.table import table_replica
from tests.replica.inprocess import rows, wait_for
from tests.replica.longlife import KEEP_MAX, KEEP_MIN, clean, insert, is_lost, recoveries, wait_active
from tests.replica.test_sharing import SharedCluster, local_files
from tests.shared.stores import FAULTY, FOLDER, on

Start = Callable[[int], SharedCluster]


@pytest.fixture
def start(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts replicas of a table, partitioned by `k` in tens, whose log keeps few entries."""
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.05)
    clusters: list[SharedCluster] = []

    def started(replicas: int) -> SharedCluster:
        clusters.append(
            SharedCluster(
                tmp_path,
                store_url,
                replicas,
                partition_by=["truncate(10, k)"],
                min_replicated_logs_to_keep=KEEP_MIN,
                max_replicated_logs_to_keep=KEEP_MAX,
                clean_log_delay_s=3600.0,
            )
        )
        return clusters[0]

    yield started
    for cluster in clusters:
        cluster.close()


def assert_owned(cluster: SharedCluster) -> None:
    """Every registered part is owned by its replica, nothing else is, and the store has just that."""
    cluster.wait_settled()
    owners = {owner for some in cluster.owners().values() for owner in some}
    assert owners == cluster.registered()


def go_on_without(cluster: SharedCluster) -> list[int]:
    """Let the first replica merge, change and drop what the stopped one has, until that is given up; return the keys."""
    first = cluster.nodes[0]
    assert first.insert(rows(0), token="again")[1]["outcome"] == "inserted"
    first.post("optimize", {"partition": "0", "final": True}, wait_s=20)
    first.post("mutations", {"sql": "DELETE FROM t WHERE k = 15"}, wait_s=20)
    first.post("drop", {"partition": "20"}, wait_s=20)
    insert(first, 100, 12)
    clean(first)
    assert is_lost(first, "r2") == LOST
    return sorted([*range(10), *range(10), *(k for k in range(10, 20) if k != 15), *range(30, 40), *range(100, 220)])


def owns_nothing(_sharer: Sharer, _parts: tuple[str, ...]) -> Procedure[tuple[str, ...]]:
    """Own nothing of what is held, in an activation."""
    yield from ()
    return ()


@pytest.mark.slow
@on(FOLDER, at_night=(FAULTY,))
def test_a_lost_replica_recovers_by_manifests_alone_and_owns_what_it_has(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(2)
    first, second = cluster.nodes
    insert(first, 0, 4)
    before = cluster.wait_alike()
    second.stop()
    keys = go_on_without(cluster)
    assert {owner for some in cluster.owners().values() for owner in some} >= {f"r2 {part}" for part in before}
    monkeypatch.setattr(owning, "own_held", owns_nothing)  # what the recovery registers it must own
    second.restart()
    wait_active(second)
    assert recoveries(second) == 1
    assert is_lost(first, "r2") == NOT_LOST
    wait_for(lambda: second.contents() == first.contents(), "it has what the first has")
    assert {file for part in second.contents() for file in local_files(second, part)} == {"manifest.json"}
    assert_owned(cluster)
    cluster.wait_equal(keys)
    for node in cluster.nodes:
        node.post("drop", {"all": True}, wait_s=20)
    cluster.wait_empty()


@pytest.mark.slow
def test_a_new_replica_takes_everything_over_of_a_table_whose_log_was_cleaned(start: Start) -> None:
    cluster = start(1)
    (first,) = cluster.nodes
    insert(first, 0, 12)
    clean(first)
    second = cluster.add("r2")
    wait_active(second)
    assert recoveries(second) == 1
    assert cluster.wait_alike()
    assert {file for part in second.contents() for file in local_files(second, part)} == {"manifest.json"}
    assert_owned(cluster)
    cluster.wait_equal(list(range(120)))


STEPS = (3, 8, 13, 18, 23, 28, 33, 38, 43, 48)
"""After how many effects of a recovery the process ends; it has a few more, but not many."""


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_recovery_that_is_cut_off_leaves_no_mark_without_a_part(
    start: Start, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(2)
    first, second = cluster.nodes
    insert(first, 0, 4)
    cluster.wait_alike()
    second.stop()
    keys = go_on_without(cluster)
    done: list[Effect] = []
    perform = Performer.perform

    def crashing(self: Performer, effect: Effect) -> object:
        """Do nothing any more from one step of the recovery on, as if the process had gone."""
        if self is second.table().performer and (done or second.table().availability.state is State.RECOVERING):
            done.append(effect)
            if len(done) > step:
                raise CoordinationUnavailable("the process is gone")
        return perform(self, effect)

    with monkeypatch.context() as crash:
        crash.setattr(Performer, "perform", crashing)
        second.restart()
        wait_for(lambda: len(done) > step, "it is cut off")
        second.stop()
    second.restart()
    wait_active(second)
    assert is_lost(first, "r2") == NOT_LOST
    cluster.wait_equal(keys)
    assert_owned(cluster)


@pytest.mark.slow
def test_a_lost_replica_without_its_disk_leaves_marks_that_fsck_finds_and_no_more(start: Start) -> None:
    """Nothing on its disk tells it to let go of what it had; but no part lacks a mark, and so no object is lost."""
    cluster = start(2)
    first, second = cluster.nodes
    insert(first, 0, 4)
    before = cluster.wait_alike()
    second.stop()
    keys = go_on_without(cluster)
    shutil.rmtree(second.config.data)
    second.restart()
    wait_active(second)
    cluster.wait_equal(keys)
    owners = {owner for some in cluster.owners().values() for owner in some}
    assert cluster.registered() <= owners
    assert owners - cluster.registered() <= {f"r2 {part}" for part in before}
