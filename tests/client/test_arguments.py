"""Arguments of a wrong type are refused as `BadInput` that names the argument, before anything is asked of the cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import replitree
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.read.read import snapshot_df
from replitree.spark.read.views import sql_views
from replitree.spark.write.write import insert_df
from tests.client.conftest import FakeCluster

FUNCTIONS = (replitree.connect, replitree.local, replitree.spark_session, sql_views, snapshot_df, insert_df)
CLASSES = (replitree.Connection, replitree.LocalCluster, replitree.Table, replitree.Snapshot)
INSIDE = {
    *("checked", "folders", "good", "near", "require", "sound_files", "through", "whole"),  # of a snapshot, for readers
}
ANYTHING = {"data"}
"""Arguments that may be of many types; the function itself refuses the others."""


def public() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Give each argument of each public function and method."""
    for function in FUNCTIONS:
        yield from ((function.__name__, function, name) for name in inspect.signature(function).parameters)
    for kind in CLASSES:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") or name in INSIDE:
                continue
            for argument in list(inspect.signature(method).parameters)[1:]:
                yield f"{kind.__name__}.{name}", method, argument


ARGUMENTS = [(method, name) for _, method, name in public() if name not in ANYTHING]


@pytest.mark.parametrize(("function", "argument"), ARGUMENTS, ids=[f"{w}-{a}" for w, _, a in public() if a != "data"])
def test_an_argument_of_a_wrong_type_is_bad_input_that_names_it(function: Callable[..., Any], argument: str) -> None:
    with pytest.raises(BadInput, match=rf"{argument} is .*, not <object"):
        function(**{argument: object()})


@pytest.fixture
def table(cluster: FakeCluster) -> Table:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    cluster.add_replica("t", "r1")
    return cluster.connect().table("t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": "abc"}, "timeout_s is a number, not 'abc'"),
        ({"timeout_s": float("nan")}, "timeout_s is a number, not nan"),
        ({"timeout_s": float("inf")}, "timeout_s is a number, not inf"),
        ({"timeout_s": True}, "timeout_s is a number, not True"),
        ({"final": "yes"}, "final is True or False, not 'yes'"),
        ({"columns": "k"}, "columns is a list of text or None, not 'k'"),
        ({"columns": ["k", 1]}, r"columns is a list of text or None, not \['k', 1\]"),
        ({"columns": {"k", "s"}}, "columns is a list of text or None, not {"),
        ({"where": "s = '\ud800'"}, "where is text or None, not"),
        ({"min_index": "2026-11-24"}, "min_index is a whole number or None, not '2026-11-24'; .*a time can't be given"),
        ({"as_of": 1.5}, "as_of is a whole number, text, a datetime or None, not 1.5; .*, or a time"),
        ({"min_index": 2**63}, "min_index is a whole number or None, not 9223372036854775808"),
        ({"level": 5}, "level is 'eventual', 'sequential', 'linearizable' or None, not 5"),
    ],
)
def test_a_read_says_what_is_wrong_before_a_replica_is_asked(
    table: Table, cluster: FakeCluster, options: dict[str, Any], message: str
) -> None:
    for read in (table.to_arrow, table.batches):
        with pytest.raises(BadInput, match=message):
            read(**options)
    assert cluster.replicas["r1"].seen == []


@pytest.mark.parametrize("argument", ["order_by", "partition_by", "schema", "policy", "settings", "wait_replicas"])
def test_a_table_with_a_wrong_argument_is_not_created(cluster: FakeCluster, argument: str) -> None:
    connection = cluster.connect()
    given: dict[str, Any] = {"schema": "k bigint not null", argument: 5.5}
    with pytest.raises(BadInput, match=f"create_table: {argument} is .*, not 5.5"):
        connection.create_table("t", **given)
    assert connection.tables() == ()


def test_a_long_value_is_shown_in_part(table: Table) -> None:
    with pytest.raises(BadInput, match=r"where is text or None, not b'x{58}…"):
        table.to_arrow(where=b"x" * 1000)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers(table: Table, cluster: FakeCluster) -> None:
    options: dict[str, Any] = {"quorum": np.int64(1), "quorum_timeout_s": np.float32(2.5)}
    result = table.insert({"k": [1]}, **options)
    assert result.index == 0
    assert cluster.replicas["r1"].seen[-1].query["quorum"] == "1"


class Stream:
    """Any object with the Arrow PyCapsule interface, as data frames of other libraries are."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._source.__arrow_c_stream__(requested_schema)


def test_an_arrow_stream_of_another_library_is_inserted(table: Table, cluster: FakeCluster) -> None:
    rows = pa.table({"s": pa.array(["a", None], pa.string_view()), "k": pa.array([1, 2], pa.uint8())})
    assert table.insert(Stream(rows)).rows == 2
    sent = pa.ipc.open_stream(cluster.replicas["r1"].seen[-1].body).read_all()
    assert sent.to_pydict() == {"k": [1, 2], "s": ["a", None]}


def broken_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": pa.array([1], pa.int64())})
        raise RuntimeError("the disk is gone")

    return pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Stream(pa.chunked_array([[1]])), "can't read rows from a Stream: .*non-struct type int64"),
        (type("Wrong", (), {"__arrow_c_stream__": lambda _self, _schema=None: 5})(), "can't read rows from a Wrong"),
        (Stream(broken_reader()), "the source of the rows has failed: .*the disk is gone; nothing was inserted"),
        (5, "can't insert a int"),
        (None, "can't insert a NoneType"),
    ],
)
def test_what_is_no_table_of_rows_is_refused(table: Table, cluster: FakeCluster, data: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        table.insert(data)
    assert cluster.replicas["r1"].seen == []


@pytest.mark.parametrize("data", [[5], 5, None, Stream(5)])
def test_rows_without_a_schema_are_refused_when_schemas_are_merged(table: Table, data: Any) -> None:
    with pytest.raises(BadInput):
        table.insert(data, merge_schema=True)
