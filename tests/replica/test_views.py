"""Materialised views on running replicas: rows come with the inserts, once, also after restarts, and from before the view."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.membership.table import TableOutcome, mark_dropped
from replitree.protocol.propose.roll_over import roll_over
from replitree.protocol.upkeep.clean_log import Cleaned, Keep, clean_log
from replitree.protocol.upkeep.tags import read_tags
from tests.replica.inprocess import InProcessCluster, Node, as_stream, wait_for

SELECT = {"s": "s", "n": "count(*)", "v": "sum(k)"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    cluster = InProcessCluster(tmp_path, replicas=3)
    cluster.create_table("events", "k bigint not null, s string", incarnation="a1")
    cluster.create_table(
        "sums", "s string, n bigint, v bigint", incarnation="b1", order_by=["s"], policy="summing(n, v)"
    )
    yield cluster
    cluster.close()


def some(first: int, count: int = 10) -> pa.Table:
    """Rows with the keys from `first` on, and one of three texts each."""
    keys = range(first, first + count)
    return pa.table({"k": pa.array(keys, pa.int64()), "s": pa.array([f"s{key % 3}" for key in keys])})


def insert(node: Node, data: pa.Table, token: str | None = None) -> str:
    status, answer = node.insert(data, token, "events")
    return str(answer["outcome"]) if status == 200 else f"{answer['error']}: {answer['message']}"


def create(node: Node, name: str = "v", **more: Any) -> Any:
    body = {"name": name, "target": "sums", "select": SELECT, "group_by": ["s"], **more}
    return node.post("views", body, "events")


def refusal(node: Node, what: str, body: dict[str, Any], table: str = "events") -> str:
    status, answer = node.request("POST", f"/v1/tables/{table}/{what}", json.dumps(body).encode())
    assert status >= 400, answer
    return f"{answer['error']}: {answer['message']}"


def seen(node: Node) -> dict[str, tuple[int, int]]:
    """What a replica shows of the target: count and sum by text."""
    table, found = node.table("sums"), Counter[tuple[str, int]]()
    for part in table.progress.visible()[1]:
        for file in table.store.manifest(part).files:
            for row in pq.read_table(table.store.file_path(part, file.name)).to_pylist():
                found[row["s"], 0] += row["n"]
                found[row["s"], 1] += row["v"]
    return {text: (found[text, 0], found[text, 1]) for text, _ in found}


def due(*keys: int) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for key in keys:
        count, total = found.get(f"s{key % 3}", (0, 0))
        found[f"s{key % 3}"] = (count + 1, total + key)
    return found


def wait_due(cluster: InProcessCluster, *keys: int) -> None:
    for node in cluster.nodes:
        wait_for(lambda node=node: seen(node) == due(*keys), f"{node.name} has the sums")  # type: ignore[misc]


def test_a_view_has_the_rows_of_every_insert_once_and_those_from_before(cluster: InProcessCluster) -> None:
    first, second, third = cluster.nodes
    assert insert(first, some(0)) == "inserted"
    made = create(second)
    assert (made["applied"], made["finished"]) == (True, True)
    assert insert(third, some(10), "ten") == "inserted"
    assert insert(first, some(10), "ten") == "duplicate"
    wait_due(cluster, *range(10, 20))
    assert first.post("views/v/backfill", {}, "events")["rows"] == 3
    assert third.post("views/v/backfill", {}, "events") == {"outcome": "duplicate", "index": None, "rows": 0}
    wait_due(cluster, *range(20))
    second.post("views/v/drop", {}, "events")
    assert insert(first, some(20)) == "inserted"
    wait_due(cluster, *range(20))


def test_a_backfill_has_no_row_that_was_inserted_after_the_view(cluster: InProcessCluster) -> None:
    first, second, _ = cluster.nodes
    assert insert(first, some(0)) == "inserted"
    create(second)
    for number in range(1, 6):
        assert insert(first, some(10 * number)) == "inserted"
    first.post("optimize", {"final": True}, "events")
    assert second.post("views/v/backfill", {}, "events")["outcome"] == "inserted"
    wait_due(cluster, *range(60))


def test_a_backfill_that_was_cut_off_goes_on_from_the_version_that_its_tag_keeps(cluster: InProcessCluster) -> None:
    first, second, third = cluster.nodes
    assert insert(first, some(0)) == "inserted"
    made = create(first)
    cluster.wait_alike("events")  # a tag is of a version that the replica has executed
    # What a replica has done that died before the insert.
    first.table("events").tagging.make(f"view-{made['id']}", made["index"], fx.EntryId(f"{made['id']}-tag"))
    assert insert(second, some(10)) == "inserted"
    first.post("optimize", {"final": True}, "events")
    cluster.wait_alike("events")
    for node in cluster.nodes:
        node.restart()
    wait_for(lambda: cluster.is_active(third, "events") and cluster.is_active(third, "sums"), "the third is active")
    wait_for(lambda: cluster.is_active(first, "events") and cluster.is_active(first, "sums"), "the first is active")
    assert first.post("views/v/backfill", {}, "events")["outcome"] == "inserted"
    wait_due(cluster, *range(20))
    assert first.table("events").performer.look_up(read_tags(first.table("events").replica.table)).tags == ()


def test_a_view_that_was_never_filled_leaves_no_tag(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    made = create(first)
    table = first.table("events")
    table.tagging.make(f"view-{made['id']}", made["index"], fx.EntryId(f"{made['id']}-tag"))
    first.post("views/v/drop", {}, "events")
    assert table.performer.look_up(read_tags(table.replica.table)).tags == ()


def test_a_view_of_an_empty_table_is_filled_without_an_insert(cluster: InProcessCluster) -> None:
    first, second, _ = cluster.nodes
    create(first)
    assert second.post("views/v/backfill", {}, "events") == {"outcome": "inserted", "index": None, "rows": 0}
    assert second.post("views/v/backfill", {}, "events")["outcome"] == "duplicate"
    assert cluster.nodes[2].table("sums").progress.index == 0


def test_an_insert_that_the_view_can_not_be_computed_for_changes_no_table(cluster: InProcessCluster) -> None:
    first, second, _ = cluster.nodes
    create(first, select={"s": "s", "n": "count(*)", "v": "sum(100 / k)"})
    assert "divi" in insert(second, some(0)).lower()
    assert insert(second, some(1, 5)) == "inserted"
    cluster.wait_alike("events")
    assert first.keys("events") == [1, 2, 3, 4, 5]
    wait_for(lambda: sum(count for count, _ in seen(first).values()) == 5, "the view has the other rows alone")


def test_inserts_that_a_view_can_not_have_are_refused(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    create(first)
    for query in ("quorum=2", "overwrite=all"):
        status, answer = first.request("POST", f"/v1/tables/events/insert?{query}", as_stream(some(0)))
        assert (status, answer["error"]) == (400, "BadInput"), answer
        assert "materialised views (v)" in answer["message"]
    assert first.keys("events") == []


def test_what_would_break_a_view_is_refused(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    create(first)
    assert "it reads column 'k'" in refusal(first, "alter", {"sql": "rename column k to key"})
    assert "it writes column 'v'" in refusal(first, "alter", {"sql": "rename column v to total"}, "sums")
    first.post("alter", {"sql": "add column more string"}, "events")
    assert insert(first, some(0)) == "inserted"
    wait_due(cluster, *range(10))
    first.post("views/v/drop", {}, "events")
    first.post("alter", {"sql": "rename column s to text"}, "events")


def test_what_no_replica_can_do_is_the_callers_error_and_is_not_tried_elsewhere(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    create(first)
    cluster.create_table("old", "k bigint not null, s string")
    for table, view, why in (
        ("events", {"name": "v", "target": "sums", "select": {"s": "s"}}, "has a materialised view 'v' already"),
        ("events", {"name": "w", "target": "events", "select": {"k": "k"}}, "can't write to its own source"),
        ("events", {"name": "w", "target": "old", "select": {"k": "k"}}, "create it anew"),
        ("sums", {"name": "w", "target": "old", "select": {"k": "n"}}, "create it anew"),
        ("sums", {"name": "w", "target": "events", "select": {"k": "n"}}, "views of views"),
    ):
        assert refusal(first, "views", view, table).startswith("BadInput"), view
        assert why in refusal(first, "views", view, table)
    assert refusal(first, "views/w/drop", {}).startswith("BadInput: nothing was changed: table events has no")
    first.post("views/v/drop", {"id": "d1"}, "events")
    first.post("views/v/drop", {"id": "d1"}, "events")


def test_a_view_is_there_for_every_insert_beside_its_creation(cluster: InProcessCluster) -> None:
    stop, told = threading.Event(), list[int]()

    def go_on(number: int, node: Node) -> None:
        key = 1_000_000 * number
        while not stop.is_set():
            if insert(node, some(key, 3)) == "inserted":
                told.extend(range(key, key + 3))
            key += 3

    threads = [threading.Thread(target=go_on, args=each) for each in enumerate(cluster.nodes)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(told) > 30, "rows come in")
    create(cluster.nodes[1])
    count = len(told)
    wait_for(lambda: len(told) > count + 60, "more rows come in")
    cluster.nodes[2].post("views/v/backfill", {}, "events", wait_s=20)
    stop.set()
    for thread in threads:
        thread.join()
    keys = sorted(told)
    cluster.wait_equal(keys, "events")
    wait_due(cluster, *keys)


def test_a_view_sees_inserts_after_the_logs_have_gone_on_below_other_parents(cluster: InProcessCluster) -> None:
    first, second, _ = cluster.nodes
    create(first)
    for name in ("events", "sums"):
        table = first.table(name)
        assert table.performer.run(roll_over(table.replica, table.availability.epoch()))
    wait_for(lambda: insert(second, some(0), "a") in ("inserted", "duplicate"), "the insert is taken")
    wait_due(cluster, *range(10))


def test_a_target_that_is_not_here_refuses_the_insert(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, replicas=1)
    try:
        cluster.create_table("events", "k bigint not null, s string", incarnation="a1")
        cluster.create_table(
            "sums", "s string, n bigint, v bigint", incarnation="b1", order_by=["s"], policy="summing(n, v)"
        )
        (first,) = cluster.nodes
        create(first)
        other = cluster.add("r2", tables=("events",))
        wait_for(lambda: cluster.is_active(other, "events"), "r2 has the source")
        assert "takes no inserts into sums" in insert(other, some(0))
        assert insert(first, some(0)) == "inserted"
    finally:
        cluster.close()


def test_a_view_that_was_dropped_with_its_target_elsewhere_hinders_no_insert(cluster: InProcessCluster) -> None:
    first, second, _ = cluster.nodes
    create(first)
    assert insert(first, some(0)) == "inserted"
    second.post("views/v/drop", {}, "events")
    place = second.table("sums").replica.table
    assert cluster.run(mark_dropped(place)) is TableOutcome.DONE
    wait_for(lambda: "sums" not in first.server._tables, "the target has left")  # type: ignore[union-attr]  # noqa: SLF001
    assert insert(first, some(10)) == "inserted"


def test_a_cleaned_log_says_still_that_the_table_has_views(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    create(first)
    for number in range(4):
        assert insert(first, some(10 * number)) == "inserted"
    cluster.wait_alike("events")
    table = first.table("events")
    cleaned = table.performer.run(clean_log(table.replica, table.availability.epoch(), Keep(1, 100)))
    assert isinstance(cleaned, Cleaned)
    assert cleaned.removed > 0
    node = cluster.admin.perform(fx.Get(layout.log(table.replica.table)))
    assert json.loads(node.value)["format"] == 3


def test_a_table_of_an_early_version_has_no_views(cluster: InProcessCluster) -> None:
    cluster.create_table("early", "k bigint not null, s string")
    body = {"name": "v", "target": "sums", "select": SELECT, "group_by": ["s"]}
    assert "an early version of replitree" in refusal(cluster.nodes[0], "views", body, "early")


def test_a_batch_of_a_stream_fires_once_and_an_attached_part_does_not(cluster: InProcessCluster) -> None:
    first, second, _ = cluster.nodes
    create(first)
    for node, expected in ((first, "inserted"), (second, "duplicate")):
        path = "/v1/tables/events/insert?stream=etl&batch=0&query=q"
        status, answer = node.request("POST", path, as_stream(some(0)))
        assert (status, answer.get("outcome")) == (200, expected), answer
    wait_due(cluster, *range(10))
    first.post("drop", {"all": True, "detach": True}, "events")
    (aside,) = first.get("detached", "events")["detached"]
    assert first.post("attach", {"name": aside["name"]}, "events")["outcome"] == "inserted"
    cluster.wait_equal(list(range(10)), "events")
    cluster.wait_alike("sums")
    wait_due(cluster, *range(10))


def test_rows_are_plain_when_nothing_is_grouped(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    cluster.create_table("copy", "k bigint, t string", incarnation="c1", order_by=["k"])
    body = {"name": "c", "target": "copy", "select": {"k": "k", "t": "upper(s)"}, "where": "k >= 5"}
    first.post("views", body, "events")
    assert insert(first, some(0)) == "inserted"
    cluster.wait_equal([5, 6, 7, 8, 9], "copy")
