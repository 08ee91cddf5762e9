"""Scans: the same rows for every way to read them, at one snapshot, for as long as a result is used."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from replitree.client.table import Table
from replitree.errors import BadInput, CorruptPart, LeaseLost, SnapshotExpired
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Set
from replitree.storage.parts.encode import stage_table
from replitree.storage.sql.evolve import AddColumn, Alter, RenameColumn, apply_alter
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure
from tests.client.test_snapshot import make, publish, serve
from tests.waiting import wait_for

CONDITIONS = (None, "k >= 28", "k between 5 and 14 and s <> 's7'", "k % 10 = 3", "s is null", "length(s) = 2 and k > 4")


def rows_of(found: pa.Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("columns", [None, ["s"], ["s", "k"]])
def test_every_way_to_read_has_the_same_rows(
    cluster: FakeCluster, tmp_path: Path, where: str | None, columns: list[str] | None
) -> None:
    table = make(cluster, tmp_path)
    expected = rows_of(table.to_arrow(columns, where))
    scan = table.scan(columns, where)
    assert scan.schema == table.to_arrow(columns, where).schema
    assert rows_of(scan.to_arrow()) == rows_of(scan.to_reader().read_all()) == expected
    assert rows_of(pa.Table.from_batches(scan.batches(), scan.schema)) == expected
    assert rows_of(pa.table(scan)) == rows_of(pa.table(table.snapshot().scan(columns, where))) == expected
    assert scan.count() == table.snapshot().scan(columns, where).count() == len(expected)
    assert rows_of(scan.head(4)) == expected[:4]
    assert pa.schema(scan) == scan.schema
    if where is None or ("%" not in where and "length" not in where):
        assert rows_of(scan.dataset().to_table()) == expected
        assert scan.dataset().schema.names == scan.schema.names
        assert scan.dataset().count_rows() == len(expected)


def test_tables_and_snapshots_are_arrow_streams(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    snapshot = table.snapshot()
    assert pa.table(table).equals(table.to_arrow())
    assert pa.table(snapshot).equals(snapshot.to_arrow())
    assert pa.schema(table) == pa.schema(snapshot) == table.schema


def test_statistics_answer_a_count_without_a_file(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path, machine="elsewhere")
    assert table.scan().count() == 30
    assert table.scan(where="k >= 10").count() == 20
    assert table.scan(where="k >= 0 or k < 0").count() == 30
    assert table.scan(where="k > 100").count() == 0
    replica = cluster.replicas["r1"]
    assert not [seen for seen in replica.seen if "/files/" in seen.path]
    assert table.scan(where="k >= 5").count() == 25
    assert {seen.path.split("/")[5] for seen in replica.seen if "/files/" in seen.path} == {"all_0_0_0"}


def test_an_engines_filter_brings_only_the_files_that_it_needs(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path, machine="elsewhere")
    replica = cluster.replicas["r1"]
    dataset = table.scan().dataset()
    assert not [seen for seen in replica.seen if "/files/" in seen.path]
    assert dataset.to_table(filter=pc.field("k") == 12).num_rows == 1
    assert {seen.path.split("/")[5] for seen in replica.seen if "/files/" in seen.path} == {"all_1_1_0"}


def test_a_result_is_a_snapshot_of_its_own(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    scan, frozen = table.scan(), table.snapshot().scan()
    lazy = scan.dataset()
    (tmp_path / "more").mkdir()
    serve(cluster.replicas["r1"], publish(tmp_path / "more", table.definition)[:1], index=9)
    assert (scan.count(), frozen.count(), lazy.count_rows()) == (10, 30, 30)


# --- leases ---------------------------------------------------------------------------------------------------------------

SHORT_S = 3.0
"""Seconds: a lease is lost when a busy machine answers no renewal for so long."""


@pytest.fixture
def leased(cluster: FakeCluster, tmp_path: Path) -> Table:
    """A table whose replica gives short leases."""
    table = make(cluster, tmp_path)
    replica = cluster.replicas["r1"]
    replica.snapshot |= {"lease": "abc", "lease_s": SHORT_S}
    replica.answers = {"POST leases/abc": {"lease": "abc", "lease_s": SHORT_S}, "DELETE leases/abc": {}}
    return table


def requests(cluster: FakeCluster, method: str) -> int:
    seen = cluster.replicas["r1"].seen
    return sum(each.method == method and each.path.endswith("/leases/abc") for each in seen)


def test_the_files_of_a_dataset_stay_for_as_long_as_something_reads_them(cluster: FakeCluster, leased: Table) -> None:
    dataset = leased.scan().dataset()
    assert cluster.replicas["r1"].seen[-1].query["lease_s"] == "60"
    scanner = dataset.scanner(columns=["k"])
    del dataset
    gc.collect()
    wait_for(lambda: requests(cluster, "POST") >= 4, "it is renewed for longer than it lasts")
    assert scanner.to_table().num_rows == 30
    assert requests(cluster, "DELETE") == 0
    del scanner
    gc.collect()
    wait_for(lambda: requests(cluster, "DELETE") == 1)


def test_a_reader_lets_go_when_it_is_read_or_dropped(cluster: FakeCluster, leased: Table) -> None:
    assert leased.scan().to_reader().read_all().num_rows == 30
    wait_for(lambda: requests(cluster, "DELETE") == 1)
    begun = leased.scan().to_reader()
    assert begun.read_next_batch().num_rows
    del begun
    gc.collect()
    wait_for(lambda: requests(cluster, "DELETE") == 2)
    unread = leased.scan().to_reader()
    del unread
    gc.collect()
    wait_for(lambda: requests(cluster, "DELETE") == 3)
    assert leased.scan().head(3).num_rows == 3
    wait_for(lambda: requests(cluster, "DELETE") == 4)


def test_a_lease_of_the_callers_own_is_left_to_the_caller(cluster: FakeCluster, leased: Table) -> None:
    with leased.snapshot(lease_s=SHORT_S) as snapshot:
        scan = snapshot.scan()
        assert (scan.to_reader().read_all().num_rows, scan.head(2).num_rows, scan.to_arrow().num_rows) == (30, 2, 30)
        assert requests(cluster, "DELETE") == 0
    assert requests(cluster, "DELETE") == 1


def test_a_lost_lease_is_an_error_and_never_fewer_rows(cluster: FakeCluster, leased: Table) -> None:
    cluster.replicas["r1"].answers["POST leases/abc"] = Failure(410, "LeaseLost", "it expired")
    snapshot = leased.snapshot(lease_s=SHORT_S)
    dataset, reader = snapshot.dataset(), snapshot.scan().to_reader()
    wait_for(lambda: snapshot.lease is not None and snapshot.lease.is_lost)
    with pytest.raises(LeaseLost, match="take a new snapshot"):
        dataset.to_table()
    with pytest.raises(LeaseLost, match="take a new snapshot"):
        reader.read_all()


def test_a_part_that_is_gone_is_said_never_skipped(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    dataset = table.snapshot().dataset()
    (tmp_path / "all_1_1_0").rename(tmp_path / "elsewhere")
    cluster.replicas["r1"].files.clear()
    with pytest.raises(SnapshotExpired, match="all_1_1_0"):
        dataset.to_table()
    assert dataset.to_table(filter=pc.field("k") < 10).num_rows == 10


def test_a_damaged_file_is_never_shown(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    dataset = table.snapshot().dataset()
    file = tmp_path / "all_1_1_0" / "data-0.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    replica = cluster.replicas["r1"]
    copies = dict(replica.files)
    replica.files.clear()
    with pytest.raises(CorruptPart, match="all_1_1_0"):
        dataset.to_table()
    # The copy that the replica sends is good.
    replica.files.update(copies)
    assert dataset.to_table().num_rows == 30


# --- columns that change --------------------------------------------------------------------------------------------------


def altered(cluster: FakeCluster, tmp_path: Path) -> Table:
    """A table whose parts are older than a renamed column and an added one."""
    table = make(cluster, tmp_path)
    change = Alter((RenameColumn("s", "text"), AddColumn("n", "int", default=7)))
    definition = apply_alter(table.definition, change)
    cluster.commit(Set(layout.columns(cluster.catalog.place("t")), definition.encode_columns(), 0))
    return table


def test_columns_of_older_parts_are_shown_as_they_are_now(cluster: FakeCluster, tmp_path: Path) -> None:
    table = altered(cluster, tmp_path)
    cluster.replicas["r1"].snapshot |= {"schema_version": 2}
    scan = table.scan(["text", "n"], "k = 29 and n = 7")
    expected = [{"text": "s29", "n": 7}]
    assert scan.dataset().to_table().to_pylist() == scan.to_arrow().to_pylist() == expected
    assert (scan.count(), table.scan(where="n = 8").count()) == (1, 0)
    assert "columns changed  1 parts have them under other names" in scan.explain()


def test_files_say_when_they_have_other_columns(cluster: FakeCluster, tmp_path: Path) -> None:
    table = altered(cluster, tmp_path)
    plain = table.snapshot()
    assert plain.files().schema == plain.definition.arrow_schema
    assert plain.files("k < 5", columns=["k"]).schema.names == ["k"]
    cluster.replicas["r1"].snapshot |= {"schema_version": 2}
    snapshot = table.snapshot()
    found = snapshot.files()
    assert len(found) == 3
    with pytest.raises(BadInput, match=r"part all_0_0_0 are older than column 'text' is now.*scan\(\)"):
        _ = found.schema
    with pytest.raises(BadInput, match="older than column 'n' is now"):
        snapshot.files(columns=["k", "n"])
    assert snapshot.files(columns=["k"]).schema.names == ["k"]


# --- wrong inputs ---------------------------------------------------------------------------------------------------------

WRONG = [
    ({"columns": ["kk"]}, r"no column 'kk'; did you mean 'k'\? it has k, s, test"),
    ({"columns": ["K"]}, r"no column 'K'; did you mean 'k'\?"),
    ({"where": "kk = 1"}, r"no column 'kk'; did you mean 'k'\?"),
    ({"where": "nothing_like_it = 1"}, r"no column 'nothing_like_it'; it has k, s, test"),
    ({"where": "k = 'abc'"}, r"column k is bigint, and 'abc' is not; use a number"),
    ({"where": "s > 5"}, r"column s is string, and 5 is not; put the value in quotes"),
    ({"where": "k + 'a' > 1"}, r"can't calculate bigint \+ string: both must be numbers"),
    ({"where": "k"}, r"column k is bigint: compare it with something"),
    ({"where": "s = 'abc"}, r"a quote is not closed"),
    ({"where": "k ="}, r"= is not complete"),
    ({"where": "k >"}, r"can't read the condition 'k >'"),
    ({"where": "substring(s, 1, 2) = 'a'"}, r"not understood here \(docs/conditions.md lists what is\)"),
    ({"where": "k in (select k from t)"}, r"it can't select others: read them first, and list the values"),
    ({"where": "rand() < 0.5"}, r"RAND\(\) is not the same on every replica; write its value"),
    ({"where": ""}, r"no condition"),
    ({"columns": "k"}, r"columns are a list of names|columns is a list of text"),
    ({"where": 7}, r"where is text or None, not 7"),
    ({"level": "now"}, r"level 'now' is unknown"),
    ({"as_of": 3, "level": "eventual"}, r"give it or level, not both"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=lambda each: str(each)[:40])
def test_wrong_inputs_are_refused_at_once_with_what_to_do(
    cluster: FakeCluster, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    table = make(cluster, tmp_path)
    asked = len(cluster.replicas["r1"].seen)
    with pytest.raises(BadInput, match=message) as caught:
        table.scan(**given)
    assert "sqlglot" not in str(caught.value).lower()
    assert len(cluster.replicas["r1"].seen) == asked, "no replica was asked"


def test_what_a_dataset_can_not_show_is_refused_with_what_can(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    with pytest.raises(BadInput, match=r"calculated for each row.*to_reader"):
        table.scan(where="k % 2 = 0").dataset()
    with pytest.raises(BadInput, match=r"final.*to_reader"):
        table.scan(final=True).dataset()
    with pytest.raises(BadInput, match="0 or above, not -1"):
        table.scan().head(-1)
    with pytest.raises(BadInput, match=r"has no value in some row: .*zero"):
        table.scan(where="1 / k > 0").to_arrow()
    assert table.scan(where="k <> 0 and 1 / k > 0.5").count() == 1


def test_a_column_that_another_client_has_added_is_known(cluster: FakeCluster, tmp_path: Path) -> None:
    table = altered(cluster, tmp_path)
    assert table.scan(["n"], "n = 7").schema.names == ["n"]


# --- final ----------------------------------------------------------------------------------------------------------------


def test_final_scans_show_what_the_policy_leaves(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("f", "k bigint not null, v bigint, note string", order_by="k", policy="replacing(v)")
    replica = cluster.add_replica("f", "r1")
    table = cluster.connect().table("f")
    parts = []
    for number, name in enumerate(("all_0_0_0", "all_1_1_0")):
        rows = pa.table({"k": range(10), "v": [number] * 10, "note": [f"n{number}"] * 10}, schema=table.schema)
        (manifest,) = stage_table(rows, table.definition, tmp_path / str(number), sync=False)
        parts.append((name, tmp_path / str(number) / "all", manifest))
    serve(replica, parts)
    scan = table.scan(["k"], "note = 'n1' and k % 2 = 0", final=True)
    assert scan.to_arrow()["k"].to_pylist() == [0, 2, 4, 6, 8]
    assert (scan.count(), scan.head(2).num_rows) == (5, 2)
    assert table.scan(where="note = 'n0'", final=True).count() == 0, "an older row does not come back"
    assert pa.table(scan).equals(scan.to_arrow())
    assert (table.scan(final=True).count(), table.scan().count()) == (10, 20)
    assert "final" in repr(scan)
    assert "the policy replacing(v) is applied" in scan.explain()


# --- what people see ------------------------------------------------------------------------------------------------------


def test_representations_are_short_and_escaped(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    snapshot = table.snapshot()
    scan = table.scan(["k", "s"], "s = '<b>x</b>'", level="eventual")
    assert repr(scan) == "<Scan of t: k, s; where s = '<b>x</b>'; eventual>"
    assert repr(snapshot.scan(final=True)) == "<Scan of t at 3: all columns; final>"
    page = scan._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x" not in page
    assert "<td>k</td><td>bigint</td>" in page
    html = table._repr_html_() + snapshot._repr_html_()
    assert "Table t" in html
    assert "<td>bigint not null</td>" in html
    assert "rows: 30" in html
    assert len(html) < 2_000


def test_explain_says_what_is_read(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    plan = table.scan(["s"], "k > 12 and length(s) = 3").explain()
    assert "t at 3 (r1)" in plan
    assert "2 of 3 can match: 2 files" in plan
    assert "on this machine" in plan
    assert "what statistics can't judge is calculated for each row" in plan
    assert "parts    3 of 3" in table.scan().explain()
