"""Joint inserts whose rows one server stages for all their shards: one request, and one commit for those that come at once."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.storage.files.durable import sync_files
from replitree.storage.parts import part_sync
from tests.replica.inprocess import InProcessCluster, Node, as_stream, rows, wait_for
from tests.replica.sharded import (
    NAMES,
    PLACE,
    LosesAnswers,
    creates,
    keys,
    log,
    nodes_of,
    sharded_cluster,
    wait_forgotten,
    wait_shown,
)

BOTH = "0:10,1:10"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas, each with both shards of `d`."""
    with sharded_cluster(tmp_path) as cluster:
        yield cluster


def ask(node: Node, first: int, token: str = "t", shards: str = BOTH, **query: object) -> tuple[int, Any]:
    """Insert ten rows from `first` on into the one shard, and ten from `first` + 100 on into the other."""
    said = urlencode({"map_version": 0, "token": token, "shards": shards, **query})
    body = as_stream(pa.concat_tables([rows(first), rows(first + 100)]))
    return node.request("POST", f"/v1/tables/d~0/joint/rows?{said}", body)


class Commits:
    """Notes the commits of joint inserts that a node sends, and holds back the first one until `go` is set."""

    def __init__(self, node: Node) -> None:
        self._real, self.go, self.sent = node.coordination.perform, threading.Event(), list[fx.Commit]()
        node.coordination.perform = self

    def __call__(self, effect: Any) -> Any:
        if isinstance(effect, fx.Commit) and creates("/tokens/")(effect):
            self.sent.append(effect)
            if len(self.sent) == 1:
                assert self.go.wait(30)
        return self._real(effect)


def at_once(node: Node, asked: list[dict[str, Any]]) -> tuple[Commits, list[tuple[int, Any]]]:
    """Send an insert, and the others while its commit is held back; return the commits, and the answers of the others."""
    commits, groups = Commits(node), node.table("d~0").joint_groups
    with ThreadPoolExecutor(1 + len(asked)) as pool:
        first = pool.submit(ask, node, 0, "first")
        wait_for(lambda: len(commits.sent) == 1, "the first commit is on its way")
        answers = [pool.submit(ask, node, **each) for each in asked]
        wait_for(lambda: groups.waiting == len(asked), "the others wait for it")
        commits.go.set()
        assert first.result()[1]["outcome"] == "inserted"
        return commits, [each.result() for each in answers]


def test_one_request_and_one_commit_bring_the_rows_of_several_shards(cluster: InProcessCluster) -> None:
    node, _ = cluster.nodes
    commits = Commits(node)
    commits.go.set()
    status, answer = ask(node, 0)
    assert (status, answer["outcome"], answer["rows"]) == (200, "inserted", 20)
    assert [(each["shard"], each["index"]) for each in answer["shards"]] == [("d~0", 0), ("d~1", 0)]
    (commit,) = commits.sent
    assert len(commit.operations) == 2 + 3 * 2, "a token, the map, and of each shard its epoch, its log and an entry"
    assert nodes_of(cluster, node.name, 1) == ()
    (one,), (other,) = log(cluster, 0), log(cluster, 1)
    assert (one.joint, one.shards) == (other.joint, other.shards) == (answer["joint"], 2)
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))
    for shard in range(2):
        wait_forgotten(node, shard)


def test_inserts_that_come_at_once_share_a_commit_and_each_has_its_own_answer(cluster: InProcessCluster) -> None:
    node, other = cluster.nodes
    commits, answers = at_once(node, [{"first": 200 * each, "token": f"t{each}"} for each in range(1, 5)])
    assert [answer["outcome"] for _, answer in answers] == ["inserted"] * 4
    assert [answer["rows"] for _, answer in answers] == [20] * 4
    assert len(commits.sent) == 2
    assert [len(log(cluster, shard)) for shard in range(2)] == [2, 2]
    wait_shown(cluster, 0, [key for each in range(5) for key in keys(200 * each)])
    assert [ask(other, 9_000, f"t{each}")[1]["outcome"] for each in range(1, 5)] == ["duplicate"] * 4
    for shard in range(2):
        wait_forgotten(node, shard)


def test_of_inserts_that_share_a_commit_a_duplicate_is_told_so_and_the_others_are_inserted(
    cluster: InProcessCluster,
) -> None:
    node, other = cluster.nodes
    assert ask(other, 1_000, "t2")[1]["outcome"] == "inserted"
    _, answers = at_once(node, [{"first": 200 * each, "token": f"t{each}"} for each in range(1, 4)])
    assert [answer["outcome"] for _, answer in answers] == ["inserted", "duplicate", "inserted"]
    wait_shown(cluster, 1, [key for first in (100, 300, 700, 1_100) for key in keys(first)])
    for shard in range(2):
        wait_forgotten(node, shard)


