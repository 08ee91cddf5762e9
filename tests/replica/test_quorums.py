"""Inserts with a quorum on running replicas: reached, given up, repeated, not to be had."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, GetEntry, SettleEntry, decode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import join_table
from replitree.replica.insert.quorums import ALL, MAJORITY, PATIENCE_S, Wish, parse_wish
from tests.replica.inprocess import ROOT, InProcessCluster, Node, as_stream, rows, wait_for

TABLE = TablePlace(layout.table_path(ROOT, "t"))


def insert(node: Node, first: int, quorum: str, *, token: str = "", patience_s: float = 10.0) -> tuple[int, Any]:
    """Insert ten rows with a quorum."""
    query = f"quorum={quorum}&quorum_timeout_s={patience_s}" + (f"&token={token}" if token else "")
    return node.request("POST", f"/v1/tables/t/insert?{query}", as_stream(rows(first)))


def log(cluster: InProcessCluster) -> list[Any]:
    """The entries of the log."""
    entries: list[Any] = []
    while (node := cluster.admin.perform(fx.Get(layout.log_entry(TABLE, len(entries))))) is not None:
        entries.append(decode_entry(node.value, ""))
    return entries


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas, and a third one that is active and does nothing."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table()
    third = Replica(TABLE, "r3")
    cluster.run(join_table(third))
    assert isinstance(
        cluster.admin.perform(fx.Commit(fx.Create(layout.is_active(third), b"", ephemeral=True))), fx.Applied
    )
    yield cluster
    cluster.close()


def test_an_insert_is_acknowledged_when_enough_replicas_have_it(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    assert insert(first, 0, "2") == (200, {"outcome": "inserted", "index": 0, "rows": 10, "settled": 1})
    assert second.keys() == list(range(10)), "the other one had it before the client heard"
    get, settle = log(cluster)
    assert (get.quorum, settle) == (2, SettleEntry("r2", get.insert, 0, ("r1", "r2")))
    wait_for(lambda: first.table().status()["open_inserts"] == [], "nothing is open")
    cluster.wait_equal(list(range(10)))


@pytest.mark.parametrize(("quorum", "needed"), [(MAJORITY, 2), (ALL, 2), ("2", 2)])
def test_a_quorum_is_a_number_or_a_word(cluster: InProcessCluster, quorum: str, needed: int) -> None:
    assert insert(cluster.nodes[0], 0, quorum)[0] == 200
    assert log(cluster)[0].quorum == needed


def test_a_quorum_of_one_is_an_insert_like_any_other(cluster: InProcessCluster) -> None:
    assert insert(cluster.nodes[0], 0, "1") == (200, {"outcome": "inserted", "index": 0, "rows": 10})
    (get,) = log(cluster)
    assert isinstance(get, GetEntry)
    assert get.format == 1


def test_too_few_replicas_are_an_error_before_anything_is_written(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    second.stop()
    status, answer = insert(first, 0, "2")
    assert (status, answer["error"]) == (503, "TooFewReplicas")
    assert (
        "a quorum of 2 was asked for, and of 2 replicas 1 can take part now (r1); nothing was inserted"
        in answer["message"]
    )
    assert log(cluster) == []
    assert insert(first, 0, "3")[1]["error"] == "TooFewReplicas"
    assert first.insert(rows(0))[0] == 200


def test_an_insert_that_is_given_up_leaves_every_replica_and_its_token_is_free(silent: InProcessCluster) -> None:
    first, second = silent.nodes
    status, answer = insert(first, 0, "3", token="a", patience_s=0.3)
    assert (status, answer["error"]) == (503, "QuorumNotReached")
    assert "nothing of it is in the table; insert it again" in answer["message"]
    get, fail = log(silent)
    assert fail == FailEntry("r1", get.insert, 0, ("all",))
    wait_for(lambda: first.keys() == second.keys() == [], "nobody shows it")
    assert insert(second, 0, "2", token="a") == (200, {"outcome": "inserted", "index": 2, "rows": 10, "settled": 3})
    wait_for(lambda: first.keys() == second.keys() == list(range(10)), "both show it")


def test_a_retry_waits_for_the_quorum_of_what_it_repeats(silent: InProcessCluster) -> None:
    first, second = silent.nodes
    told: dict[str, tuple[int, Any]] = {}
    thread = threading.Thread(target=lambda: told.update(one=insert(first, 0, "3", token="a", patience_s=3.0)))
    thread.start()
    wait_for(lambda: second.keys() == list(range(10)), "the other one has it")
    retry = insert(second, 0, "2", token="a")
    thread.join()
    assert told["one"][1]["error"] == "QuorumNotReached"
    assert retry[1].get("error") == "QuorumNotReached", "it was open when the retry came, and has failed"


LONG_S = 5.0
"""Long beside what a quorum takes, also on a busy machine."""


def test_many_wait_at_once(silent: InProcessCluster) -> None:
    """Those that fail hold up none of those that are reached."""
    first, _ = silent.nodes
    told: dict[int, tuple[int, Any]] = {}

    def client(number: int) -> None:
        failing = number % 4 == 0
        told[number] = insert(first, number * 10, "3" if failing else "2", token=str(number), patience_s=LONG_S)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 3 * LONG_S, "they have waited together"
    assert {number for number, (status, _) in told.items() if status == 200} == {n for n in range(12) if n % 4}
    assert {told[number][1]["error"] for number in (0, 4, 8)} == {"QuorumNotReached"}


def test_parts_that_are_open_are_not_merged(silent: InProcessCluster) -> None:
    first, second = silent.nodes
    first.insert(rows(0))
    thread = threading.Thread(target=insert, args=(first, 10, "3"), kwargs={"patience_s": 3.0})
    thread.start()
    wait_for(lambda: second.keys() == list(range(20)), "the other one has it")
    wait_for(lambda: len(list(first.table().merges.candidates())) == 2, "the writer has pulled its own entry")
    free = {each.part.name: each.free for each in first.table().merges.candidates()}
    assert free == {"all_0_0_0": True, "all_1_1_0": False}
    thread.join()


@pytest.mark.slow
def test_the_writer_is_restarted_and_a_replica_that_comes_late_completes_the_quorum(silent: InProcessCluster) -> None:
    first, second = silent.nodes
    told: dict[str, tuple[int, Any]] = {}
    thread = threading.Thread(target=lambda: told.update(one=insert(first, 0, "3", token="a", patience_s=60.0)))
    thread.start()
    wait_for(lambda: second.keys() == list(range(10)), "the other one has it")
    first.restart()
    thread.join()
    assert told["one"][1]["error"] == "OutcomeUnknown", "who waited when the writer was stopped must ask again"
    wait_for(lambda: silent.is_active(first), "the writer is active again")
    assert first.table().status()["open_inserts"] == [0]
    silent.admin.perform(fx.Commit(fx.Delete(layout.is_active(Replica(TABLE, "r3")), fx.ANY_VERSION)))
    silent.add("r3")
    wait_for(lambda: first.table().status()["open_inserts"] == [], "it is open no more")
    assert isinstance(log(silent)[1], SettleEntry)
    assert insert(second, 0, "2", token="a") == (200, {"outcome": "duplicate", "index": 0, "rows": 10, "settled": 1})
    silent.wait_equal(list(range(10)))


def test_an_overwrite_can_not_have_a_quorum(cluster: InProcessCluster) -> None:
    path = "/v1/tables/t/insert?quorum=2&overwrite=all"
    status, answer = cluster.nodes[0].request("POST", path, as_stream(rows(0)))
    assert (status, answer["error"]) == (400, "BadInput")
    assert "can't have a quorum" in answer["message"]


@pytest.mark.parametrize(
    ("size", "patience_s", "wish"),
    [
        (None, None, None),
        ("", "5", None),
        ("1", None, None),
        ("2", None, Wish(2, PATIENCE_S)),
        ("all", "0.5", Wish("all", 0.5)),
    ],
)
def test_what_a_request_may_say(size: str | None, patience_s: str | None, wish: Wish | None) -> None:
    assert parse_wish(size, patience_s) == wish


@pytest.mark.parametrize(("size", "patience_s"), [("0", None), ("most", None), ("-2", None), ("2", "0"), ("2", "x")])
def test_what_a_request_may_not_say(size: str, patience_s: str | None) -> None:
    with pytest.raises(BadInput, match="quorum"):
        parse_wish(size, patience_s)
