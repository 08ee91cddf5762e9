"""Joint inserts on running replicas: all shards have the rows or none has, whatever dies and whichever answer is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, GetEntry, SettleEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import join_table
from replitree.replica.perform.append_doubt import appends
from tests.replica.inprocess import InProcessCluster, Node, as_stream, rows, wait_for
from tests.replica.sharded import (
    NAMES,
    PLACE,
    SHARDS,
    LosesAnswers,
    commit,
    creates,
    insert,
    keys,
    log,
    nodes_of,
    prepare,
    sharded_cluster,
    try_to_prepare,
    wait_forgotten,
    wait_shown,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas, each with both shards of `d`, and a plain table `t`."""
    with sharded_cluster(tmp_path) as cluster:
        yield cluster


def written(answer: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Where an insert is, as its answer says."""
    return [(each["shard"], each["index"]) for each in answer["shards"]]


# --- without trouble --------------------------------------------------------------------------------------------------------


def test_a_process_that_coordinates_for_two_shards_names_each_joint_insert_differently(
    cluster: InProcessCluster,
) -> None:
    first, _ = cluster.nodes
    joints = set[str]()
    for shard in (0, 1):
        own = prepare(first, shard, 10 * shard, coordinates="true")
        status, answer = commit(first, [own], f"t{shard}")
        assert (status, answer["outcome"]) == (200, "inserted")
        joints.add(answer["joint"])
    assert len(joints) == 2


def test_both_shards_show_the_rows_of_one_commit(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    status, answer = insert(first, second, 0)
    assert (status, answer["outcome"], answer["rows"]) == (200, "inserted", 20)
    assert written(answer) == [("d~0", 0), ("d~1", 0)]
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))
    (one,), (other,) = log(cluster, 0), log(cluster, 1)
    assert (one.joint, one.shards, one.replica) == (answer["joint"], 2, "r1")
    assert (other.joint, other.replica) == (answer["joint"], "r2")
    assert nodes_of(cluster, "r2", 1) == ()
    wait_forgotten(first, 0)
    wait_forgotten(second, 1)


def test_the_same_token_is_a_duplicate_at_whichever_replica_and_shard(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    told = insert(first, second, 0)[1]
    status, again = insert(second, first, 500)
    assert (status, again["outcome"], again["joint"]) == (200, "duplicate", told["joint"])
    assert written(again) == written(told)
    own, its = prepare(second, 1, 0, coordinates="true"), prepare(second, 0, 0)
    assert commit(second, (own, its))[1]["outcome"] == "duplicate"
    wait_shown(cluster, 0, keys(0))
    assert [len(log(cluster, shard)) for shard in range(2)] == [1, 1]


def test_one_process_may_have_the_rows_of_both_shards(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    assert insert(first, first, 0)[1]["outcome"] == "inserted"
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


def test_rows_of_one_shard_are_an_entry_as_any_other(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    status, answer = commit(first, (prepare(first, 1, 0, coordinates="true"),))
    assert (status, answer["outcome"], written(answer)) == (200, "inserted", [("d~1", 0)])
    wait_shown(cluster, 1, keys(0))
    (entry,) = log(cluster, 1)
    assert isinstance(entry, GetEntry)
    assert entry.format == 1


def test_rows_of_one_shard_go_in_by_one_request(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes

    def ask(node: Node, start: int, **query: object) -> tuple[int, Any]:
        path = f"/v1/tables/d~1/joint/rows?{urlencode({'map_version': 0, 'token': 'a', **query})}"
        return node.request("POST", path, as_stream(rows(start)))

    status, answer = ask(first, 0)
    assert (status, answer["outcome"], answer["rows"], written(answer)) == (200, "inserted", 10, [("d~1", 0)])
    assert ask(second, 500)[1]["outcome"] == "duplicate"
    assert ask(first, 500, map_version=1, token="b") == (200, {"outcome": "map_changed"})
    assert ask(first, 500, quorum="all", token="c")[1]["settled"] == 2
    assert ask(first, 500, token="")[0] == 400
    wait_shown(cluster, 1, [*keys(0), *keys(500)])
    for node in (first, second):
        wait_forgotten(node, 1)


def test_an_upload_is_prepared_with_the_files_that_tasks_have_sent(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    share = prepared_upload(second, 1)
    own = prepare(first, 0, 0, coordinates="true")
    assert commit(first, (own, share))[1]["outcome"] == "inserted"
    wait_shown(cluster, 1, keys(100))
    wait_forgotten(second, 1)


def prepared_upload(node: Node, shard: int, **query: object) -> dict[str, Any]:
    """Write ten rows into an upload of a shard, and prepare it."""
    from replitree.storage.parts.encode import stage_table

    table = node.table(NAMES[shard])
    opened = node.post("uploads", table=NAMES[shard])
    folder = Path(opened["path"])
    manifests = stage_table(rows(100), table.definition, folder.parent, prefix=f"{folder.name}/")
    body = {"manifests": [json.loads(manifest.encode()) for manifest in manifests]}
    for path in folder.glob("*/manifest.json"):
        path.unlink()
    where, asked = f"uploads/{opened['upload']}/prepare", {"map_version": 0, **query}
    share: dict[str, Any] = node.post(where, body, table=NAMES[shard], **asked)
    again = node.post(where, body, table=NAMES[shard], **asked)
    assert again == share, "a client whose answer was lost gets the same one"
    return share


# --- refused ----------------------------------------------------------------------------------------------------------------


def test_rows_that_were_split_by_an_old_map_are_refused(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    path = layout.shard_map(PLACE)
    value = cluster.admin.perform(fx.Get(path)).value
    cluster.admin.perform(fx.Commit(fx.Set(path, value, fx.ANY_VERSION)))
    assert insert(first, second, 0) == (200, {"outcome": "map_changed"})
    assert insert(first, second, 0, map_version=1)[1]["outcome"] == "inserted"
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


def test_a_participant_that_was_restarted_is_gone_and_the_other_rows_stay_prepared(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    own, its = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    second.restart()
    wait_for(lambda: cluster.is_active(second, "d~1"), "it is active again")
    status, answer = commit(first, (own, its))
    assert (status, answer["outcome"], answer["shard"], answer["replica"]) == (200, "participant_gone", "d~1", "r2")
    assert log(cluster, 0) == log(cluster, 1) == []
    wait_for(lambda: nodes_of(cluster, "r2", 1) == (), "the node of the earlier process is forgotten")
    assert second.table("d~1").store.stagings() == (), "its rows were swept"
    assert commit(first, (own, prepare(second, 1, 100)))[1]["outcome"] == "inserted"
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


def test_a_coordinator_that_was_restarted_tells_by_the_token(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    shares = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    told = commit(first, shares)[1]
    lost = prepare(first, 0, 200, coordinates="true"), prepare(second, 1, 300)
    first.restart()
    wait_for(lambda: cluster.is_active(first, "d~0"), "it is active again")
    again = commit(first, shares)[1]
    assert (again["outcome"], again["joint"], written(again)) == ("duplicate", told["joint"], written(told))
    gone = commit(first, lost, token="u")[1]
    assert (gone["outcome"], gone["shard"], gone["replica"]) == ("participant_gone", "d~0", "r1")
    assert commit(first, (prepare(first, 0, 200, coordinates="true"), lost[1]), token="u")[1]["outcome"] == "inserted"
    wait_shown(cluster, 0, [*keys(0), *keys(200)])
    wait_shown(cluster, 1, [*keys(100), *keys(300)])


def test_what_is_given_up_can_not_be_committed(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    own, its = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    path = f"/v1/tables/d~1/prepared/{its['staging']}"
    assert second.request("DELETE", path) == (200, {"outcome": "removed"})
    assert second.request("DELETE", path) == (200, {"outcome": "left"}), "nothing is held"
    assert second.table("d~1").store.stagings() == ()
    assert commit(first, (own, its))[1]["outcome"] == "participant_gone"
    assert first.request("DELETE", f"/v1/tables/d~0/prepared/{own['staging']}") == (200, {"outcome": "removed"})
    wait_forgotten(first, 0)
    assert log(cluster, 0) == log(cluster, 1) == []


def test_what_no_client_commits_goes_when_its_time_is_over_unless_it_is_renewed(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    own, its = prepare(first, 0, 0, coordinates="true", keep_s=0.05), prepare(second, 1, 100, keep_s=0.05)
    kept = prepare(second, 1, 200, keep_s=0.3)
    renewed = second.request("POST", f"/v1/tables/d~1/prepared/{kept['staging']}?keep_s=60")
    assert renewed == (200, {"keep_s": 60.0})
    wait_forgotten(first, 0)
    wait_for(lambda: nodes_of(cluster, "r2", 1) == (kept["staging"],), "the one that was renewed is left")
    status, answer = second.request("POST", f"/v1/tables/d~1/prepared/{its['staging']}?keep_s=60")
    assert (status, answer["error"]) == (400, "BadInput")
    assert commit(first, (own, kept))[1]["outcome"] == "participant_gone"
    assert commit(first, (prepare(first, 0, 0, coordinates="true"), kept))[1]["outcome"] == "inserted"


def test_an_upload_that_is_given_up_can_be_prepared_again(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    share = prepared_upload(second, 1)
    uploads = second.table("d~1").uploads
    assert second.request("DELETE", f"/v1/tables/d~1/prepared/{share['staging']}")[1] == {"outcome": "removed"}
    (upload,) = [path.name for path in uploads.root.iterdir() if path.is_dir()]
    assert [path.suffix for path in (uploads.root / upload).glob("all/*.parquet")] == [".parquet"]
    assert not uploads._committing  # noqa: SLF001


@pytest.mark.parametrize(
    "change", ["shard", "incarnation", "staging", "map", "two", "order", "none", "token", "viewed", "many"]
)
def test_a_request_that_can_not_be_right_is_refused(cluster: InProcessCluster, change: str) -> None:
    first, second = cluster.nodes
    own, its = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    body: dict[str, Any] = {"prepared": [own, its]}
    wrong: dict[str, dict[str, Any]] = {
        "shard": {"prepared": [own, {**its, "shard": "e"}]},
        "incarnation": {"prepared": [{**own, "incarnation": "other"}, its]},
        "staging": {"prepared": [own, {**its, "staging": "../x"}]},
        "map": {"prepared": [own, {**its, "map_version": 1}]},
        "two": {"prepared": [own, {**its, "shard": "d~0"}]},
        "order": {"prepared": [its, own]},
        "none": {"prepared": []},
        "viewed": {"prepared": [own, {**its, "shard": "e~1"}]},
        "many": {"prepared": [own, {**its, "shard": "e~1"}], "since": [0, 0]},
    }
    token = "" if change == "token" else "t"
    # What a view makes of the rows is in shares of another table; nothing is overwritten there, nor rewritten.
    step = {"viewed": "joint/overwrite", "many": "joint/rewrite"}.get(change, "joint")
    raw = json.dumps({**body, **wrong.get(change, {})}).encode()
    query = f"token={token}&overwrite=all" if change == "viewed" else f"token={token}"
    status, answer = first.request("POST", f"/v1/tables/d~0/{step}?{query}", raw)
    assert (status, answer["error"]) == (400, "BadInput"), answer
    assert log(cluster, 0) == log(cluster, 1) == []
    assert commit(first, (own, its))[1]["outcome"] == "inserted"


@pytest.mark.parametrize("version", ["", "-1", "x", "9" * 30])
def test_rows_are_prepared_with_the_version_of_the_map_by_which_they_were_split(
    cluster: InProcessCluster, version: str
) -> None:
    first, _ = cluster.nodes
    status, answer = try_to_prepare(first, "d~0", rows(0), map_version=version)
    assert (status, answer["error"]) == (400, "BadInput")
    assert "by which version of the map" in answer["message"]


def test_a_table_that_is_no_shard_prepares_nothing(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    cluster.create_table()
    status, answer = try_to_prepare(first, "t", rows(0), map_version=0)
    assert (status, answer["error"]) == (400, "BadInput")
    assert "is no shard" in answer["message"]


# --- lost answers, and crashes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_commit_whose_answer_is_lost_is_settled_before_the_client_hears(
    cluster: InProcessCluster, is_applied: bool
) -> None:
    first, second = cluster.nodes
    loses = LosesAnswers(first, creates("/tokens/"), is_applied=is_applied)
    assert insert(first, second, 0)[1]["outcome"] == "inserted"
    assert loses.lost == 1
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))
    assert [len(log(cluster, shard)) for shard in range(2)] == [1, 1]


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_participant_whose_answer_is_lost_prepares_under_a_newer_epoch(
    cluster: InProcessCluster, is_applied: bool
) -> None:
    first, second = cluster.nodes
    epoch = second.table("d~1").performer.epoch.current
    loses = LosesAnswers(second, creates("/prepared/"), is_applied=is_applied)
    its = prepare(second, 1, 100)
    assert (loses.lost, its["epoch"] > epoch) == (1, True)
    assert commit(first, (prepare(first, 0, 0, coordinates="true"), its))[1]["outcome"] == "inserted"
    wait_shown(cluster, 1, keys(100))


@pytest.mark.parametrize("is_applied", [True, False])
def test_rows_whose_deletion_has_no_answer_are_removed_once_it_is_certain(
    cluster: InProcessCluster, is_applied: bool
) -> None:
    _, second = cluster.nodes
    its = prepare(second, 1, 100)

    def deletes(commit: fx.Commit) -> bool:
        return any(isinstance(each, fx.Delete) and "/prepared/" in each.path for each in commit.operations)

    loses = LosesAnswers(second, deletes, is_applied=is_applied)
    assert second.request("DELETE", f"/v1/tables/d~1/prepared/{its['staging']}") == (200, {"outcome": "removed"})
    assert loses.lost == 1
    assert (nodes_of(cluster, "r2", 1), second.table("d~1").store.stagings()) == ((), ())


def test_rows_that_could_not_be_prepared_leave_nothing_and_a_defect_costs_only_their_request(
    cluster: InProcessCluster,
) -> None:
    _, second = cluster.nodes
    real, left = second.coordination.perform, [CoordinationUnavailable("it is silent"), RuntimeError("a defect")]

    def fails(effect: Any) -> Any:
        if isinstance(effect, fx.Commit) and left and creates("/prepared")(effect):
            raise left.pop(0)
        return real(effect)

    second.coordination.perform = fails
    for error, status in (("CoordinationUnavailable", 503), ("ReplitreeError", 500)):
        told = try_to_prepare(second, "d~1", rows(0), map_version=0)
        assert (told[0], told[1]["error"]) == (status, error)
        wait_forgotten(second, 1)
    prepare(second, 1, 0)
    assert len(second.table("d~1").prepared_rows) == 1


def test_a_commit_that_was_certainly_not_made_leaves_the_rows_for_the_next_try(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    shares = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    real, left = first.coordination.perform, [fx.Unknown(is_sent=False)]

    def unsent(effect: Any) -> Any:
        return left.pop() if left and appends(effect) else real(effect)

    first.coordination.perform = unsent
    status, answer = commit(first, shares)
    assert (status, answer["error"]) == (503, "ReadOnly")
    assert commit(first, shares)[1]["outcome"] == "inserted"
    wait_shown(cluster, 1, keys(100))


def test_a_coordinator_that_can_not_tell_says_so_and_the_token_settles_it(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    shares = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    real = first.coordination.perform

    def lost(effect: Any) -> Any:
        outcome = real(effect)
        if appends(effect):
            # From here on the session answers nothing: no new epoch, no read.
            first.coordination.suspend()
            return fx.Unknown()
        return outcome

    first.coordination.perform = lost
    status, answer = commit(first, shares)
    assert (status, answer["error"]) == (504, "OutcomeUnknown")
    first.coordination.perform = real
    first.coordination.resume()
    wait_for(lambda: cluster.is_active(first, "d~0"), "it is active again")
    status, answer = commit(first, shares)
    assert (status, answer["outcome"]) == (200, "duplicate")
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


def test_a_repeated_request_has_the_answer_of_the_first_one(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    shares = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    answers, body = list[Any](), json.dumps({"prepared": shares}).encode()

    def ask() -> None:
        answers.append(first.request("POST", "/v1/tables/d~0/joint?token=t", body))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 4
    assert answers[0][1]["outcome"] == "inserted"


@pytest.mark.parametrize("name", ["r1", "r2"])
def test_a_process_that_dies_after_the_commit_publishes_what_it_has_staged(
    cluster: InProcessCluster, name: str
) -> None:
    """A replica that pulls nothing between the commit and its end: the next process finds the entry, and its files."""
    first, second = cluster.nodes
    node, shard = (first, 0) if name == "r1" else (second, 1)
    shares = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    for each in cluster.nodes:
        each.table(NAMES[shard]).puller.join(0.0)
    real = node.coordination.perform

    def dies(effect: Any) -> Any:
        if isinstance(effect, fx.Commit) and any("/queue" in each.path for each in effect.operations):
            return fx.Unknown(is_sent=False)
        return real(effect)

    node.coordination.perform = dies
    assert commit(first, shares)[1]["outcome"] == "inserted"
    node.restart()
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


# --- quorum -----------------------------------------------------------------------------------------------------------------


def test_a_joint_insert_with_a_quorum_is_acknowledged_when_both_shards_have_it(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    status, answer = insert(first, second, 0, quorum="all")
    assert (status, answer["outcome"], answer["settled"]) == (200, "inserted", 1)
    for shard, key in ((0, 0), (1, 100)):
        for node in cluster.nodes:
            assert node.keys(NAMES[shard]) == keys(key), "each had it before the client heard"
        get, settle = log(cluster, shard)
        assert (get.quorum, type(settle), settle.holders) == (2, SettleEntry, ("r1", "r2"))
    assert cluster.admin.perform(fx.Children(layout.joint_inserts(PLACE))) == ()
    assert insert(second, first, 500, quorum="all")[1]["outcome"] == "duplicate"


def test_a_joint_insert_that_is_given_up_leaves_both_shards_and_its_token_is_free(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for place in SHARDS:
        third = Replica(place, "r3")
        cluster.run(join_table(third))
        assert isinstance(
            cluster.admin.perform(fx.Commit(fx.Create(layout.is_active(third), b"", ephemeral=True))), fx.Applied
        )
    status, answer = insert(first, second, 0, quorum=3, quorum_timeout_s=0.3)
    assert (status, answer["error"]) == (503, "QuorumNotReached")
    for shard in range(2):
        get, fail = log(cluster, shard)
        assert (type(fail), fail.insert) == (FailEntry, get.insert)
        wait_shown(cluster, shard, [])
    assert cluster.admin.perform(fx.Children(layout.joint_tokens(PLACE))) == ()
    assert insert(second, first, 0, quorum=2)[1]["outcome"] == "inserted"
    wait_shown(cluster, 0, keys(0))
    wait_shown(cluster, 1, keys(100))


def test_a_quorum_that_a_shard_can_not_reach_is_refused_before_the_commit(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    shares = prepare(first, 0, 0, coordinates="true"), prepare(second, 1, 100)
    status, answer = commit(first, shares, quorum=3)
    assert (status, answer["error"]) == (503, "TooFewReplicas")
    assert commit(first, shares, quorum=2)[1]["outcome"] == "inserted"


def test_a_quorum_of_all_is_refused_when_the_coordinators_shard_has_fewer_replicas(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    third = Replica(SHARDS[1], "r3")
    cluster.run(join_table(third))
    cluster.admin.perform(fx.Commit(fx.Create(layout.is_active(third), b"", ephemeral=True)))
    refused = insert(first, second, 0, quorum="all")[1]["message"]
    assert "d~0: a quorum of 3 was asked for, and of 2 replicas 2 can take part" in refused
    assert insert(first, second, 0, quorum="majority")[1]["outcome"] == "inserted"


# --- tokens -----------------------------------------------------------------------------------------------------------------


def test_tokens_beyond_the_window_are_forgotten_by_the_first_shard_alone(tmp_path: Path) -> None:
    with sharded_cluster(tmp_path, deduplication_window=2) as cluster:
        first, second = cluster.nodes
        for number in range(4):
            assert insert(first, second, 1000 * number, token=f"t{number}")[1]["outcome"] == "inserted"
        tokens = layout.joint_tokens(PLACE)
        epochs = [node.table(name).availability.epoch() for node, name in ((first, "d~0"), (second, "d~1"))]
        second.table("d~1").cleaner.clean(epochs[1])
        assert len(cluster.admin.perform(fx.Children(tokens))) == 4, "the second shard leaves them alone"
        first.table("d~0").cleaner.clean(epochs[0])
        assert len(cluster.admin.perform(fx.Children(tokens))) == 2
        assert insert(first, second, 9000, token="t3")[1]["outcome"] == "duplicate"
        assert insert(first, second, 9000, token="t0")[1]["outcome"] == "inserted"
        first.table("d~0").cleaner.clean(epochs[0])
        assert len(cluster.admin.perform(fx.Children(tokens))) == 2
