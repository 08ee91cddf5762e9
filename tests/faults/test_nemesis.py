"""Each fault does what its name says while it lasts, and is gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.table import Table
from replitree.errors import ReplitreeError
from tests.faults import checks
from tests.faults.cluster import CLIENT, FaultCluster
from tests.faults.disk import can_mount
from tests.faults.nemesis import Nemesis
from tests.faults.schedule import DOWN, UP, Round, Strike
from tests.faults.workload import SCHEMA, rows
from tests.waiting import wait_for

pytestmark = pytest.mark.system

TRY_S = 1.5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    with FaultCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def table(cluster: FaultCluster) -> Table:
    return cluster.connection.create_table("t", SCHEMA, order_by="id", partition_by="writer", wait_replicas=3)


@pytest.fixture
def nemesis(cluster: FaultCluster, table: Table) -> Iterator[Nemesis]:
    """A nemesis; afterwards every replica is well and equal to the others."""
    nemesis = Nemesis(cluster, lambda name, part: checks.check_part(cluster, table, name, part), lambda _: None)
    yield nemesis
    nemesis.calm()
    checks.wait_until_equal(table, cluster.names)
    checks.check_health(cluster, table)


class Rows:
    """Hands out rows that were not inserted yet."""

    def __init__(self) -> None:
        self.next = 0

    def insert(self, table: Table, replica: str, timeout_s: float = 30.0) -> None:
        self.next += 10
        table.insert(
            rows(range(self.next - 10, self.next)), token=f"t{self.next}", replica=replica, timeout_s=timeout_s
        )


@pytest.fixture(scope="module")
def fresh() -> Rows:
    return Rows()


def refuses(table: Table, fresh: Rows, replica: str) -> bool:
    """Whether an insert at this replica gets no good answer in a short time."""
    return complaint(table, fresh, replica) != ""


def complaint(table: Table, fresh: Rows, replica: str) -> str:
    """Return what an insert at this replica hears instead of a good answer; nothing when all is well."""
    try:
        fresh.insert(table, replica, TRY_S)
    except ReplitreeError as error:
        return str(error)
    return ""


def state(pid: int) -> str:
    """Return what the kernel says of a process: R, S, D, T (stopped), Z."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_active(table: Table, name: str) -> bool:
    return any(replica.name == name and replica.active for replica in table.replicas())


# --- processes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "targets"), [("kill", ("r1",)), ("kill-two", ("r2", "r3")), ("kill-all", ("r1", "r2", "r3"))]
)
def test_a_killed_process_is_gone_and_another_one_comes(
    cluster: FaultCluster, nemesis: Nemesis, kind: str, targets: tuple[str, ...]
) -> None:
    before = {name: cluster.process(name).pid for name in cluster.names}
    with nemesis.strike(Strike(kind, 0, 0, targets)):
        assert {name for name in cluster.names if not cluster.process(name).pid} == set(targets)
        assert all(not Path(f"/proc/{before[name]}").exists() for name in targets)
    nemesis.calm()
    assert {name for name in cluster.names if cluster.process(name).pid != before[name]} == set(targets)


def test_a_paused_process_stands_still_and_goes_on(cluster: FaultCluster, nemesis: Nemesis) -> None:
    pid = cluster.process("r1").pid
    with nemesis.strike(Strike("pause", 0, 0, ("r1",))):
        wait_for(lambda: state(pid) == "T", "r1 stands still")
    wait_for(lambda: state(pid) != "T", "r1 goes on")


def test_a_long_pause_ends_the_session(cluster: FaultCluster, table: Table, nemesis: Nemesis) -> None:
    before = cluster.session_of("r1")
    with nemesis.strike(Strike("long-pause", 0, 0, ("r1",))):
        wait_for(lambda: not is_active(table, "r1"), "the ensemble ends the session")
    wait_for(lambda: is_active(table, "r1"), "r1 is active again")
    assert cluster.session_of("r1") not in (None, before)


# --- sessions -----------------------------------------------------------------------------------------------------------


def test_an_expired_session_is_over_though_its_process_runs(cluster: FaultCluster, nemesis: Nemesis) -> None:
    pid, before = cluster.process("r2").pid, cluster.session_of("r2")
    assert before is not None
    with nemesis.strike(Strike("expire", 0, 0, ("r2",))):
        wait_for(lambda: cluster.session_of("r2") not in (None, before), "r2 has another session")
    assert cluster.process("r2").pid == pid


# --- the ensemble -------------------------------------------------------------------------------------------------------


