"""Tags: versions of a table that have names, on real replicas in this process whose old parts go at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.table import Table
from replitree.errors import BadInput, InvalidName, ReplicaBehind, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.replica.table import maintenance
from replitree.replica.table.snapshots import Snapshots
from replitree.storage.objects import open_store
from replitree.wire.block_ids import restore_token
from tests.replica.inprocess import ROOT, InProcessCluster, wait_for
from tests.shared.stores import FOLDER, on

EXPIRED = "has no part|knows what the table was"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    monkeypatch.setattr(maintenance, "TAGS_S", 0.0)
    made = InProcessCluster(tmp_path, old_parts_lifetime_s=0.0)
    made.create_table(schema="k bigint not null")
    yield made
    made.close()


@pytest.fixture
def table(cluster: InProcessCluster) -> Iterator[Table]:
    with cluster.connect() as connection:
        yield connection.table("t")


def keys(table: Table, as_of: int | str) -> list[int]:
    return sorted(table.to_arrow(as_of=as_of)["k"].to_pylist())


def wait_empty(cluster: InProcessCluster, kept: int = 0) -> None:
    """Wait until replicas have deleted every old part but for so many, which tags keep."""
    for node in cluster.nodes:
        wait_for(
            lambda node=node: (  # type: ignore[misc]
                (found := node.get("status"))["queue"] == 0
                and (found["parts"], found["old_parts"], found["tagged_parts"]) == (0, kept, kept)
            ),
            "only what tags keep is left",
        )


def test_tagged_version_outlives_its_rows_and_the_processes(cluster: InProcessCluster, table: Table) -> None:
    table.insert({"k": [1, 2]})
    tag = table.tag("before-load")
    assert (tag.name, tag.parts, tag.rows) == ("before-load", 1, 2)
    assert tag.bytes > 0
    index = table.insert({"k": [3]}).index
    assert index is not None
    untagged = index + 1
    cluster.wait_alike()
    table.truncate()
    wait_empty(cluster, kept=1)
    assert keys(table, "before-load") == keys(table, tag.index) == [1, 2]
    with pytest.raises(SnapshotExpired, match=EXPIRED):
        keys(table, untagged)
    # A process that begins anew knows nothing of the earlier log, but for what tags say.
    for node in cluster.nodes:
        node.restart()
    wait_for(lambda: all(map(cluster.is_active, cluster.nodes)), "active again")
    wait_empty(cluster, kept=1)
    for node in cluster.nodes:
        assert keys(table.replica(node.name), "before-load") == [1, 2]
        assert node.table().store.detached() == ()
    table.delete_tag("before-load")
    wait_empty(cluster)
    assert table.tags() == ()
    with pytest.raises(BadInput, match="no tag 'before-load'; it has none"):
        keys(table, "before-load")
    with pytest.raises(SnapshotExpired, match=EXPIRED):
        keys(table, tag.index)


def test_tags_of_earlier_versions_and_of_tags(table: Table) -> None:
    table.insert({"k": [1]})
    second = table.insert({"k": [2]}).index
    assert second is not None
    with table.snapshot(lease_s=60):
        table.delete("k = 1")
        old = table.tag("old", second)
        again = table.tag("again", "old")
        table.tag("now")
    assert [tag.name for tag in table.tags()] == ["again", "old", "now"]
    assert (old.index, again.index) == (second, second)
    assert (keys(table, "old"), keys(table, "again"), keys(table, "now")) == ([1], [1], [2])
    assert table.scan(as_of="old").count() == 1
    # Two tags keep a part until the last of them goes.
    table.delete_tag("old")
    assert keys(table, "again") == [1]


def test_empty_version_can_have_a_tag(cluster: InProcessCluster, table: Table) -> None:
    assert table.tag("empty").parts == 0
    table.insert({"k": [1]})
    cluster.nodes[0].restart()
    wait_for(lambda: cluster.is_active(cluster.nodes[0]), "active again")
    assert keys(table.replica("r1"), "empty") == []


def test_merged_sources_stay_for_a_tag_on_every_replica(cluster: InProcessCluster, table: Table) -> None:
    table.pause_merges()
    for key in range(3):
        table.insert({"k": [key]})
    for node in cluster.nodes:
        wait_for(lambda node=node: node.keys() == [0, 1, 2], "all rows are there")  # type: ignore[misc]
    table.tag("parts")
    table.resume_merges()
    table.optimize(final=True)
    for node in cluster.nodes:
        wait_for(lambda node=node: node.get("status")["tagged_parts"] == 3, "the sources are old")  # type: ignore[misc]
        assert keys(table.replica(node.name), "parts") == [0, 1, 2]


def test_version_whose_parts_are_gone_gets_no_tag(cluster: InProcessCluster, table: Table) -> None:
    index = table.insert({"k": [1]}).index
    assert index is not None
    cluster.wait_alike()
    table.truncate()
    wait_empty(cluster)
    with pytest.raises(SnapshotExpired, match=EXPIRED):
        table.tag("late", index + 1)
    assert table.tags() == ()
    assert {node.get("status")["leases"] for node in cluster.nodes} == {0}


def test_name_is_given_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = table.tag("a", command_id="load-7")
    table.insert({"k": [1]})
    # An answer was lost, and the client asks again, of whichever replica.
    assert table.tag("a", command_id="load-7") == first
    with pytest.raises(BadInput, match=f"tag 'a' already, of version {first.index}: delete it first"):
        table.tag("a")
    with pytest.raises(BadInput, match="no tag 'b'; it has a"):
        table.delete_tag("b")
    monkeypatch.setattr("replitree.replica.table.tagging.TAGS_MAX", 1)
    with pytest.raises(BadInput, match="has 1 tags: delete some first"):
        table.tag("b")


@pytest.mark.parametrize("name", ["", "1st", "a/b", "größe", "a b", "x" * 101])
def test_names_that_a_tag_can_not_have(table: Table, name: str) -> None:
    with pytest.raises(InvalidName, match="can't be a tag's name"):
        table.tag(name)


def test_as_of_that_is_neither_tag_nor_time(table: Table) -> None:
    with pytest.raises(BadInput, match="no tag 'yesterday'"):
        table.to_arrow(as_of="yesterday")
    with pytest.raises(BadInput, match="no time and no tag"):
        table.to_arrow(as_of="12th")


def test_reads_of_a_tag_go_to_a_replica_that_has_its_parts(cluster: InProcessCluster, table: Table) -> None:
    table.insert({"k": [1, 2]})
    table.tag("kept")
    cluster.wait_alike()
    table.truncate()
    wait_empty(cluster, kept=1)
    # The first replica loses the part, as one that joined later never had it.
    node = cluster.nodes[0]
    node.table().old_parts.revive(["all_0_0_0"])
    node.table().store.remove_parts(["all_0_0_0"])
    for _ in range(4):
        assert keys(table, "kept") == [1, 2]
    with pytest.raises(SnapshotExpired, match=EXPIRED):
        keys(table.replica(node.name), table.tags()[0].index)


def test_tag_that_can_not_be_read_keeps_old_parts_and_holds_up_nothing_else(
    cluster: InProcessCluster, table: Table
) -> None:
    table.insert({"k": [1]})
    table.tag("a")
    cluster.wait_alike()
    path = layout.tag(TablePlace(layout.table_path(ROOT, "t")), "a")
    good = cluster.admin.perform(fx.Get(path)).value
    change = fx.Set(layout.tags(TablePlace(layout.table_path(ROOT, "t"))), b"", fx.ANY_VERSION)
    cluster.admin.perform(fx.Commit(fx.Set(path, b"{}", fx.ANY_VERSION), change))
    table.truncate()
    node = cluster.nodes[0]
    keeper = node.table().maintenance
    wait_for(lambda: keeper._tags_problem, "it says that a tag can't be read")  # noqa: SLF001
    keeper.work()
    assert node.get("status")["old_parts"] == 1
    cluster.admin.perform(fx.Commit(fx.Set(path, good, fx.ANY_VERSION), change))
    wait_empty(cluster, kept=1)
    assert (keys(table, "a"), keeper._tags_problem) == ([1], "")  # noqa: SLF001


def test_strict_reads_ask_nothing_about_tags(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.insert({"k": [1]})
    table.tag("a")
    monkeypatch.setattr(Snapshots, "_tagged", lambda *_: pytest.fail("coordination is asked for the tags"))
    assert table.to_arrow(level="sequential").num_rows == table.to_arrow(level="linearizable").num_rows == 1
    assert keys(table, "a") == [1]


def test_drop_of_the_table_takes_its_tags(cluster: InProcessCluster) -> None:
    with cluster.connect() as connection:
        place = TablePlace(layout.table_path(ROOT, "t"))
        connection.table("t").tag("a")
        assert cluster.admin.perform(fx.Children(layout.tags(place))) == ("a",)
        connection.drop_table("t")
        wait_for(lambda: not cluster.admin.perform(fx.Exists(place.path)), "no node is left")


def test_retention_of_the_table_counts_on_every_replica(cluster: InProcessCluster, table: Table) -> None:
    first = table.insert({"k": [1]}).index
    assert first is not None
    cluster.wait_alike()
    result = table.set_keep("7 days")
    assert (result.finished, result.applied) == (True, True)
    assert table.history(1)[0].command == "keeps old parts 7d"
    assert table.refresh().keep == "7d"
    table.truncate()
    for node in cluster.nodes:
        wait_for(lambda node=node: node.get("status")["old_parts"] == 1, "the part is old")  # type: ignore[misc]
        # Until a replica has read the setting it deletes nothing, although its own lifetime is 0.
        wait_for(lambda node=node: node.table().definition.keep_s == 604_800, "the setting is read")  # type: ignore[misc]
        assert node.table().old_parts.choose_due() == ()
        assert keys(table.replica(node.name), first + 1) == [1]
    # The replicas' own setting is 0 here.
    table.set_keep(None)
    wait_empty(cluster)
    with pytest.raises(BadInput, match="a number with a unit"):
        table.set_keep("long")


def test_restore_makes_the_table_what_it_was_by_one_entry(cluster: InProcessCluster, table: Table) -> None:
    table.insert({"k": [1, 2]})
    before = table.tag("before-load").index
    table.insert({"k": [3]})
    table.delete("k = 1")
    later = table.tag("later").index
    result = table.restore_to("before-load")
    assert (result.index, result.rows, table.history(1)[0].command) == (later, 2, f"restore_to {before}")
    cluster.wait_alike()
    for node in cluster.nodes:
        assert node.keys() == [1, 2]
    # What it has replaced is a version like any other, and so it is taken back.
    table.restore_to("later")
    assert sorted(table.to_arrow(level="linearizable")["k"].to_pylist()) == [2, 3]
    assert [each.command for each in table.history(2)] == [f"restore_to {later}", f"restore_to {before}"]
    table.insert({"k": [9]}, overwrite="all")
    assert table.history(1)[0].command == "overwrites every partition"


def test_restore_with_a_token_is_done_once(table: Table) -> None:
    table.insert({"k": [1]})
    table.tag("a")
    table.insert({"k": [2]})
    first = table.restore_to("a", token="again")
    table.insert({"k": [3]})
    assert (table.restore_to("a", token="again").outcome, first.outcome) == ("duplicate", "inserted")
    # The token that an error carries says the version already.
    known_as = restore_token(1, "again")
    assert (table.restore_to("a", token=known_as).index, table.history()[1].command) == (first.index, "restore_to 1")
    assert sorted(table.to_arrow()["k"].to_pylist()) == [1, 3]


def test_restore_to_an_empty_version_empties_the_table(table: Table) -> None:
    table.tag("empty")
    table.insert({"k": [1]})
    table.restore_to("empty")
    assert table.to_arrow(level="linearizable").num_rows == 0


def test_restore_to_a_version_that_is_gone_changes_nothing(cluster: InProcessCluster, table: Table) -> None:
    index = table.insert({"k": [1]}).index
    assert index is not None
    cluster.wait_alike()
    table.truncate()
    wait_empty(cluster)
    table.insert({"k": [2]})
    end = table.history(1)[0].index
    with pytest.raises(SnapshotExpired, match=EXPIRED):
        table.restore_to(index + 1)
    assert (table.history(1)[0].index, table.to_arrow()["k"].to_pylist()) == (end, [2])


def test_restore_to_a_version_that_is_still_to_come_waits_as_long_as_it_is_told(table: Table) -> None:
    with pytest.raises(ReplicaBehind, match="needs it up to 99"):
        table.restore_to(99, timeout_s=0.1)
    assert table.history(1) == ()


def test_restored_rows_have_the_columns_of_now(table: Table) -> None:
    table.insert({"k": [1]})
    table.tag("a")
    table.alter("ADD COLUMN v int DEFAULT 5")
    table.insert({"k": [2], "v": [6]})
    table.restore_to("a")
    assert table.to_arrow(level="linearizable").to_pylist() == [{"k": 1, "v": 5}]


@on(FOLDER)
def test_tag_keeps_parts_in_an_object_store(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TAGS_S", 0.0)
    cluster = InProcessCluster(tmp_path, old_parts_lifetime_s=0.0)
    definition = cluster.create_table(schema="k bigint not null", storage=store_url)
    connection = cluster.connect()
    try:
        table, store = connection.table("t"), open_store(store_url)

        def objects() -> int:
            return len(tuple(store.list(f"tables/{definition.table_id}")))

        table.insert({"k": [1, 2]})
        table.tag("kept")
        cluster.wait_alike()
        table.truncate()
        wait_empty(cluster, kept=1)
        assert objects() > 0
        assert keys(table, "kept") == [1, 2]
        table.delete_tag("kept")
        wait_empty(cluster)
        wait_for(lambda: objects() == 0, "the objects are deleted")
    finally:
        connection.close()
        cluster.close()