def test_inserts_by_an_old_map_do_not_hold_up_those_by_the_new_one(cluster: InProcessCluster) -> None:
    node, _ = cluster.nodes
    path = layout.shard_map(PLACE)
    asked: list[dict[str, Any]] = [
        {"first": 200 * each, "token": f"t{each}", "map_version": each % 2} for each in range(1, 5)
    ]
    commits, groups = Commits(node), node.table("d~0").joint_groups
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(ask, node, 0, "first")
        wait_for(lambda: len(commits.sent) == 1, "the first commit is on its way")
        answers = [pool.submit(ask, node, **each) for each in asked]
        wait_for(lambda: groups.waiting == len(asked), "the others wait for it")
        cluster.admin.perform(fx.Commit(fx.Set(path, cluster.admin.perform(fx.Get(path)).value, fx.ANY_VERSION)))
        commits.go.set()
        assert first.result()[1] == {"outcome": "map_changed"}
        told = [each.result()[1]["outcome"] for each in answers]
    assert told == ["inserted", "map_changed", "inserted", "map_changed"]
    wait_shown(cluster, 0, [*keys(200), *keys(600)])


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_lost_answer_is_settled_for_all_shards(cluster: InProcessCluster, is_applied: bool) -> None:
    node, _ = cluster.nodes
    loses = LosesAnswers(node, creates("/tokens/"), is_applied=is_applied)
    assert ask(node, 0)[1]["outcome"] == "inserted"
    assert loses.lost == 1
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


def test_a_shard_that_activates_anew_before_the_commit_refuses_it_and_nothing_is_left(
    cluster: InProcessCluster,
) -> None:
    node, _ = cluster.nodes
    commits = Commits(node)
    host = layout.host(node.table("d~1").replica)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, node, 0)
        wait_for(lambda: len(commits.sent) == 1, "the commit is on its way")
        cluster.admin.perform(fx.Commit(fx.Set(host, cluster.admin.perform(fx.Get(host)).value, fx.ANY_VERSION)))
        commits.go.set()
        status, answer = asked.result()
    assert (status, answer["outcome"], answer["shard"]) == (200, "participant_gone", "d~1")
    assert log(cluster, 0) == log(cluster, 1) == []
    for shard in range(2):
        wait_forgotten(node, shard)


@pytest.mark.parametrize(
    "shards", ["0:10,1:9", "1:10,0:10", "0:10,0:10", "0:10,1:0", "0:10,1", "x", "0:10,1:-3", "0:20,7:1"]
)
def test_shards_that_do_not_fit_the_rows_are_refused(cluster: InProcessCluster, shards: str) -> None:
    node, _ = cluster.nodes
    status, answer = ask(node, 0, shards=shards)
    # A shard that this server does not have may be at another one.
    assert (status, answer["error"]) == ((503, "ReadOnly") if "7" in shards else (400, "BadInput")), answer
    assert log(cluster, 0) == log(cluster, 1) == []
    assert all(not node.table(name).store.stagings() for name in NAMES)


def test_an_insert_with_a_quorum_into_several_shards_is_prepared_shard_by_shard(cluster: InProcessCluster) -> None:
    node, _ = cluster.nodes
    assert ask(node, 0, quorum="all")[1]["error"] == "BadInput"


def test_the_files_of_all_shards_are_synced_before_the_commit(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = cluster.nodes
    synced, commits = list[str](), Commits(node)

    def sync(paths: Sequence[Path | str]) -> None:
        assert not commits.sent, "synced after the commit"
        synced.extend(map(str, paths))
        sync_files(paths)

    monkeypatch.setattr(part_sync, "sync_files", sync)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, node, 0)
        wait_for(lambda: len(commits.sent) == 1, "the commit is about to be sent")
        monkeypatch.undo()
        for name in NAMES:
            staging = node.table(name).store.staging
            (folder,) = staging.iterdir()
            assert {str(path) for path in (staging, folder, *folder.iterdir())} <= set(synced)
        commits.go.set()
        assert asked.result()[1]["outcome"] == "inserted"


def test_a_disk_that_does_not_sync_the_files_of_one_shard_refuses_the_insert_and_nothing_is_left(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = cluster.nodes

    def sync(paths: Sequence[Path | str]) -> None:
        if any("d~1" in str(path) for path in paths):
            raise OSError(errno.EIO, "a test's disk")
        sync_files(paths)

    monkeypatch.setattr(part_sync, "sync_files", sync)
    status, answer = ask(node, 0)
    assert (status, answer["error"]) == (507, "StoreError"), answer
    monkeypatch.undo()
    assert log(cluster, 0) == log(cluster, 1) == []
    for shard in range(2):
        wait_forgotten(node, shard)
    assert all(not node.table(name).store.stagings() for name in NAMES)
    # The same token, once the disk takes writes again.
    wait_for(lambda: ask(node, 0)[1].get("outcome") == "inserted", "the replica takes inserts again")