def test_a_killed_server_is_gone_and_the_others_serve(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    with nemesis.strike(Strike("zk-kill", 0, 0, ("zk2",))):
        assert [cluster.ensemble.pid(index) is None for index in range(3)] == [False, True, False]
        fresh.insert(table, "r1")
    assert cluster.ensemble.pid(1) is not None


def test_without_most_servers_nothing_is_inserted(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    with nemesis.strike(Strike("zk-kill-most", 0, 0, ("zk1", "zk3"))):
        wait_for(lambda: refuses(table, fresh, "r1"), "r1 refuses")
    wait_for(lambda: cluster.ensemble.leader() is not None, "the ensemble serves again")


@pytest.mark.parametrize("kind", ["zk-kill-leader", "zk-pause-leader"])
def test_the_ensemble_without_its_leader_finds_another(cluster: FaultCluster, nemesis: Nemesis, kind: str) -> None:
    wait_for(lambda: cluster.ensemble.leader() is not None, "somebody leads")
    before = cluster.ensemble.leader()
    with nemesis.strike(Strike(kind, 0, 0)):
        wait_for(lambda: cluster.ensemble.leader() not in (None, before), "somebody else leads")
    wait_for(lambda: all(cluster.ensemble.pid(index) for index in range(3)), "all servers run")


@pytest.mark.parametrize("way", ["both", UP, DOWN])
def test_a_leader_that_is_isolated_is_replaced(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows, way: str
) -> None:
    wait_for(lambda: cluster.ensemble.leader() is not None, "somebody leads")
    before = cluster.ensemble.leader()
    assert before is not None
    with nemesis.strike(Strike("isolate-server", 0, 0, (cluster.servers[before],), way)):
        wait_for(lambda: cluster.ensemble.leader() not in (None, before), "somebody else leads")
        wait_for(lambda: not refuses(table, fresh, "r1"), "r1 serves")


def test_servers_that_are_all_cut_from_each_other_have_no_leader_and_find_one_again(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    cuts = [Strike("cut-ensemble", 0, 0, pair) for pair in (("zk1", "zk2"), ("zk2", "zk3"), ("zk1", "zk3"))]
    with nemesis.strike(cuts[0]), nemesis.strike(cuts[1]), nemesis.strike(cuts[2]):
        links = [cluster.link(one, other) for one in cluster.servers for other in cluster.servers if one != other]
        before = [tuple(link.passed) for link in links]
        wait_for(lambda: cluster.ensemble.leader() is None, "nobody leads")
        assert refuses(table, fresh, "r1")
        assert [tuple(link.passed) for link in links] == before
    wait_for(lambda: cluster.ensemble.leader() is not None, "somebody leads", 30.0)


def test_two_servers_that_are_cut_from_each_other_need_the_third(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    with nemesis.strike(Strike("cut-ensemble", 0, 0, ("zk1", "zk2"), drops=True)):
        wait_for(lambda: not refuses(table, fresh, "r1"), "r1 serves")


def test_a_slow_ensemble_serves(cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows) -> None:
    with nemesis.strike(Strike("slow-ensemble", 0, 0, ("zk1",), amount=0.1)):
        wait_for(lambda: not refuses(table, fresh, "r1"), "r1 serves")


# --- links --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["both", UP, DOWN])
def test_a_replica_without_zookeeper_takes_no_insert_and_the_others_do(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows, way: str
) -> None:
    with nemesis.strike(Strike("cut-zookeeper", 0, 0, ("r1",), way)):
        assert refuses(table, fresh, "r1")
        fresh.insert(table, "r2")


def test_a_long_cut_from_zookeeper_ends_the_session(table: Table, nemesis: Nemesis) -> None:
    with nemesis.strike(Strike("long-cut-zookeeper", 0, 0, ("r3",), drops=True)):
        wait_for(lambda: not is_active(table, "r3"), "the ensemble ends the session")
    wait_for(lambda: is_active(table, "r3"), "r3 is active again")


def test_a_replica_without_one_server_goes_to_another(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    connected = next(name for name in cluster.servers if cluster.link("r1", name).open_connections)
    with nemesis.strike(Strike("cut-server", 0, 0, ("r1", connected))):
        wait_for(lambda: not refuses(table, fresh, "r1"), "r1 serves")
        assert any(cluster.link("r1", name).open_connections for name in cluster.servers if name != connected)


def test_between_peers_that_are_cut_nothing_passes(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    links = (cluster.link("r1", "r2"), cluster.link("r2", "r1"))
    with nemesis.strike(Strike("cut-peers", 0, 0, ("r1", "r2"))):
        before = [tuple(link.passed) for link in links]
        fresh.insert(table, "r1")
        fresh.insert(table, "r2")
        table.replica("r3").snapshot(timeout_s=20.0)
        assert [tuple(link.passed) for link in links] == before


def test_whoever_is_cut_from_a_writer_soon_has_its_rows_from_another(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    with nemesis.strike(Strike("cut-peers", 0, 0, ("r1", "r3"))):
        fresh.insert(table, "r1")
        index = table.replica("r1").snapshot().index
        table.replica("r2").snapshot(min_index=index - 1, timeout_s=15.0)
        table.replica("r3").snapshot(min_index=index - 1, timeout_s=15.0)


def test_a_client_that_is_cut_off_reaches_the_other_replicas(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    with nemesis.strike(Strike("cut-client", 0, 0, ("r1",))):
        before = tuple(cluster.link(CLIENT, "r1").passed)
        assert refuses(table, fresh, "r1")
        assert tuple(cluster.link(CLIENT, "r1").passed) == before
        fresh.insert(table, "r2")


def test_an_isolated_replica_reaches_nobody(cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows) -> None:
    with nemesis.strike(Strike("isolate", 0, 0, ("r2",), drops=True)):
        links = cluster.links("r2")
        assert len(links) == 3 + 2 * 2 + 1
        before = [tuple(link.passed) for link in links]
        assert refuses(table, fresh, "r2")
        assert [tuple(link.passed) for link in links] == before


@pytest.mark.parametrize(("kind", "link"), [("slow-zookeeper", ("r1", "zk1")), ("slow-peers", ("r2", "r1"))])
def test_a_slow_link_stays_open(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows, kind: str, link: tuple[str, str]
) -> None:
    with nemesis.strike(Strike(kind, 0, 0, ("r1",), amount=0.1)):
        fresh.insert(table, "r1")
        checks.wait_until_equal(table, cluster.names)
    assert cluster.link(*link).accepted


def test_a_reset_ends_every_connection_of_a_replica(cluster: FaultCluster, nemesis: Nemesis) -> None:
    accepted = sum(link.accepted for link in cluster.links("r1", *cluster.servers))
    with nemesis.strike(Strike("reset", 0, 0, ("r1",))):
        wait_for(
            lambda: sum(link.accepted for link in cluster.links("r1", *cluster.servers)) > accepted, "r1 connects anew"
        )


def test_a_link_that_refuses_lets_nobody_in(table: Table, nemesis: Nemesis, fresh: Rows) -> None:
    with nemesis.strike(Strike("refuse", 0, 0, ("r1",))):
        assert refuses(table, fresh, "r1")
        fresh.insert(table, "r3")


# --- disks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strike", "words"), [
    (Strike("disk-full", 0, 0, ("r1",)), "disk"),
    (Strike("disk-failing", 0, 0, ("r1",), amount=1.0), "disk"),
], ids=["full", "failing"])  # fmt: skip
def test_a_bad_disk_takes_no_insert_and_the_others_do(
    table: Table, nemesis: Nemesis, fresh: Rows, strike: Strike, words: str
) -> None:
    with nemesis.strike(strike):
        wait_for(lambda: words in complaint(table, fresh, "r1"), "r1 says what is wrong")
        fresh.insert(table, "r2")
    wait_for(lambda: not refuses(table, fresh, "r1"), "r1 takes inserts again")


def test_a_corrupt_part_is_found_and_fetched_again(
    cluster: FaultCluster, table: Table, nemesis: Nemesis, fresh: Rows
) -> None:
    fresh.insert(table, "r1")
    checks.wait_until_equal(table, cluster.names)
    with nemesis.strike(Strike("corrupt", 0, 0, ("r3",), seed=1)):
        wait_for(lambda: any(cluster.folder.glob("r3/data/tables/*/detached/*")), "the corrupt part is set aside")
    wait_for(lambda: not checks.ailments(cluster, table), "it is fetched again")


def test_a_mounted_disk_is_really_full(tmp_path: Path) -> None:
    if not can_mount(tmp_path / "try"):
        pytest.skip("a file system of its own can be mounted by root only")
    with FaultCluster(tmp_path / "cluster", replicas=1, servers=1, mounted=True) as cluster:
        table = cluster.connection.create_table("t", SCHEMA, order_by="id", wait_replicas=1)
        fresh = Rows()
        fresh.insert(table, "r1")
        nemesis = Nemesis(cluster, say=lambda _: None)
        with nemesis.strike(Strike("disk-full", 0, 0, ("r1",))):
            with pytest.raises(OSError, match="No space left"):
                (cluster.folder / "r1" / "data" / "more").write_bytes(bytes(1 << 20))
            assert refuses(table, fresh, "r1")
        (cluster.folder / "r1" / "data" / "more").unlink()
        wait_for(lambda: not refuses(table, fresh, "r1"), "r1 takes inserts again")


# --- rounds -------------------------------------------------------------------------------------------------------------


def test_a_round_overlaps_its_strikes_and_heals_them_all(cluster: FaultCluster, nemesis: Nemesis) -> None:
    strikes = (
        Strike("pause", 0.0, 0.3, ("r1",)),
        Strike("kill", 0.1, 0.1, ("r1",)),
        Strike("isolate", 0.2, 0.2, ("r2",)),
    )
    nemesis.round(Round(1, 0.0, strikes, calm=True))
    assert nemesis.struck == {"pause": 1, "kill": 1, "isolate": 1}
    assert all(cluster.process(name).is_ready() for name in cluster.names)


def test_a_process_that_ends_for_another_reason_is_reported(cluster: FaultCluster, nemesis: Nemesis) -> None:
    process = cluster.process("r1")
    os.kill(process.pid, 15)
    wait_for(lambda: not process.pid, "r1 ends")
    with pytest.raises(AssertionError, match="r1 ended by itself"):
        nemesis.look_after()
    process.launch()
