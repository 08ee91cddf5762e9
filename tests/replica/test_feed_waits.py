"""The change feed of rows that one replica has not published yet and another one has replaced: readers wait for them."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.replica.fixtures import cluster_with_clock
from tests.replica.inprocess import SCHEMA, as_stream, rows
from tests.waiting import wait_for


def test_a_reader_waits_for_rows_that_were_replaced_before_their_writer_published_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_with_clock(tmp_path)
    first, second = cluster.nodes
    found: dict[str, Any] = {}
    try:
        with cluster.connect() as connection:
            table = connection.create_table("t", SCHEMA, order_by="k", feed="1 day")
            may_publish, staged = threading.Event(), first.table().store.staged
            publish = staged.publish

            def publish_later(*args: Any, **named: Any) -> Any:
                assert may_publish.wait(60.0)
                return publish(*args, **named)

            monkeypatch.setattr(staged, "publish", publish_later)
            writer = threading.Thread(target=lambda: found.update(insert=first.insert(rows(0))))
            writer.start()
            wait_for(lambda: second.table().progress.pointer == 1, "the insert is in the log")
            status, _ = second.request("POST", "/v1/tables/t/insert?overwrite=all", as_stream(rows(100)))
            assert status == 200
            wait_for(lambda: second.keys() == list(range(100, 110)), "the rows are replaced at one replica")
            status, answer = second.request("GET", "/v1/tables/t/feed?from=0&wait_s=0")
            assert (status, answer["error"]) == (503, "ReplicaUnavailable")
            assert "has not fetched part all_0_0_0 yet, which entry 0 needs" in answer["message"]

            def read() -> None:
                with table.changes(0, 2) as changes:
                    found.update(rows=changes.to_arrow().to_pylist())

            reader = threading.Thread(target=read)
            reader.start()
            may_publish.set()
            for each in (writer, reader):
                each.join()
            assert found["insert"][0] == 200
            kinds = Counter((row["_change_type"], row["k"] // 100) for row in found["rows"])
            assert kinds == {("insert", 0): 10, ("delete", 0): 10, ("insert", 1): 10}
    finally:
        cluster.close()
